from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.graphs.grammar_fst import grammar_graph, restricted_to
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE, log_probability
from natgrad.speech.symbols import Symbols
from tests.speech.toy_grammars import Entries, model_of, random_entries, sentences
from tests.speech.toy_graphs import Accepted, assert_same

WORDS = ("A", "B", "C")
NUMBERS = Symbols(["C", "B", "UNUSED", "A"])  # in an order of their own
MOST_WORDS = 3

# "A B" is never continued, yet has a back-off weight; "B C" is continued, "C" alone is not.
HALF = math.log(0.5)
TRIGRAMS: Entries = {
    (BEGIN,): (IMPOSSIBLE, -0.1), (END,): (-1.0, IMPOSSIBLE), ("A",): (-1.1, -0.2),
    ("B",): (-1.2, -0.3), ("C",): (-1.3, -0.4),
    (BEGIN, "A"): (HALF, -0.5), ("A", "B"): (HALF, -0.6), ("B", "C"): (HALF, -0.7),
    ("A", END): (HALF, 0.0),
    (BEGIN, "A", "B"): (-0.15, 0.0), ("B", "C", "A"): (-0.25, 0.0), ("B", "C", END): (-0.35, 0.0),
}  # fmt: skip


def paths(graph: Graph, most_words: int, back_off: int) -> list[Accepted]:
    found = []
    stack: list[tuple[int, tuple[int, ...], float]] = [(graph.start, (), 0.0)]
    while stack:
        state, words, cost = stack.pop()
        if math.isfinite(graph.final[state]):
            found.append(Accepted((), words, cost + float(graph.final[state])))
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            label, word = int(graph.label[arc]), int(graph.word[arc])
            assert word == (0 if label == back_off else label)
            now = words + (word,) * (word > 0)
            if len(now) <= most_words:
                stack.append((int(graph.target[arc]), now, cost + float(graph.weight[arc])))
    return found


def assert_accepts_its_sentences(entries: Entries) -> None:
    found = paths(grammar_graph(model_of(entries), NUMBERS), MOST_WORDS, back_off=len(NUMBERS))
    expected = [
        Accepted((), tuple(NUMBERS.number(word) for word in words), cost)
        for words, cost in sentences(entries, MOST_WORDS)
    ]
    assert_same(found, expected, tolerance=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_each_sentence_has_each_of_its_ways_to_back_off(order: int, seed: int) -> None:
    assert_accepts_its_sentences(random_entries(WORDS, order, seed))


def test_history_without_continuations_backs_off_at_its_weight() -> None:
    assert_accepts_its_sentences(TRIGRAMS)


def test_cheapest_way_is_the_probability_of_the_sentence() -> None:
    model = model_of(TRIGRAMS)
    best: dict[tuple[int, ...], float] = {}
    for _, words, cost in paths(grammar_graph(model, NUMBERS), MOST_WORDS, len(NUMBERS)):
        best[words] = min(cost, best.get(words, math.inf))
    assert len(best) == 1 + 3 + 9 + 27
    for numbers, cost in best.items():
        sentence = [BEGIN, *(NUMBERS.name(number) for number in numbers), END]
        expected = sum(
            log_probability(model, sentence[:place], sentence[place])
            for place in range(1, len(sentence))
        )
        assert cost == pytest.approx(-expected, abs=1e-5)


def test_only_continued_histories_are_states() -> None:
    # The empty one, <s>, A, B; <s> A and B C.
    assert grammar_graph(model_of(TRIGRAMS), NUMBERS).num_states == 6


def test_history_that_cannot_be_backed_off_from_has_no_such_arc() -> None:
    # From "A" one can go on to "B" only, and from "B" not at all.
    entries: Entries = {
        (BEGIN,): (IMPOSSIBLE, -0.1), (END,): (-1.0, 0.0), ("A",): (-1.1, IMPOSSIBLE),
        ("B",): (-1.2, IMPOSSIBLE), ("C",): (-1.3, -0.2), ("A", "B"): (-0.3, 0.0),
    }  # fmt: skip
    graph = grammar_graph(model_of(entries), NUMBERS)
    assert np.bincount(graph.label).tolist() == [0, NUMBERS.number("C"), 0, 0, 1, 1]
    assert graph.weight.max() < 10.0


def test_words_without_a_number_are_named() -> None:
    with pytest.raises(ValueError, match=r"2 words of the language model have no number: B C\."):
        grammar_graph(model_of(TRIGRAMS), Symbols(["A"]))


def test_restricted_model_has_the_ngrams_of_the_words_and_no_other() -> None:
    restricted = restricted_to(model_of(TRIGRAMS), ["A", "B", "D"])
    expected = {ngram: numbers for ngram, numbers in TRIGRAMS.items() if "C" not in ngram}
    assert list(restricted.vocabulary) == [BEGIN, END, "A", "B"]
    name = restricted.vocabulary.name
    found = {
        tuple(name(word) for word in ngram): (log_prob, backoff)
        for table in restricted.orders
        for ngram, log_prob, backoff in zip(
            table.ngrams.tolist(), table.log_prob, table.backoff, strict=True
        )
    }
    assert found.keys() == expected.keys()
    for ngram, numbers in expected.items():
        np.testing.assert_allclose(found[ngram], numbers, rtol=1e-6)
    assert_accepts_its_sentences(expected)


def test_model_can_lose_all_ngrams_of_its_highest_order() -> None:
    restricted = restricted_to(model_of(TRIGRAMS), ["C"])
    assert [len(table) for table in restricted.orders] == [3, 0, 0]
    found = paths(grammar_graph(restricted, NUMBERS), 1, len(NUMBERS))
    expected = [Accepted((), (), 1.1), Accepted((), (NUMBERS.number("C"),), 0.1 + 1.3 + 0.4 + 1.0)]
    assert_same(found, expected, tolerance=1e-4)
