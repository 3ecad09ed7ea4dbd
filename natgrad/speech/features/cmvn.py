"""Cepstral mean (and variance) normalization: of a speaker's features, or of the last seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.mfcc import FeatureError

__all__ = ["Cmvn", "CmvnStatistics", "SlidingCmvn", "sliding_cmvn", "speaker_means"]

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

# A feature whose variance is smaller, compared to its mean square, is a constant that was rounded.
RELATIVE_VARIANCE_FLOOR = 1e-10


@dataclass(frozen=True, eq=False)
class Cmvn:
    """What normalizes features: y = scale x + offset."""

    offset: Floats  # (D,)
    scale: Floats  # (D,)

    def apply(self, features: Floats) -> Floats:
        """Return (T, D) features normalized.

        >>> statistics = CmvnStatistics.of(np.array([[1.0], [5.0]], dtype=np.float32))
        >>> cmvn = statistics.cmvn(variance=True)
        >>> cmvn.apply(np.array([[1.0], [3.0], [5.0]], dtype=np.float32)).tolist()
        [[-1.0], [0.0], [1.0]]
        """
        if features.shape[1:] != self.scale.shape:
            raise FeatureError(
                f"the features are of shape {features.shape}; expected frames of "
                f"{len(self.scale)}, as those that the mean was taken of"
            )
        return features * self.scale + self.offset


@dataclass(frozen=True, eq=False)
class CmvnStatistics:
    """How many frames, their sum and the sum of their squares; those of several add up."""

    count: float
    total: Doubles  # (D,)
    squares: Doubles  # (D,)

    @staticmethod
    def of(features: Floats) -> CmvnStatistics:
        """Return the statistics of (T, D) features."""
        values = features.astype(np.float64)
        return CmvnStatistics(len(values), values.sum(axis=0), np.square(values).sum(axis=0))

    def __add__(self, other: CmvnStatistics) -> CmvnStatistics:
        return CmvnStatistics(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    def cmvn(self, variance: bool = False) -> Cmvn:
        """Return what takes off the mean, and, with `variance`, makes the variance one."""
        if self.count <= 0:
            raise FeatureError("there are no frames to take a mean of")
        mean = self.total / self.count
        scale = _scale(mean, self.squares / self.count) if variance else np.ones_like(mean)
        return Cmvn((-mean * scale).astype(np.float32), scale.astype(np.float32))

    def to_kaldi(self) -> Doubles:
        """Return the (2, D + 1) matrix that Kaldi keeps in its cmvn.ark."""
        return np.stack([np.append(self.total, self.count), np.append(self.squares, 0.0)])

    @staticmethod
    def from_kaldi(matrix: Doubles) -> CmvnStatistics:
        """Take the (2, D + 1) matrix of a cmvn.ark."""
        if matrix.ndim != 2 or len(matrix) != 2 or matrix.shape[1] < 2:
            raise FeatureError(
                f"the matrix is of shape {matrix.shape}; expected (2, D + 1): sums and the count, "
                "then sums of squares and 0"
            )
        values = matrix.astype(np.float64)
        return CmvnStatistics(float(values[0, -1]), values[0, :-1], values[1, :-1])


def speaker_means(
    features: Mapping[str, Floats], speakers: Mapping[str, Sequence[str]], variance: bool = False
) -> dict[str, Cmvn]:
    """Return what normalizes each speaker's features, from all of the speaker's utterances.

    Args:
        features: by utterance; a FeatureStore, for one.
        speakers: the utterances of each speaker.
        variance: whether variances become one, too.

    Raises:
        FeatureError: an utterance has no features, or a speaker no utterances; it is named.

    >>> features = {"a1": np.ones((2, 1), np.float32), "a2": np.full((2, 1), 3, np.float32)}
    >>> speaker_means(features, {"a": ["a1", "a2"]})["a"].offset.tolist()
    [-2.0]
    """
    return {
        speaker: _speaker_statistics(features, speaker, keys).cmvn(variance)
        for speaker, keys in speakers.items()
    }


def _speaker_statistics(
    features: Mapping[str, Floats], speaker: str, keys: Sequence[str]
) -> CmvnStatistics:
    absent = [key for key in keys if key not in features]
    if absent or not keys:
        what = f"no features of utterance {absent[0]}" if absent else "no utterances"
        raise FeatureError(
            f"speaker {speaker}: there are {what}; take only those utterances, and speakers, "
            "that have features"
        )
    first, *others = (CmvnStatistics.of(features[key]) for key in keys)
    return sum(others, start=first)


class SlidingCmvn:
    """Normalizes frames as they come, by the frames just before (and a few after) each.

    Frame t has taken off the mean of up to `window_frames` frames that end with t +
    `look_ahead_frames` (or with the last, if that is earlier). As long as the window is not full,
    up to `prior_frames` frames that have the mean (and variance) of the `prior` are in it too, as
    in Kaldi's online decoding; without a prior, the first frames are normalized by very few.
    """

    def __init__(
        self,
        dim: int,
        window_frames: int = 300,
        look_ahead_frames: int = 0,
        prior: CmvnStatistics | None = None,
        prior_frames: int = 200,
        variance: bool = False,
    ) -> None:
        if not 0 <= look_ahead_frames < window_frames:
            raise FeatureError(
                f"look_ahead_frames is {look_ahead_frames}; expected from 0 to before "
                f"window_frames, {window_frames}"
            )
        if prior is not None and prior.total.shape != (dim,):
            raise FeatureError(
                f"the prior is of features of {len(prior.total)} dimensions; expected {dim}"
            )
        self.look_ahead_frames = look_ahead_frames
        self._window = window_frames
        self._variance = variance
        self._prior = CmvnStatistics(0, np.zeros(dim), np.zeros(dim)) if prior is None else prior
        self._prior_frames = min(prior_frames, self._prior.count)
        self._waiting = np.empty((0, dim), dtype=np.float32)  # frames that came and were not given
        self._num_given = 0
        # Row i has the sums of all frames before `_first_sum` + i, and of their squares.
        self._sums = np.zeros((1, 2 * dim))
        self._first_sum = 0

    def accept(self, frames: Floats) -> Floats:
        """Take the next (T, D) frames, and return those that are now known."""
        values = frames.astype(np.float64)
        # One after the other from the last sum on, so that pieces of any length give the same bits.
        steps = np.concatenate([self._sums[-1:], np.hstack([values, np.square(values)])])
        self._sums = np.concatenate([self._sums, np.cumsum(steps, axis=0)[1:]])
        self._waiting = np.concatenate([self._waiting, frames])
        return self._give(max(0, len(self._waiting) - self.look_ahead_frames))

    def finish(self) -> Floats:
        """Return the last frames: their windows end with the last frame."""
        return self._give(len(self._waiting))

    def _give(self, num_frames: int) -> Floats:
        frames, self._waiting = self._waiting[:num_frames], self._waiting[num_frames:].copy()
        num_come = self._first_sum + len(self._sums) - 1
        numbers = self._num_given + np.arange(num_frames)
        end = np.minimum(numbers + self.look_ahead_frames + 1, num_come)
        begin = np.maximum(end - self._window, 0)
        sums = self._sums[end - self._first_sum] - self._sums[begin - self._first_sum]
        mean, scale = self._moments(sums, (end - begin)[:, None])
        self._num_given += num_frames
        self._forget(num_come)
        return ((frames - mean) * scale).astype(np.float32)

    def _moments(self, sums: Doubles, counts: NDArray[np.int64]) -> tuple[Doubles, Doubles | float]:
        prior = self._prior
        added = np.clip(self._window - counts, 0, self._prior_frames)
        share = added / max(prior.count, 1)
        moments = (sums + share * np.concatenate([prior.total, prior.squares])) / (counts + added)
        mean, mean_square = np.hsplit(moments, 2)
        return mean, _scale(mean, mean_square) if self._variance else 1.0

    def _forget(self, num_come: int) -> None:
        # No window that is still to come ends before the last frame that came.
        needed = max(num_come - self._window, self._first_sum)
        self._sums = self._sums[needed - self._first_sum :].copy()
        self._first_sum = needed


def sliding_cmvn(
    features: Floats,
    window_frames: int = 300,
    look_ahead_frames: int = 0,
    prior: CmvnStatistics | None = None,
    prior_frames: int = 200,
    variance: bool = False,
) -> Floats:
    """Normalize (T, D) features by a window that moves along: see SlidingCmvn.

    >>> sliding_cmvn(np.array([[1.0], [3.0], [8.0]], dtype=np.float32), window_frames=2).tolist()
    [[0.0], [1.0], [2.5]]
    """
    stream = SlidingCmvn(
        features.shape[1], window_frames, look_ahead_frames, prior, prior_frames, variance
    )
    return np.concatenate([stream.accept(features), stream.finish()])


def _scale(mean: Doubles, mean_square: Doubles) -> Doubles:
    """One over the standard deviation; 1 where the feature is constant."""
    variance = mean_square - np.square(mean)
    is_constant = variance <= RELATIVE_VARIANCE_FLOOR * mean_square
    scale: Doubles = 1 / np.sqrt(np.where(is_constant, 1.0, variance))
    return scale
