"""A decoding graph laid out for search: what takes a frame apart from what takes none.

The arcs of a state lie side by side, in the order of rising weight, so that a search can leave a
state at the first arc that is too dear. A state that has epsilon arcs has a level, the greatest
number of epsilon arcs that lead to it in a row: a search that takes states by level meets each once
only, after all that can improve it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.graphs.graph import Graph

__all__ = ["SearchArrays", "SearchGraph", "SearchGraphError"]

Ints = NDArray[np.int32]

EMITTING = np.dtype([("weight", np.float32), ("pdf", np.int32), ("target", np.int32)])
EPSILON = np.dtype([("weight", np.float32), ("target", np.int32)])
NO_EPSILON = -1  # the level of a state that no epsilon arc leaves
DEEPEST_LEVEL = np.iinfo(np.int16).max


class SearchGraphError(ValueError):
    """A graph that cannot be searched."""


class SearchArrays(NamedTuple):
    """What the compiled search reads. Arcs of state s: first_...[s] to before first_...[s + 1]."""

    first_emitting: Ints  # (S + 1,)
    emitting: NDArray[np.void]  # of EMITTING
    first_epsilon: Ints  # (S + 1,)
    epsilon: NDArray[np.void]  # of EPSILON
    level: NDArray[np.int16]  # (S,)


@dataclass(frozen=True, eq=False)
class SearchGraph:
    """A graph that a Decoder searches. Made once, it serves any number of decoders.

    >>> from numpy import array, float32, inf, int32
    >>> graph = Graph(0, array([0, 2, 2]), label=array([1, 0], int32), word=array([5, 0], int32),
    ...     weight=array([0.5, 0.1], float32), target=array([1, 1], int32), final=array([inf, 0.0]))
    >>> search_graph = SearchGraph.of(graph, pdf_of_label=array([-1, 7], int32))
    >>> search_graph.arrays.emitting.tolist(), search_graph.arrays.epsilon.tolist()
    ([(0.5, 7, 1)], [(0.10000000149011612, 1)])
    """

    graph: Graph
    arrays: SearchArrays
    emitting_origin: Ints  # the arc of the graph that each emitting arc was
    epsilon_origin: Ints
    num_levels: int
    num_pdfs: int  # 1 + the greatest pdf that an arc has

    @staticmethod
    def of(graph: Graph, pdf_of_label: Ints) -> SearchGraph:
        """Lay out a graph. A label's pdf is pdf_of_label[label].

        Raises:
            SearchGraphError: if a label has no pdf, an arc goes nowhere, a weight is not finite, a
                final cost is none, or epsilon arcs form a cycle.
        """
        _check_arcs(graph, pdf_of_label)
        first_emitting, emitting_origin = _sorted_arcs(graph, emitting=True)
        first_epsilon, epsilon_origin = _sorted_arcs(graph, emitting=False)
        emitting = np.empty(len(emitting_origin), dtype=EMITTING)
        emitting["weight"] = graph.weight[emitting_origin]
        emitting["pdf"] = pdf_of_label[graph.label[emitting_origin]]
        emitting["target"] = graph.target[emitting_origin]
        epsilon = np.empty(len(epsilon_origin), dtype=EPSILON)
        epsilon["weight"] = graph.weight[epsilon_origin]
        epsilon["target"] = graph.target[epsilon_origin]
        level = _levels(first_epsilon, epsilon, graph.num_states)
        num_pdfs = int(emitting["pdf"].max()) + 1 if len(emitting) else 0
        return SearchGraph(
            graph,
            SearchArrays(first_emitting, emitting, first_epsilon, epsilon, level),
            emitting_origin,
            epsilon_origin,
            num_levels=int(level.max(initial=NO_EPSILON)) + 1,
            num_pdfs=num_pdfs,
        )


def _check_arcs(graph: Graph, pdf_of_label: Ints) -> None:
    """Raise SearchGraphError for arcs and final costs that would lead a search astray."""
    if not 0 <= graph.start < graph.num_states:
        raise SearchGraphError(f"the start state is {graph.start}, of {graph.num_states} states")
    if not (graph.final > -np.inf).all():  # false of NaN, too
        state = int(np.argmin(graph.final > -np.inf))
        raise SearchGraphError(
            f"to end in state {state} costs {graph.final[state]}; expected a number, or inf where "
            "one cannot end"
        )
    if graph.num_arcs == 0:
        return
    lowest, highest = int(graph.target.min()), int(graph.target.max())
    if lowest < 0 or highest >= graph.num_states:
        raise SearchGraphError(
            f"arcs go to states {lowest} to {highest}, but the graph has {graph.num_states}"
        )
    lowest, highest = int(graph.label.min()), int(graph.label.max())
    if lowest < 0 or highest >= len(pdf_of_label):
        raise SearchGraphError(
            f"the graph's labels are {lowest} to {highest}, but pdf_of_label has "
            f"{len(pdf_of_label)} entries: is the graph of another model?"
        )
    if len(pdf_of_label) > 1 and int(pdf_of_label[1:].min()) < 0:
        label = 1 + int(pdf_of_label[1:].argmin())
        raise SearchGraphError(
            f"label {label} has the pdf {pdf_of_label[label]}; pdfs count from 0"
        )
    if not np.isfinite(graph.weight).all():
        arc = int(np.argmin(np.isfinite(graph.weight)))
        raise SearchGraphError(
            f"arc {arc} has the weight {graph.weight[arc]}; weights must be finite"
        )


def _sorted_arcs(graph: Graph, emitting: bool) -> tuple[Ints, Ints]:
    """Return where each state's arcs begin, and the graph's arcs of a kind in a search's order."""
    chosen = (graph.label > 0) == emitting
    before = np.zeros(graph.num_arcs + 1, dtype=np.int32)
    np.cumsum(chosen, out=before[1:])
    first = before[graph.first_arc]
    origin = np.flatnonzero(chosen).astype(np.int32)
    _sort_each_state(first, origin, np.asarray(graph.weight, dtype=np.float32))
    return first, origin


