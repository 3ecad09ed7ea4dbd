"""From stored cepstra to the features of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.cmvn import Cmvn, SlidingCmvn
from natgrad.speech.features.deltas import add_deltas, deltas_within, splice, spliced_within
from natgrad.speech.features.frame_stream import ContextStream, FrameStream, StreamChain
from natgrad.speech.features.mfcc import FeatureError

__all__ = ["FrontEnd"]

Floats = NDArray[np.float32]

DELTA_WINDOW = 2


@dataclass(frozen=True, eq=False)
class FrontEnd:
    """In this order: normalization, deltas, splicing, the model's transform, the speaker's.

    >>> cepstra = np.zeros((5, 13), dtype=np.float32)
    >>> FrontEnd(num_deltas=2)(cepstra).shape, FrontEnd(left=3, right=3)(cepstra).shape
    ((5, 39), (5, 91))

    A transform is (E, D), or (E, D + 1) with an offset as its last column, where D is the dimension
    after splicing.
    """

    num_deltas: int = 0  # how many orders of them
    left: int = 0
    right: int = 0
    transform: Floats | None = None

    def __post_init__(self) -> None:
        if min(self.num_deltas, self.left, self.right) < 0:
            raise FeatureError(
                f"a front end got num_deltas {self.num_deltas}, left {self.left} and right "
                f"{self.right}; expected none negative"
            )
        if self.transform is not None and self.transform.ndim != 2:
            raise FeatureError(
                f"a front end got a transform of shape {self.transform.shape}; expected a matrix"
            )

    def __call__(
        self, cepstra: Floats, cmvn: Cmvn | None = None, speaker_transform: Floats | None = None
    ) -> Floats:
        """Return the (T, E) features of (T, D) cepstra.

        Args:
            cepstra: as they are stored.
            cmvn: the speaker's, from `speaker_means`; without it, they stay as they are.
            speaker_transform: (E, E + 1), from fMLLR.

        Raises:
            FeatureError: the dimensions do not fit.
        """
        features = cepstra if cmvn is None else cmvn.apply(cepstra)
        if self.num_deltas:
            features = add_deltas(features, self.num_deltas, DELTA_WINDOW)
        if self.left or self.right:
            features = splice(features, self.left, self.right)
        features = _transformed(features, self.transform, "model")
        return _transformed(features, speaker_transform, "speaker").astype(np.float32, copy=False)

    def output_dim(self, cepstra_dim: int) -> int:
        """Return the dimension of the features, given that of the cepstra."""
        if self.transform is not None:
            return len(self.transform)
        return cepstra_dim * (self.num_deltas + 1) * (self.left + 1 + self.right)

    @property
    def look_ahead_frames(self) -> int:
        """How many frames after a frame its features depend on, normalization apart."""
        return self.num_deltas * DELTA_WINDOW + self.right

    def stream(
        self,
        cepstra_dim: int,
        cmvn: Cmvn | SlidingCmvn | None = None,
        speaker_transform: Floats | None = None,
    ) -> StreamChain:
        """Return what gives the features of cepstra as they come; the same as a call gives.

        (Without a transform, the same bits; with one, up to the roundoff of float32, as the order
        in which a product of matrices is summed depends on their size.)

        >>> stream = FrontEnd(num_deltas=1, left=1, right=1).stream(13)
        >>> cepstra = np.zeros((2, 13), dtype=np.float32)
        >>> stream.look_ahead_frames, [len(stream.accept(cepstra)) for _ in range(3)]
        (3, [0, 1, 2])
        >>> len(stream.finish())
        3
        """
        context = self.num_deltas * DELTA_WINDOW
        delta_dim = cepstra_dim * (self.num_deltas + 1)
        width = self.left + 1 + self.right

        def transform(features: Floats) -> Floats:
            return _transformed(
                _transformed(features, self.transform, "model"), speaker_transform, "speaker"
            ).astype(np.float32, copy=False)

        deltas = partial(deltas_within, order=self.num_deltas, window=DELTA_WINDOW)
        streams: list[FrameStream] = [
            cmvn
            if isinstance(cmvn, SlidingCmvn)
            else ContextStream(cmvn.apply if cmvn else np.asarray, cepstra_dim, 0, 0),
            ContextStream(deltas, cepstra_dim, context, context),
            ContextStream(partial(spliced_within, width=width), delta_dim, self.left, self.right),
            ContextStream(transform, delta_dim * width, 0, 0),
        ]
        return StreamChain(streams)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return named arrays, for a model file; `from_arrays` takes them back."""
        context = np.array([self.num_deltas, self.left, self.right], dtype=np.int32)
        arrays: dict[str, NDArray[Any]] = {"front_end.context": context}
        if self.transform is not None:
            arrays["front_end.transform"] = np.asarray(self.transform, dtype=np.float32)
        return arrays

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> FrontEnd:
        """Make a front end of what `to_arrays` gave; other arrays may be among them.

        >>> FrontEnd.from_arrays(FrontEnd(num_deltas=2).to_arrays()).num_deltas
        2
        """
        if "front_end.context" not in arrays:
            raise FeatureError(
                f"there is no 'front_end.context' among the arrays {sorted(arrays)[:10]}: they "
                "are not of a model with a front end"
            )
        num_deltas, left, right = (int(number) for number in arrays["front_end.context"])
        return FrontEnd(num_deltas, left, right, arrays.get("front_end.transform"))


def _transformed(features: Floats, matrix: Floats | None, whose: str) -> Floats:
    if matrix is None:
        return features
    dim, num_columns = features.shape[1], matrix.shape[1]
    if num_columns == dim:
        return features @ matrix.T
    if num_columns == dim + 1:
        return features @ matrix[:, :-1].T + matrix[:, -1]
    raise FeatureError(
        f"the {whose} transform is of shape {matrix.shape} and the features have {dim} dimensions; "
        f"expected {dim} columns, or {dim + 1} with the offset"
    )
