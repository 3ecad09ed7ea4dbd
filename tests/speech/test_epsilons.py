from __future__ import annotations

import kaldifst
import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from natgrad.speech.graphs.epsilons import remove_local_epsilons
from natgrad.speech.graphs.fst import from_fst, graph_of_arcs, to_fst
from natgrad.speech.graphs.graph import Graph
from tests.speech.toy_graphs import assert_same, paths, random_graph

MANY = 1000


def lone_epsilons(graph: Graph) -> int:
    """Count the epsilon arcs without words that are all that leaves or enters a state."""
    source = np.repeat(np.arange(graph.num_states), np.diff(graph.first_arc))
    leaving, entering = (np.bincount(x, minlength=graph.num_states) for x in (source, graph.target))
    is_final = np.isfinite(graph.final)
    alone_before = (leaving[source] == 1) & ~is_final[source] & (source != graph.start)
    alone_after = (entering[graph.target] == 1) & ~is_final[graph.target]
    alone_after &= graph.target != graph.start
    return int(((alone_before | alone_after) & (graph.label == 0) & (graph.word == 0)).sum())


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 8), st.integers(1, 14), st.integers(0, 2**32 - 1))
def test_all_paths_stay_and_no_arc_is_added(num_states: int, num_arcs: int, seed: int) -> None:
    fst = to_fst(random_graph(num_states, num_arcs, seed, acyclic=True))
    kaldifst.connect(fst)
    assume(fst.num_states)
    graph = from_fst(fst)
    smaller = remove_local_epsilons(graph)
    assert_same(list(paths(smaller, MANY)), list(paths(graph, MANY)), tolerance=1e-4)
    assert smaller.num_arcs <= graph.num_arcs
    assert lone_epsilons(smaller) == 0


def test_back_off_stays_where_it_saves_arcs() -> None:
    # States 0 and 1 both back off to 2, which has two arcs of its own.
    graph = graph_of_arcs(
        [0, 0, 1, 1, 2, 2], [1, 0, 2, 0, 1, 2], [0] * 6, [0.5] * 6, [1, 2, 0, 2, 0, 1], [0.0] * 3
    )
    np.testing.assert_array_equal(remove_local_epsilons(graph).label, graph.label)


def test_words_of_two_epsilons_are_not_put_on_one_arc() -> None:
    graph = graph_of_arcs([0, 1], [0, 0], [7, 8], [1.0, 1.0], [1, 2], [np.inf, np.inf, 0.0])
    smaller = remove_local_epsilons(graph)
    assert smaller.word.tolist() == [7, 8]


def test_ring_of_epsilons_does_not_go_on_for_ever() -> None:
    graph = graph_of_arcs(
        [0, 1, 2], [5, 0, 0], [0] * 3, [1.0] * 3, [1, 2, 1], [np.inf, np.inf, np.inf]
    )
    assert remove_local_epsilons(graph).label.tolist() == [5, 0]
