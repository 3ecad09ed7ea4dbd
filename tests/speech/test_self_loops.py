from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.self_loops import TransitionCosts, add_self_loops
from tests.speech.toy_graphs import (
    assert_same,
    assert_self_loops_are_right,
    paths,
    random_graph,
    world,
)

TOY = world("A:AH, B:B", triphones=False, marks_position=False)
SCALE = 0.7
COSTS = TransitionCosts.of(TOY.states, SCALE)
MANY = 1000


@settings(max_examples=120, deadline=None)
@given(st.integers(2, 8), st.integers(1, 16), st.integers(0, 2**32 - 1))
def test_paths_are_the_same_but_for_loops_and_costs_of_leaving(
    num_states: int, num_arcs: int, seed: int
) -> None:
    graph = random_graph(num_states, num_arcs, seed, acyclic=True)
    looped = add_self_loops(graph, COSTS)
    leaving = -SCALE * np.log(1.0 - TOY.states.self_loop)
    expected = [
        path._replace(cost=path.cost + sum(leaving[label - 1] for label in path.labels))
        for path in paths(graph, MANY)
    ]
    assert_same(list(paths(looped, MANY)), expected, tolerance=1e-4)
    assert_self_loops_are_right(looped, TOY, SCALE)


@pytest.mark.parametrize("scale", [-0.1, np.nan, np.inf])
def test_scale_that_gives_no_costs_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match=f"self_loop_scale is {scale}; it must be finite"):
        TransitionCosts.of(TOY.states, scale)


@pytest.mark.parametrize("staying", [0.0, 1.0, np.nan])
def test_state_that_cannot_be_stayed_in_or_left_is_refused_by_number(staying: float) -> None:
    self_loop = TOY.states.self_loop.copy()
    self_loop[2] = staying
    with pytest.raises(ValueError, match=f"HMM state 2 is stayed in with probability {staying}"):
        TransitionCosts.of(replace(TOY.states, self_loop=self_loop), SCALE)


def test_state_entered_with_one_label_is_not_split() -> None:
    graph = graph_of_arcs([0, 0], [3, 3], [0, 1], [0.0, 0.0], [1, 1], [np.inf, 0.0])
    looped = add_self_loops(graph, COSTS)
    assert (looped.num_states, looped.num_arcs) == (2, 3)


def test_state_is_copied_only_where_that_takes_no_more_arcs() -> None:
    entering = [(0, 1, 1), (0, 2, 1)]  # source, label, target
    for num_leaving, num_states, num_arcs in ((1, 4, 7), (2, 4, 9), (3, 5, 10)):
        leaving = [(1, 3, 2)] * num_leaving
        source, label, target = zip(*entering, *leaving, strict=True)
        nothing = [0] * len(source)
        final = [np.inf, np.inf, 0.0]
        graph = graph_of_arcs(source, label, nothing, nothing, target, final)
        looped = add_self_loops(graph, COSTS)
        assert (looped.num_states, looped.num_arcs) == (num_states, num_arcs)


def test_start_that_is_entered_again_has_no_self_loop_at_first() -> None:
    graph = graph_of_arcs([0, 1], [1, 2], [0, 0], [0.0, 0.0], [1, 0], [0.0, np.inf])
    looped = add_self_loops(graph, COSTS)
    first = slice(*looped.first_arc[looped.start : looped.start + 2])
    assert looped.start not in looped.target[first]
    assert_self_loops_are_right(looped, TOY, SCALE)
