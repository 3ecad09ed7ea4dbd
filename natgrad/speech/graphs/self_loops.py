"""What it costs to stay in an HMM state and to leave it; self-loops for graphs without them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.hmm import HmmStates

__all__ = ["TransitionCosts", "add_self_loops"]

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class TransitionCosts(NamedTuple):
    """By label (0, epsilon, costs nothing): for each frame more in a state, and for leaving it.

    In a graph, the cost of leaving is on the arc that enters the state: every path that enters it
    leaves it in the end, and the earlier a cost is known, the better a beam works.
    """

    stay: Floats
    leave: Floats

    @staticmethod
    def of(states: HmmStates, self_loop_scale: float) -> TransitionCosts:
        """Return the scaled costs of all states.

        Durations carry little information beside the features, hence a scale well below 1.
        """
        if not 0.0 <= self_loop_scale < np.inf:
            raise ValueError(f"self_loop_scale is {self_loop_scale}; it must be finite, at least 0")
        staying = states.self_loop.astype(np.float64)
        is_right = (staying > 0.0) & (staying < 1.0)
        if not is_right.all():
            state = int(np.argmin(is_right))
            raise ValueError(
                f"HMM state {state} is stayed in with probability {staying[state]}; expected more "
                "than 0 and less than 1: estimate it again"
            )
        costs = (-self_loop_scale * np.log(p) for p in (staying, 1.0 - staying))
        return TransitionCosts(*(np.concatenate([[0.0], cost]) for cost in costs))


def add_self_loops(graph: Graph, costs: TransitionCosts) -> Graph:
    """Return a graph in which each label's state can be stayed in, with the costs of both.

    A self-loop's label must be that of the arcs that enter its state. So a state that is entered
    with different labels is split: into copies, where that takes no more arcs; else one state for
    each label goes before it, with an epsilon arc.

    >>> before = graph_of_arcs([0, 0], [1, 2], [0, 0], [0.0, 0.0], [1, 1], [np.inf, 0.0])
    >>> zero = np.zeros(3)
    >>> after = add_self_loops(before, TransitionCosts(zero, zero))
    >>> after.target, after.label, after.final
    (array([1, 2, 1, 2], dtype=int32), array([1, 2, 1, 2], dtype=int32), \
array([inf,  0.,  0.], dtype=float32))
    """
    entries = _Entries.of(graph, num_labels=len(costs.stay))
    stays = np.flatnonzero(entries.label)
    before = np.flatnonzero(~entries.is_left)
    leavers = np.flatnonzero(entries.is_left)
    left = entries.state[leavers]
    num_leaving = np.diff(graph.first_arc)[left]
    arcs = _ranges(graph.first_arc[left], num_leaving)
    label, nothing = graph.label[arcs], np.zeros(len(before), np.int32)
    loop_label = entries.label[stays]
    leave_weight = graph.weight[arcs] + costs.leave[label]
    final = np.full(len(entries.state), np.inf)
    final[leavers] = graph.final[left]
    return graph_of_arcs(
        source=np.concatenate([stays, before, np.repeat(leavers, num_leaving)]),
        label=np.concatenate([loop_label, nothing, label]),
        word=np.concatenate([np.zeros(len(stays), np.int32), nothing, graph.word[arcs]]),
        weight=np.concatenate([costs.stay[loop_label], nothing, leave_weight]),
        target=np.concatenate([stays, entries.state[before], entries.of_arc[arcs]]),
        final=final,
        start=graph.start,
    )


class _Entries(NamedTuple):
    """The new states: one for each label that an old state is entered with, and perhaps for 0.

    An old state's first entry has its number, the others have numbers after those of all old ones.
    """

    state: Places  # the old state
    label: Places
    is_left: NDArray[np.bool_]  # by the old state's arcs; or by an epsilon arc to its first entry
    of_arc: Places  # for each old arc, the entry that it leads to

    @staticmethod
    def of(graph: Graph, num_labels: int) -> _Entries:
        label = np.zeros(graph.num_states, np.int64)
        label[graph.target] = graph.label
        label[graph.start] = 0
        differs = label[graph.target] != graph.label
        is_split = np.zeros(graph.num_states, np.bool_)
        is_split[graph.target[differs]] = True

        # Only few states are split, so only their arcs are sorted.
        arcs = np.flatnonzero(is_split[graph.target])
        keys_of_arcs = graph.target[arcs].astype(np.int64) * num_labels + graph.label[arcs]
        begins = [graph.start * num_labels] if is_split[graph.start] else []
        keys = np.unique(np.append(keys_of_arcs, begins).astype(np.int64))
        is_copied = _takes_no_more_arcs_copied(graph, keys, num_labels)
        keys = np.union1d(keys, np.flatnonzero(is_split & ~is_copied) * num_labels)
        state = keys // num_labels
        is_first = np.diff(state, prepend=-1) > 0
        number = np.where(is_first, state, graph.num_states - 1 + np.cumsum(~is_first))
        label[state[is_first]] = keys[is_first] % num_labels
        more = state[~is_first]
        of_arc = graph.target.astype(np.int64)
        of_arc[arcs] = number[np.searchsorted(keys, keys_of_arcs)]
        return _Entries(
            state=np.append(np.arange(graph.num_states), more),
            label=np.append(label, keys[~is_first] % num_labels),
            is_left=np.append(np.ones(graph.num_states, np.bool_), is_copied[more]),
            of_arc=of_arc,
        )


def _takes_no_more_arcs_copied(graph: Graph, keys: Places, num_labels: int) -> NDArray[np.bool_]:
    """Return for each state whether copies of it need no more arcs than epsilon arcs would."""
    state, has_label = keys // num_labels, keys % num_labels > 0
    num_copies = np.bincount(state, minlength=graph.num_states)
    num_epsilons = np.bincount(state, has_label, minlength=graph.num_states)
    no_more: NDArray[np.bool_] = (num_copies - 1) * np.diff(graph.first_arc) <= num_epsilons
    return no_more


def _ranges(first: Places, counts: Places) -> Places:
    """Return the numbers from each first on, as many as its count, one row after another."""
    begins = np.cumsum(counts) - counts
    ranges: Places = np.arange(counts.sum()) + np.repeat(first - begins, counts)
    return ranges
