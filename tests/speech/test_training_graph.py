from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.graphs.training_graph import TrainingGraphs
from natgrad.speech.symbols import Symbols
from tests.speech.toy_graphs import (
    World,
    assert_same,
    assert_self_loops_are_right,
    paths,
    spoken,
    world,
)

# Variants, homophones, a word that begins another, words of one phone, and one of silence itself.
ENTRIES = "A:AH, A:EY/0.25, B:B EY, BE:B EY B, TWO:T UW, TO:T UW/0.5, TO:T AH, HUSH:SIL"
SCALE = 0.1


def graphs(world: World) -> TrainingGraphs:
    return TrainingGraphs(world.lexicon, world.words, world.tree, world.states, SCALE)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["A", "B", "BE", "TWO", "TO", "HUSH"]), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_graph_accepts_exactly_all_ways_to_say_the_words(
    words: list[str], triphones: bool, marks_position: bool
) -> None:
    toy = world(ENTRIES, triphones=triphones, marks_position=marks_position)
    graph = graphs(toy).graph(words)
    expected = list(spoken(toy, tuple(words), SCALE))
    most = max(len(path.labels) for path in expected)
    assert_same(list(paths(graph, most + 1)), expected, tolerance=1e-4)
    assert_self_loops_are_right(graph, toy, SCALE)


def test_word_is_on_the_arc_that_enters_its_first_phone() -> None:
    toy = world(ENTRIES, triphones=True)
    graph = graphs(toy).graph(["BE", "A"])
    marked = graph.word > 0
    first = toy.states.position[graph.label[marked] - 1] == 0
    marks = [toy.phones.mark_of(p) for p in toy.states.phone[graph.label[marked] - 1].tolist()]
    assert first.all()
    assert set(marks) == {"_B", "_S"}


@pytest.mark.parametrize("triphones", [False, True])
def test_graph_has_no_epsilons_and_no_dead_ends(triphones: bool) -> None:
    graph = graphs(world(ENTRIES, triphones=triphones)).graph(["TO", "A", "B"])
    assert graph.label.min() > 0
    assert (np.diff(graph.first_arc) > 0).all()
    assert set(graph.target.tolist()) == set(range(1, graph.num_states))


def test_graphs_are_the_same_after_pickling() -> None:
    here = graphs(world(ENTRIES, triphones=True))
    before = here.graph(["TO", "BE"])
    there = pickle.loads(pickle.dumps(here)).graph(["TO", "BE"])
    for name in ("first_arc", "label", "word", "weight", "target", "final"):
        np.testing.assert_array_equal(getattr(before, name), getattr(there, name))


def test_unknown_word_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="word GIRAFFE is not in the lexicon"):
        graphs(world(ENTRIES, triphones=False)).graph(["A", "GIRAFFE"])


def test_word_without_a_number_is_refused_by_name() -> None:
    toy = world(ENTRIES, triphones=False)
    made = TrainingGraphs(toy.lexicon, Symbols(["A"]), toy.tree, toy.states)
    with pytest.raises(ValueError, match="word BE has no number"):
        made.graph(["A", "BE"])


def test_sound_without_a_model_is_refused_with_its_word() -> None:
    toy, other = world(ENTRIES, triphones=False), world("A:AH, SHOE:SH UW", triphones=False)
    made = TrainingGraphs(other.lexicon, other.words, toy.tree, toy.states)
    with pytest.raises(ValueError, match=r"word SHOE is pronounced SH UW, .*no sound SH"):
        made.graph(["SHOE"])


def test_utterance_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="without words has no training graph"):
        graphs(world(ENTRIES, triphones=False)).graph([])


def test_states_of_another_tree_are_refused() -> None:
    toy, other = world(ENTRIES, triphones=False), world(ENTRIES, triphones=True)
    made = TrainingGraphs(toy.lexicon, toy.words, other.tree, toy.states)
    with pytest.raises(ValueError, match=r"which the HMM states do not have there"):
        made.graph(["BE", "TWO"])
