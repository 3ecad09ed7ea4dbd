"""A block of examples: read front to back, held as bytes, gathered in random order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from natgrad.data.block_columns import read_columns
from natgrad.data.block_file import Array, BlockError
from natgrad.data.codec import Decoder

Indices = NDArray[np.int32]
Floats = NDArray[np.float32]

__all__ = ["Block", "BlockError", "Minibatch", "PieceOfSegment", "SoftLabels"]


class SoftLabels(NamedTuple):
    """The likely classes of N examples and their probabilities, padded to the longest list.

    The most probable class is first; padding has probability zero (and class 0), so that

        log_posteriors.gather(1, soft.classes).mul(soft.probabilities).sum(dim=1)

    is the objective of each example.
    """

    classes: Tensor  # (N, K) int64
    probabilities: Tensor  # (N, K) float32


@dataclass(frozen=True, eq=False)
class Minibatch:
    """N examples.

    features: (N, (left + 1 + right) D + S) float32: the frames of the context one after the other,
        then the side vector
    labels: (N,) int64; of soft labels, the most probable class
    weights: (N,) float32, or None if all of the block's are one
    soft: or None if all of the block's labels are certain
    """

    features: Tensor
    labels: Tensor
    weights: Tensor | None
    soft: SoftLabels | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def total_weight(self) -> float:
        """The sum of the weights: N if there are none."""
        return float(len(self) if self.weights is None else self.weights.sum(dtype=torch.float64))


class PieceOfSegment(NamedTuple):
    """Consecutive examples of a segment, from its frame `start` on."""

    key: str
    start: int
    examples: Minibatch


class Block:
    """The examples of one block, in memory as they are on disk: one byte per value."""

    def __init__(
        self, left_context: int, right_context: int, columns: dict[str, Array], names: list[str]
    ) -> None:
        self._names = names
        self._piece_start, self._piece_name = columns["start"], columns["name"]
        self._piece_group = columns["group"]
        num_samples, left = columns["num_samples"], columns["left"]
        num_frames = num_samples + left + columns["right"]
        self._piece_end_frame = np.cumsum(num_frames, dtype=np.int32)
        self._piece_first_frame = self._piece_end_frame - num_frames
        self._piece_first_sample = np.cumsum(num_samples, dtype=np.int32) - num_samples
        self._piece_num_samples = num_samples
        self._sample_piece = np.repeat(np.arange(len(left), dtype=np.int32), num_samples)
        # Frames are stored with context between the samples: so far is a sample from its frame.
        shifts = self._piece_first_frame + left - self._piece_first_sample
        self._sample_frame = np.arange(num_samples.sum(), dtype=np.int32)
        self._sample_frame += np.repeat(shifts, num_samples)
        self._offsets = np.arange(-left_context, right_context + 1, dtype=np.int32)
        self._codes, self._decoder = columns["codes"], Decoder.of(columns["knots"])
        self._side = columns["side"].astype(np.float32)
        self._weights: Floats | None = columns.get("weights")
        self._set_labels(columns)

    def _set_labels(self, columns: dict[str, Array]) -> None:
        self._classes: Indices = columns["classes"]
        self._probabilities: Floats | None = columns.get("probabilities")
        self._labels = self._classes
        if self._probabilities is not None:
            self._num_labels: Indices = columns["num_labels"]
            self._first_label = np.cumsum(self._num_labels, dtype=np.int32) - self._num_labels
            self._labels = self._classes[self._first_label]  # the most probable is stored first

    @staticmethod
    def read(path: Path | str) -> Block:
        """Read a block.

        Raises:
            BlockError: the file is foreign, of another version, cut off, or altered; it is named.
        """
        path = Path(path)
        facts, columns, names = read_columns(path)
        return Block(facts["left_context"], facts["right_context"], columns, names)

    @property
    def num_samples(self) -> int:
        """Examples in the block."""
        return len(self._sample_piece)

    @property
    def input_dim(self) -> int:
        """Columns of a minibatch's features."""
        return int(len(self._offsets) * self._codes.shape[1] + self._side.shape[1])

    @property
    def num_bytes(self) -> int:
        """Memory that the block takes."""
        arrays = [value for value in vars(self).values() if isinstance(value, np.ndarray)]
        arrays += vars(self._decoder).values()
        return sum(array.nbytes for array in arrays)

    def minibatches(self, size: int, seed: int) -> Iterator[Minibatch]:
        """All examples once, in an order drawn from the seed; the last minibatch may be smaller."""
        if size < 1:
            raise ValueError(f"A minibatch of {size} examples was asked for; expected 1 or more.")
        # Raw bits, not numpy.random's permutations: these may differ between versions of NumPy.
        keys = np.random.PCG64(seed).random_raw(self.num_samples)
        order = np.argsort(keys, kind="stable").astype(np.int32)
        for begin in range(0, self.num_samples, size):
            yield self.gather(order[begin : begin + size])

    def pieces(self) -> Iterator[PieceOfSegment]:
        """The pieces, each with its examples in order."""
        for piece, first in enumerate(self._piece_first_sample):
            samples = np.arange(first, first + self._piece_num_samples[piece], dtype=np.int32)
            key = self._names[self._piece_name[piece]]
            yield PieceOfSegment(key, int(self._piece_start[piece]), self.gather(samples))

    def gather(self, samples: Indices) -> Minibatch:
        """The examples with these numbers (0 to num_samples - 1), in this order."""
        pieces = self._sample_piece[samples]
        frames = self._sample_frame[samples][:, None] + self._offsets
        # What a piece has not stored lies beyond the segment, whose last frame is repeated there.
        np.maximum(frames, self._piece_first_frame[pieces][:, None], out=frames)
        np.minimum(frames, self._piece_end_frame[pieces][:, None] - 1, out=frames)
        codes = self._codes.take(frames, axis=0)
        features = np.empty((len(samples), self.input_dim), dtype=np.float32)
        width = codes.shape[1] * codes.shape[2]
        self._decoder.decode(
            codes, self._piece_group[pieces], out=features[:, :width].reshape(codes.shape)
        )
        features[:, width:] = self._side[pieces]
        weights = None if self._weights is None else torch.from_numpy(self._weights[samples])
        labels = torch.from_numpy(self._labels[samples].astype(np.int64))
        return Minibatch(torch.from_numpy(features), labels, weights, self._soft_labels(samples))

    def _soft_labels(self, samples: Indices) -> SoftLabels | None:
        if self._probabilities is None:
            return None
        num_labels = self._num_labels[samples][:, None]
        places = np.arange(num_labels.max())
        is_padding = places >= num_labels
        indices = np.where(is_padding, 0, self._first_label[samples][:, None] + places)
        classes = np.where(is_padding, 0, self._classes[indices]).astype(np.int64)
        probabilities = np.where(is_padding, np.float32(0), self._probabilities[indices])
        return SoftLabels(torch.from_numpy(classes), torch.from_numpy(probabilities))
