"""What a decision tree is built from: the moments of the frames of each state in each context.

A context is (left, phone, right, position): the numbers of three phones, and which of the middle
one's states it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.hmm import HmmStates

__all__ = [
    "LEFT",
    "PHONE",
    "POSITION",
    "RIGHT",
    "TreeStatistics",
    "accumulate_tree_statistics",
    "contexts_of",
    "merge",
]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

LEFT, PHONE, RIGHT, POSITION = range(4)  # the columns of a context
FEWEST_AT_ONCE = 20_000  # contexts; 15 MB of moments


@dataclass(frozen=True, eq=False)
class TreeStatistics:
    """The moments of N contexts, sorted by context; those of parts add up."""

    contexts: Ints  # (N, 4): left, phone, right, position
    moments: Doubles  # (N, 1 + 2 D): count, sum, sum of squares

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def dim(self) -> int:
        """D, the dimension of the features."""
        return int(self.moments.shape[1] - 1) // 2

    @property
    def counts(self) -> Doubles:
        """(N,) the frames of each context."""
        return self.moments[:, 0]

    @property
    def sums(self) -> Doubles:
        """(N, D) their sums."""
        return self.moments[:, 1 : 1 + self.dim]

    @property
    def squares(self) -> Doubles:
        """(N, D) the sums of their squares."""
        return self.moments[:, 1 + self.dim :]

    def __add__(self, other: TreeStatistics) -> TreeStatistics:
        return merge([self, other])


def contexts_of(alignment: Ints, states: HmmStates) -> Ints:
    """Return the context of each frame of an utterance, (T, 4).

    A phone at the edge of the utterance has a neighbour of 0 there. Silences have no context of
    their own: both neighbours are 0.
    """
    spans = states.spans(alignment)
    phones = np.array([span.phone for span in spans], dtype=np.int32)
    around = np.concatenate([[0], phones, [0]])
    has_context = ~np.isin(phones, sorted(states.phones.silence_numbers))
    columns = around[:-2] * has_context, phones, around[2:] * has_context
    lengths = [span.end - span.begin for span in spans]
    triphones = np.repeat(np.stack(columns, axis=1), lengths, axis=0)
    contexts = np.concatenate([triphones, states.position[alignment][:, None]], axis=1)
    return contexts.astype(np.int32)


def accumulate_tree_statistics(
    features: Floats, alignment: Ints, states: HmmStates
) -> TreeStatistics:
    """Return the statistics of an utterance.

    >>> from natgrad.speech.hmm import MonophoneTree, Topology
    >>> from natgrad.speech.phones import PhoneSet
    >>> phones = PhoneSet(("SIL",), ("AH", "B"), marks_position=False)
    >>> topology = Topology(2, 2)
    >>> states = HmmStates.of(phones, topology, MonophoneTree(phones, topology))
    >>> features = np.arange(7, dtype=np.float32)[:, None]
    >>> alignment = np.array([0, 1, 2, 2, 3, 4, 5], dtype=np.int32)
    >>> statistics = accumulate_tree_statistics(features, alignment, states)
    >>> statistics.contexts[2:4].tolist(), statistics.moments[2:4].tolist()
    ([[1, 2, 3, 0], [1, 2, 3, 1]], [[2.0, 5.0, 13.0], [1.0, 4.0, 16.0]])
    """
    if features.ndim != 2 or len(features) != len(alignment):
        raise ValueError(
            f"features of shape {features.shape} and an alignment of {len(alignment)} frames; "
            "expected (frames, dimension) and as many frames: are they of the same utterance?"
        )
    contexts = contexts_of(alignment, states)
    wide = features.astype(np.float64)
    moments = np.concatenate([np.ones((len(wide), 1)), wide, wide**2], axis=1)
    return _sum_equal_contexts(contexts, moments)


def merge(parts: Iterable[TreeStatistics]) -> TreeStatistics:
    """Return the statistics of all parts together.

    Parts are collected until they have as many contexts as are merged already, so that many small
    ones cost little more than their size. Sums are taken in the order of the parts.
    """
    pending: list[TreeStatistics] = []
    num_pending = 0
    for part in parts:
        pending.append(part)
        num_pending += len(part)
        if num_pending > 2 * max(len(pending[0]), FEWEST_AT_ONCE):
            pending = [_merge_at_once(pending)]
            num_pending = len(pending[0])
    if not pending:
        raise ValueError("there are no tree statistics to merge; expected those of an utterance")
    return _merge_at_once(pending)


def _merge_at_once(parts: Sequence[TreeStatistics]) -> TreeStatistics:
    if len(parts) == 1:
        return parts[0]
    dims = {part.dim for part in parts}
    if len(dims) > 1:
        raise ValueError(f"tree statistics of dimensions {sorted(dims)} cannot be merged")
    contexts = np.concatenate([part.contexts for part in parts])
    return _sum_equal_contexts(contexts, np.concatenate([part.moments for part in parts]))


def _sum_equal_contexts(contexts: Ints, moments: Doubles) -> TreeStatistics:
    if len(contexts) == 0:
        return TreeStatistics(contexts.reshape(0, 4), moments)
    order = np.lexsort(contexts.T[::-1])
    contexts = contexts[order]
    begins = np.flatnonzero(np.diff(contexts, axis=0, prepend=-1).any(axis=1))
    return TreeStatistics(contexts[begins], np.add.reduceat(moments[order], begins, axis=0))
