"""Back-off models against the definition, word by word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import NgramModel, NgramTable, log_probabilities, log_probability
from natgrad.speech.lm.pruning import prune
from natgrad.speech.symbols import Symbols

LETTERS = st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=8).map(" ".join)
TEXTS = st.lists(LETTERS, min_size=1, max_size=8)


def literal(model: NgramModel, history: tuple[int, ...], word: int) -> float:
    """The definition of a back-off model, by dictionaries."""
    tables = [
        {tuple(ngram.tolist()): place for place, ngram in enumerate(table.ngrams)}
        for table in model.orders
    ]
    history = history[len(history) - min(len(history), model.order - 1) :]
    place = tables[len(history)].get((*history, word))
    if place is not None:
        return float(model.orders[len(history)].log_prob[place])
    place = tables[len(history) - 1].get(history)
    weight = 0.0 if place is None else float(model.orders[len(history) - 1].backoff[place])
    return weight + literal(model, history[1:], word)


@given(TEXTS, st.integers(1, 4), st.integers(0, 30), st.data())
def test_log_probabilities_follow_the_definition(
    text: list[str], order: int, num_lost: int, data: st.DataObject
) -> None:
    whole = estimate(text, order=order, discounts=SMALL_TEXT_DISCOUNTS)
    least = len(whole.vocabulary) - 1
    model = prune(whole, num_ngrams=max(least, whole.num_ngrams - num_lost))
    numbers = st.integers(1, len(model.vocabulary) - 1)
    queries = data.draw(st.lists(st.lists(numbers, min_size=5, max_size=5), min_size=1))
    for length in range(5):
        histories = np.array([query[5 - length - 1 : -1] for query in queries], np.int32)
        words = np.array([query[-1] for query in queries], np.int32)
        expected = [
            literal(model, tuple(query[5 - length - 1 : -1]), query[-1]) for query in queries
        ]
        found = log_probabilities(model, histories, words)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_no_word_hides_what_is_before_it() -> None:
    model = estimate(["A B C", "B C A", "A A C"], order=3, discounts=SMALL_TEXT_DISCOUNTS)
    a, b, c = model.numbers(["A", "B", "C"]).tolist()
    hidden, short, whole = log_probabilities(model, [[a, 0, b], [0, 0, b], [0, a, b]], [c, c, c])
    assert hidden == short
    assert hidden == log_probability(model, ["B"], "C")
    assert whole == log_probability(model, ["A", "B"], "C") != short


def test_unknown_words_are_the_unknown_word() -> None:
    model = estimate(["A B", "C B"], ["A", "B"], 2, discounts=SMALL_TEXT_DISCOUNTS)
    assert log_probability(model, ["Z"], "Z") == log_probability(model, ["<unk>"], "<unk>")


def test_unknown_word_is_refused_by_a_model_that_has_none() -> None:
    model = estimate(["A B"], order=2, unknown=None, discounts=SMALL_TEXT_DISCOUNTS)
    with pytest.raises(ValueError, match="the word 'Z' is not in the vocabulary"):
        log_probability(model, ["A"], "Z")
    assert log_probability(model, ["A", "Z"], "B") == log_probability(model, [], "B")


@pytest.mark.parametrize("number", [0, 5, -1])
def test_number_that_is_no_word_is_refused(number: int) -> None:
    model = estimate(["A B"], order=2, unknown=None, discounts=SMALL_TEXT_DISCOUNTS)
    with pytest.raises(ValueError, match=f"word number {number} is not in the vocabulary"):
        log_probabilities(model, [[1], [1]], [2, number])


def test_histories_that_do_not_match_the_words_are_refused() -> None:
    model = estimate(["A B"], order=2, discounts=SMALL_TEXT_DISCOUNTS)
    with pytest.raises(ValueError, match=r"shapes \(1, 2\) and \(3,\); expected \(N, K\)"):
        log_probabilities(model, [[1, 2]], [2, 2, 2])


def table(*ngrams: tuple[int, ...]) -> NgramTable:
    zeros = np.zeros(len(ngrams), np.float32)
    return NgramTable(np.array(ngrams, np.int32), zeros, zeros)


WORDS = Symbols(["<s>", "</s>", "A"])


def test_places_of_ngrams_that_are_not_there_are_minus_one() -> None:
    # The only history is the first word, and every word follows it.
    model = NgramModel(WORDS, (table((1,), (2,), (3,)), table((1, 1), (1, 2), (1, 3))))
    pairs = np.array([[1, 1], [1, 3], [2, 1], [3, 3], [0, 1], [1, 0], [1, 4], [4, 1]], np.int32)
    assert model.places(pairs).tolist() == [0, 2, -1, -1, -1, -1, -1, -1]
    assert model.places(pairs[:, :0]).tolist() == [0] * 8


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([table((1,), (3,), (2,))], "each word of the vocabulary once, in order"),
        ([], "each word of the vocabulary once, in order"),
        ([table((1,), (2,), (3,)), table((1,), (2,))], r"2-grams has arrays of the shapes"),
        ([table((1,), (2,), (3,)), table((3, 2), (1, 3))], "must differ and be sorted"),
        ([table((1,), (2,), (3,)), table((1, 3), (1, 3))], "must differ and be sorted"),
        (
            [table((1,), (2,), (3,)), table((1, 3)), table((1, 3, 3), (3, 3, 2))],
            "'A A </s>' is there but not its prefix 'A A'",
        ),
    ],
)
def test_tables_that_do_not_fit_are_refused(tables: list[NgramTable], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _ = NgramModel(WORDS, tuple(tables)).keys


def test_vocabulary_without_begin_of_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks <s>"):
        NgramModel(Symbols(["</s>", "A"]), (table((1,), (2,)),))
