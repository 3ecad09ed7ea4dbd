from __future__ import annotations

import math

import pytest

from natgrad.speech.graphs.lexicon_fst import BOUNDARY, LOOP, lexicon_graph, word_symbols
from tests.speech.toy_graphs import paths, world

ENTRIES = (
    "A:AH, A:EY/0.25, B:B EY, BE:B EY B, TWO:T UW, TO:T UW/0.5, TOO:T UW, HUSH:SIL, HOLD:SIL SIL, "
    "AH:AH SIL"
)


# A silence between words and then a word, or a word that begins with silence.
SILENCE_FIRST = ("A:AH, I:AH, HA:SIL AH", "AH:AH, BE:B, BEE:B, HAB:SIL AH B")


@pytest.mark.parametrize("marks_position", [False, True])
@pytest.mark.parametrize("entries", [ENTRIES, *SILENCE_FIRST])
def test_any_input_has_one_reading(entries: str, marks_position: bool) -> None:
    toy = world(entries, triphones=False, marks_position=marks_position)
    graph, _ = lexicon_graph(toy.lexicon, toy.words, toy.phones, toy.lexicon.words)
    inputs = [path.labels for path in paths(graph, most_labels=7)]
    assert len(inputs) > 100
    assert len(set(inputs)) == len(inputs)


def test_phones_without_symbols_are_those_of_the_words_with_silences_between() -> None:
    toy = world(ENTRIES, triphones=False)
    graph, _ = lexicon_graph(toy.lexicon, toy.words, toy.phones, ["A", "TO"])
    number = toy.phones.symbols.number
    said = {
        (tuple(label for label in path.labels if label < len(toy.phones)), path.words): path.cost
        for path in paths(graph, most_labels=6)
    }
    phones = tuple(number(name) for name in ("SIL", "EY_S", "SIL", "T_B", "UW_E"))
    words = tuple(toy.words.number(word) for word in ("A", "TO"))
    assert said[phones, words] == pytest.approx(-math.log(0.3 * 0.25 * 0.3 * 0.5 * 0.7), rel=1e-5)


def test_only_what_is_not_alone_ends_in_a_symbol() -> None:
    toy = world("A:AH, ALL:AH L, TWO:T UW, TO:T UW", triphones=False, marks_position=False)
    for wanted, num_symbols in ((["ALL", "TO"], 1), (["A", "ALL"], 2), (["TO", "TWO"], 3)):
        assert lexicon_graph(toy.lexicon, toy.words, toy.phones, wanted).num_symbols == num_symbols


def test_backing_off_is_possible_between_words_only() -> None:
    toy = world(ENTRIES, triphones=False)
    graph, _ = lexicon_graph(toy.lexicon, toy.words, toy.phones, toy.lexicon.words)
    (arc,) = (graph.label == len(toy.phones)).nonzero()[0]
    assert graph.first_arc[LOOP] <= arc < graph.first_arc[LOOP + 1]
    assert (graph.target[arc], graph.word[arc]) == (LOOP, len(toy.words))
    assert graph.start == BOUNDARY


def test_words_are_numbered_in_order() -> None:
    toy = world("NO:N OW, A:AH, YES:Y EH S", triphones=False)
    assert list(word_symbols(toy.lexicon)) == ["A", "NO", "YES"]