@njit(cache=True)
def _sort_each_state(
    first: Ints, origin: Ints, weight: NDArray[np.float32]
) -> None:  # pragma: no cover
    """Sort the arcs of each state by weight, then number: a Shell sort, as most states have few."""
    for state in range(len(first) - 1):
        begin, end = first[state], first[state + 1]
        gap = 1
        while 3 * gap + 1 < end - begin:
            gap = 3 * gap + 1
        while gap > 0:
            for place in range(begin + gap, end):
                arc = origin[place]
                cost = weight[arc]
                hole = place
                while hole - gap >= begin:
                    other = origin[hole - gap]
                    if weight[other] < cost or (weight[other] == cost and other < arc):
                        break
                    origin[hole] = other
                    hole -= gap
                origin[hole] = arc
            gap //= 3


def _levels(first: Ints, epsilon: NDArray[np.void], num_states: int) -> NDArray[np.int16]:
    """Return the level of each state, or NO_EPSILON; see the top of this file."""
    depth = np.zeros(num_states, dtype=np.int32)
    num_ordered = _measure_depth(first, epsilon, depth)
    if num_ordered < num_states:
        raise SearchGraphError(
            "the graph has a cycle of epsilon arcs, which a search could follow for ever without "
            "taking a frame: remove epsilons from the graph, or the words without a sound"
        )
    deepest = int(depth.max(initial=0))
    if deepest > DEEPEST_LEVEL:
        raise SearchGraphError(
            f"{deepest} epsilon arcs follow one another in the graph; a search takes at most "
            f"{DEEPEST_LEVEL}: remove epsilons from the graph"
        )
    return np.where(np.diff(first) > 0, depth, NO_EPSILON).astype(np.int16)


@njit(cache=True)
def _measure_depth(first: Ints, epsilon: NDArray[np.void], depth: Ints) -> int:  # pragma: no cover
    """Set the length of the longest way by epsilons to each state; return how many it ordered."""
    num_states = len(depth)
    num_entering = np.zeros(num_states, dtype=np.int32)
    for arc in range(len(epsilon)):
        num_entering[epsilon[arc]["target"]] += 1
    ready = np.empty(num_states, dtype=np.int32)
    num_ready = 0
    for state in range(num_states):
        if num_entering[state] == 0:
            ready[num_ready] = state
            num_ready += 1
    num_done = 0
    while num_done < num_ready:
        state = ready[num_done]
        num_done += 1
        for arc in range(first[state], first[state + 1]):
            target = epsilon[arc]["target"]
            depth[target] = max(depth[target], depth[state] + 1)
            num_entering[target] -= 1
            if num_entering[target] == 0:
                ready[num_ready] = target
                num_ready += 1
    return num_done
