from __future__ import annotations

import kaldifst
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.graphs.fst import from_fst, graph_of_arcs, to_fst
from natgrad.speech.graphs.graph import Graph
from tests.speech.toy_graphs import random_graph

ARRAYS = ("first_arc", "label", "word", "weight", "target", "final")


def assert_equal(one: Graph, other: Graph) -> None:
    assert one.start == other.start
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_graph_is_the_same_after_openfst(num_states: int, num_arcs: int, seed: int) -> None:
    graph = random_graph(num_states, num_arcs, seed)
    assert_equal(from_fst(to_fst(graph)), graph)


def test_openfst_reads_states_arcs_and_costs_as_they_are() -> None:
    graph = graph_of_arcs([1, 0], [3, 1], [0, 2], [0.5, 1.5], [0, 1], [np.inf, 0.25], start=1)
    lines = [line.split() for line in str(to_fst(graph)).splitlines()]
    assert lines == [["1", "0", "3", "0", "0.5"], ["1", "0.25"], ["0", "1", "1", "2", "1.5"]]


def test_epsilons_are_counted_for_composition() -> None:
    fst = to_fst(graph_of_arcs([0, 0, 1], [0, 0, 4], [1, 0, 0], [0.0] * 3, [1] * 3, [np.inf, 0.0]))
    counts = [kaldifst.StdConstFst(fst).num_input_epsilons(state) for state in (0, 1)]
    assert counts == [2, 0]


def test_transducer_without_states_is_a_graph_without_states() -> None:
    graph = from_fst(kaldifst.StdVectorFst())
    assert (graph.num_states, graph.num_arcs) == (0, 0)


def test_arcs_of_a_state_keep_their_order() -> None:
    graph = graph_of_arcs([2, 0, 2, 0], [1, 2, 3, 4], [0] * 4, [0.0] * 4, [1] * 4, [0.0] * 3)
    assert graph.label.tolist() == [2, 4, 1, 3]
    assert graph.first_arc.tolist() == [0, 2, 2, 4]
