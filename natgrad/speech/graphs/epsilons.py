"""Removal of those epsilon arcs without which a graph is smaller."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph

__all__ = ["remove_local_epsilons"]

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Arcs:
    source: Places
    target: Places
    label: NDArray[np.int32]
    word: NDArray[np.int32]
    weight: NDArray[np.float64]
    final: NDArray[np.float64]
    start: int

    def choose(self, arcs: Places | Mask) -> _Arcs:
        names = ("source", "target", "label", "word", "weight")
        return replace(self, **{name: getattr(self, name)[arcs] for name in names})


def remove_local_epsilons(graph: Graph) -> Graph:
    """Return an equivalent graph, in which no epsilon arc is alone on its way.

    An arc without a label (it may have a word) is joined to those before it if it is all that
    leaves its state, or to those after it if it is all that enters its state, as long as no arc
    gets two words. So there are never more arcs than before, and all paths are still there. Other
    epsilons stay: without them, the back-off of a language model would be no more, and the
    graph much larger.

    >>> chain = graph_of_arcs([0, 1, 2], [5, 0, 6], [0, 7, 0], [1.0, 0.5, 1.0], [1, 2, 3],
    ...                       [np.inf, np.inf, np.inf, 0.0])
    >>> shorter = remove_local_epsilons(chain)
    >>> shorter.label, shorter.word, shorter.weight
    (array([5, 6], dtype=int32), array([7, 0], dtype=int32), array([1.5, 1. ], dtype=float32))
    """
    arcs = _Arcs(
        np.repeat(np.arange(graph.num_states), np.diff(graph.first_arc)),
        graph.target.astype(np.int64), graph.label, graph.word, graph.weight.astype(np.float64),
        graph.final.astype(np.float64), graph.start,
    )  # fmt: skip
    num_arcs = -1
    while num_arcs != len(arcs.label):
        num_arcs = len(arcs.label)
        arcs = _join_to_those_after(_join_to_those_before(arcs))
    return _renumber(arcs)


def _join_to_those_before(arcs: _Arcs) -> _Arcs:
    """Drop states that only an epsilon leaves: what enters them goes on to where it leads."""
    num_states = len(arcs.final)
    leaving = np.bincount(arcs.source, minlength=num_states)
    words_entering = np.bincount(arcs.target, arcs.word > 0, minlength=num_states)
    lone = (arcs.label == 0) & (leaving[arcs.source] == 1) & np.isinf(arcs.final[arcs.source])
    lone &= (arcs.source != arcs.start) & (arcs.source != arcs.target)
    lone &= (arcs.word == 0) | (words_entering[arcs.source] == 0)
    if not lone.any():
        return arcs
    arc_of_state = np.full(num_states, -1)
    arc_of_state[arcs.source[lone]] = np.flatnonzero(lone)
    lone &= arc_of_state[arcs.target] < 0  # of a row of such arcs, the last one; then the others
    arc_of_state[:] = -1
    arc_of_state[arcs.source[lone]] = np.flatnonzero(lone)
    after = arc_of_state[arcs.target]
    joined = after >= 0
    then = after[joined]
    target, word, weight = arcs.target.copy(), arcs.word.copy(), arcs.weight.copy()
    target[joined] = arcs.target[then]
    word[joined] |= arcs.word[then]  # at most one of the two is there
    weight[joined] += arcs.weight[then]
    return replace(arcs, target=target, word=word, weight=weight).choose(~lone)


def _join_to_those_after(arcs: _Arcs) -> _Arcs:
    """Drop states that only an epsilon enters: what leaves them leaves the state before."""
    num_states = len(arcs.final)
    entering = np.bincount(arcs.target, minlength=num_states)
    words_leaving = np.bincount(arcs.source, arcs.word > 0, minlength=num_states)
    is_final = np.isfinite(arcs.final)
    lone = (arcs.label == 0) & (entering[arcs.target] == 1) & (arcs.target != arcs.start)
    lone &= arcs.source != arcs.target
    # A word can move on to the arcs after it, but not to the end of an utterance.
    lone &= (arcs.word == 0) | ((words_leaving[arcs.target] == 0) & ~is_final[arcs.target])
    # Two costs of ending in one state cannot both be kept.
    ends_on = np.bincount(arcs.source, lone & is_final[arcs.target], minlength=num_states)
    lone &= ~is_final[arcs.target] | (ends_on + is_final <= 1)[arcs.source]
    if not lone.any():
        return arcs
    arc_of_state = np.full(num_states, -1)
    arc_of_state[arcs.target[lone]] = np.flatnonzero(lone)
    lone &= arc_of_state[arcs.source] < 0  # of a row of such arcs, the first one
    arc_of_state[:] = -1
    arc_of_state[arcs.target[lone]] = np.flatnonzero(lone)
    before = arc_of_state[arcs.source]
    joined = before >= 0
    then = before[joined]
    source, word, weight = arcs.source.copy(), arcs.word.copy(), arcs.weight.copy()
    source[joined] = arcs.source[then]
    word[joined] |= arcs.word[then]
    weight[joined] += arcs.weight[then]
    final = arcs.final.copy()
    ending = np.flatnonzero(lone & is_final[arcs.target])
    final[arcs.source[ending]] = arcs.weight[ending] + arcs.final[arcs.target[ending]]
    return replace(arcs, source=source, word=word, weight=weight, final=final).choose(~lone)


def _renumber(arcs: _Arcs) -> Graph:
    is_used = np.zeros(len(arcs.final), dtype=bool)
    is_used[arcs.target] = is_used[arcs.start] = True
    number = np.cumsum(is_used) - 1
    arcs = arcs.choose(is_used[arcs.source])
    return graph_of_arcs(
        number[arcs.source], arcs.label, arcs.word, arcs.weight, number[arcs.target],
        arcs.final[is_used], int(number[arcs.start]),
    )  # fmt: skip
