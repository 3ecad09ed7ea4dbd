from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.decoding.search_graph import SearchGraph, SearchGraphError
from natgrad.speech.graphs.graph import Graph

from .random_graphs import PDF_OF_LABEL, random_graph


def chain_of_epsilons(num_states: int, closed: bool = False) -> Graph:
    """State to state by epsilon arcs, and (if closed) from the last to the first."""
    num_arcs = num_states if closed else num_states - 1
    return Graph(
        start=0,
        first_arc=np.minimum(np.arange(num_states + 1), num_arcs),
        label=np.zeros(num_arcs, dtype=np.int32),
        word=np.zeros(num_arcs, dtype=np.int32),
        weight=np.ones(num_arcs, dtype=np.float32),
        target=((np.arange(num_arcs) + 1) % num_states).astype(np.int32),
        final=np.zeros(num_states, dtype=np.float32),
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 300))
def test_arcs_are_parted_and_sorted_and_none_is_lost(
    seed: int, num_states: int, num_arcs: int
) -> None:
    graph = random_graph(seed, num_states, num_arcs)
    made = SearchGraph.of(graph, PDF_OF_LABEL)
    arrays = made.arrays
    for state in range(num_states):
        arcs = np.arange(graph.first_arc[state], graph.first_arc[state + 1])
        arcs = arcs[np.lexsort((arcs, graph.weight[arcs]))]
        emitting, epsilon = arcs[graph.label[arcs] > 0], arcs[graph.label[arcs] == 0]
        mine = slice(*arrays.first_emitting[state : state + 2])
        np.testing.assert_array_equal(made.emitting_origin[mine], emitting)
        np.testing.assert_array_equal(arrays.emitting["weight"][mine], graph.weight[emitting])
        np.testing.assert_array_equal(arrays.emitting["target"][mine], graph.target[emitting])
        pdfs = PDF_OF_LABEL[graph.label[emitting]]
        np.testing.assert_array_equal(arrays.emitting["pdf"][mine], pdfs)
        mine = slice(*arrays.first_epsilon[state : state + 2])
        np.testing.assert_array_equal(made.epsilon_origin[mine], epsilon)
        np.testing.assert_array_equal(arrays.epsilon["weight"][mine], graph.weight[epsilon])
        np.testing.assert_array_equal(arrays.epsilon["target"][mine], graph.target[epsilon])
        assert (arrays.level[state] >= 0) == (len(epsilon) > 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_epsilon_arcs_lead_to_higher_levels_only(seed: int) -> None:
    graph = random_graph(seed, 12, 80)
    made = SearchGraph.of(graph, PDF_OF_LABEL)
    source = np.repeat(np.arange(12), np.diff(graph.first_arc))
    for arc in np.flatnonzero(graph.label == 0):
        level = made.arrays.level[graph.target[arc]]
        assert level == -1 or level > made.arrays.level[source[arc]]
    assert made.num_levels == made.arrays.level.max() + 1


def test_levels_count_the_epsilons_in_a_row() -> None:
    made = SearchGraph.of(chain_of_epsilons(5), PDF_OF_LABEL)
    assert made.arrays.level.tolist() == [0, 1, 2, 3, -1]


def test_cycle_of_epsilons_is_refused() -> None:
    with pytest.raises(SearchGraphError, match="cycle of epsilon arcs"):
        SearchGraph.of(chain_of_epsilons(5, closed=True), PDF_OF_LABEL)


def test_epsilons_without_end_are_refused() -> None:
    with pytest.raises(SearchGraphError, match="32768 epsilon arcs follow one another"):
        SearchGraph.of(chain_of_epsilons(32769), PDF_OF_LABEL)


def test_graph_of_another_model_is_refused() -> None:
    graph = random_graph(1)
    with pytest.raises(SearchGraphError, match=r"labels are .* pdf_of_label has 3 entries"):
        SearchGraph.of(graph, PDF_OF_LABEL[:3])
    with pytest.raises(SearchGraphError, match="label 2 has the pdf -1"):
        SearchGraph.of(graph, np.array([-1, 0, -1, 0, 0, 0], dtype=np.int32))


def test_broken_graphs_are_refused() -> None:
    graph = random_graph(1)
    bad = graph.weight.copy()
    bad[3] = np.nan
    with pytest.raises(SearchGraphError, match="arc 3 has the weight nan"):
        SearchGraph.of(replace(graph, weight=bad), PDF_OF_LABEL)
    with pytest.raises(SearchGraphError, match="to 9, but the graph has 4"):
        SearchGraph.of(replace(graph, target=np.full_like(graph.target, 9)), PDF_OF_LABEL)
    with pytest.raises(SearchGraphError, match="start state is 4, of 4"):
        SearchGraph.of(replace(graph, start=4), PDF_OF_LABEL)
    for bad_cost in (np.nan, -np.inf):
        final = graph.final.copy()
        final[2] = bad_cost
        with pytest.raises(SearchGraphError, match=f"to end in state 2 costs {bad_cost}"):
            SearchGraph.of(replace(graph, final=final), PDF_OF_LABEL)
