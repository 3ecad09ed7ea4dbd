"""Segments cut into pieces, and many pieces as columns of arrays.

A piece is a stretch of a segment together with the context that its first and last frames need from
their neighbours. Where the segment ends there are no neighbours and nothing is stored: the frame at
the end is repeated when examples are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.data.segment import CheckedSegment

PIECE = np.dtype(
    [
        ("key", "<u8"),  # random: where it goes
        ("segment_key", "<u8"),  # random, the same in all of a segment's pieces
        ("num_samples", "<i4"),  # frames that are examples
        ("left", "<i4"),  # frames stored before these, as context only
        ("right", "<i4"),  # and after
        ("start", "<i4"),  # the first sample's place in the segment
        ("name", "<i4"),  # index into names
    ]
)
# Stored context is at most this share of the samples: a share of the target of 1.15 bytes per value
# (labels need 0.02 or so, the codec's knots 0.01) that leaves some to spare. Shorter pieces would
# be better scattered, but a block has thousands of them in any case.
LARGEST_CONTEXT_SHARE = 0.08
SHORTEST_PIECE_FRAMES = 50  # without context, what matters is the size of side vectors and tables


@dataclass(frozen=True)
class Cut:
    """How segments are cut: context frames on each side, and the fewest samples of a piece."""

    left_context: int
    right_context: int
    piece_frames: int


@dataclass(frozen=True, eq=False)
class Pieces:
    """P pieces with n samples in F stored frames; n samples have m labels (m = n unless soft).

    Rows of all columns are in the order of the pieces.
    """

    table: NDArray[np.void]  # (P,) of PIECE
    names: list[str]
    features: NDArray[np.float32]  # (F, D)
    side: NDArray[np.float32]  # (P, S)
    weights: NDArray[np.float32]  # (n,)
    num_labels: NDArray[np.int32]  # (n,)
    classes: NDArray[np.int32]  # (m,)
    probabilities: NDArray[np.float32]  # (m,)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def num_samples(self) -> int:
        """Examples in all pieces."""
        return len(self.weights)

    @property
    def num_bytes(self) -> int:
        """Memory that the arrays take."""
        arrays = (self.table, self.features, self.side, self.weights, self.num_labels)
        return sum(array.nbytes for array in (*arrays, self.classes, self.probabilities))

    @property
    def num_frames(self) -> NDArray[np.int64]:
        """(P,) stored frames of each piece."""
        return frames_of(self.table)

    def take(self, order: NDArray[np.int64]) -> Pieces:
        """The pieces with these indices, in this order."""
        samples = _rows_of(order, self.table["num_samples"].astype(np.int64))
        frames = _rows_of(order, self.num_frames)
        labels = _rows_of(samples, self.num_labels.astype(np.int64))
        return Pieces(
            self.table[order], self.names, self.features[frames], self.side[order],
            self.weights[samples], self.num_labels[samples], self.classes[labels],
            self.probabilities[labels],
        )  # fmt: skip

    def with_used_names(self) -> Pieces:
        """The same, without the names that no piece has."""
        used, index = np.unique(self.table["name"], return_inverse=True)
        table = self.table.copy()
        table["name"] = index
        names = [self.names[i] for i in used]
        return Pieces(
            table, names, self.features, self.side, self.weights, self.num_labels, self.classes,
            self.probabilities,
        )  # fmt: skip


def frames_of(table: NDArray[np.void]) -> NDArray[np.int64]:
    """(P,) stored frames of each piece of a table."""
    stored = table["num_samples"].astype(np.int64) + table["left"] + table["right"]
    return np.asarray(stored, dtype=np.int64)


def concatenate(batches: Sequence[Pieces]) -> Pieces:
    """The pieces of all batches, one batch after the other."""
    if len(batches) == 1:
        return batches[0]
    table = np.concatenate([batch.table for batch in batches])
    names: list[str] = []
    first_piece = 0
    for batch in batches:
        table["name"][first_piece : first_piece + len(batch)] += len(names)
        first_piece += len(batch)
        names += batch.names
    return Pieces(
        table,
        names,
        np.concatenate([batch.features for batch in batches]),
        np.concatenate([batch.side for batch in batches]),
        np.concatenate([batch.weights for batch in batches]),
        np.concatenate([batch.num_labels for batch in batches]),
        np.concatenate([batch.classes for batch in batches]),
        np.concatenate([batch.probabilities for batch in batches]),
    )


def cut(segment: CheckedSegment, rule: Cut, random: np.random.PCG64) -> Pieces:
    """The pieces of a segment, with keys drawn from `random`.

    The segment's frames are dealt out evenly to as many pieces as can have `piece_frames` each, at
    least one. A segment of T frames in k pieces stores (k - 1) (left + right) frames of context.
    """
    num_frames = len(segment.features)
    if segment.independent:
        return _cut_rows(segment, rule, random)
    num_pieces = max(1, num_frames // rule.piece_frames)
    bounds = np.arange(num_pieces + 1) * num_frames // num_pieces
    begin, end = bounds[:-1], bounds[1:]
    table = np.zeros(num_pieces, dtype=PIECE)
    table["segment_key"] = random.random_raw()
    table["key"] = random.random_raw(num_pieces)
    table["num_samples"] = end - begin
    table["left"] = np.minimum(begin, rule.left_context)
    table["right"] = np.minimum(num_frames - end, rule.right_context)
    table["start"] = begin
    features = segment.features
    if num_pieces > 1:
        features = features[ranges(begin - table["left"], frames_of(table))]
    return _pieces(segment, table, features)


def _cut_rows(segment: CheckedSegment, rule: Cut, random: np.random.PCG64) -> Pieces:
    if rule.left_context or rule.right_context:
        raise ValueError(
            f"Segment {segment.key!r}: its rows are independent vectors, which have no neighbours, "
            f"but a context of {rule.left_context} and {rule.right_context} frames is asked for; "
            "expected a context of 0, or a segment of consecutive frames."
        )
    table = np.zeros(len(segment.features), dtype=PIECE)
    table["num_samples"] = 1
    # `start` stays 0: which row of its segment a vector was would cost bytes and is of no use.
    table["segment_key"] = random.random_raw(len(table))
    table["key"] = random.random_raw(len(table))
    return _pieces(segment, table, segment.features)


def _pieces(
    segment: CheckedSegment, table: NDArray[np.void], features: NDArray[np.float32]
) -> Pieces:
    side = np.broadcast_to(segment.side, (len(table), len(segment.side)))
    return Pieces(
        table, [segment.key], features, side, segment.weights, segment.num_labels, segment.classes,
        segment.probabilities,
    )  # fmt: skip


def _rows_of(order: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where in a column, of which part i has sizes[i] rows, the rows of the parts in order are."""
    begins = np.cumsum(sizes) - sizes
    return ranges(begins[order], sizes[order])


def ranges(begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers begins[i], begins[i] + 1, ... (sizes[i] of them), for one i after the other."""
    shifts = begins - (np.cumsum(sizes) - sizes)
    return np.repeat(shifts, sizes) + np.arange(sizes.sum())
