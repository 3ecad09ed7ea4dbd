"""Modified Kneser-Ney against its definition, and what holds for every model."""

import itertools
import lzma
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import NgramModel, log_probabilities, log_probability
from natgrad.speech.lm.numbered_text import number_text
from natgrad.speech.lm.perplexity import perplexity

SHARED = Path(__file__).parents[3] / "shared"
TEXT = SHARED / "data" / "librispeech" / "lm" / "text.txt.xz"

Ngram = tuple[str, ...]

LETTERS = st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=8).map(" ".join)
TEXTS = st.lists(LETTERS, min_size=1, max_size=8)
DISCOUNTS = st.tuples(st.floats(0.1, 1), st.floats(0.1, 2), st.floats(0.1, 3))


class Literal:
    """The formulas of Chen and Goodman, n-gram by n-gram."""

    def __init__(self, text: list[str], words: set[str], order: int, unknown: str | None) -> None:
        self.stretches: list[list[str]] = []  # without gaps
        for sentence in text:
            stretch = ["<s>"]
            for word in sentence.split():
                if word in words or unknown:
                    stretch.append(word if word in words else str(unknown))
                else:
                    self.stretches.append(stretch)
                    stretch = []
            self.stretches.append([*stretch, "</s>"])
        self.words = words | {"</s>"} | ({unknown} if unknown else set())
        self.order = order
        self.counts = [self.count(length) for length in range(order + 1)]

    def count(self, length: int) -> dict[Ngram, int]:
        times: Counter[Ngram] = Counter()
        before: defaultdict[Ngram, set[str]] = defaultdict(set)
        times_alone: Counter[Ngram] = Counter()
        for stretch in self.stretches:
            for first in range(len(stretch) - length + 1):
                ngram = tuple(stretch[first : first + length])
                times[ngram] += 1
                if first:
                    before[ngram].add(stretch[first - 1])
                else:
                    times_alone[ngram] += 1
        if length == self.order:
            return dict(times)
        return {ngram: len(before[ngram]) + times_alone[ngram] for ngram in times}

    def probability(self, history: Ngram, word: str, discounts: list[list[float]]) -> float:
        counts = self.counts[len(history) + 1]
        after = {other: counts.get((*history, other), 0) for other in self.words}
        total = sum(after.values())
        below = self.probability(history[1:], word, discounts) if history else 1 / len(self.words)
        if not total:
            return below
        lost = {other: discounts[len(history)][min(count, 3)] for other, count in after.items()}
        return (after[word] - lost[word] + sum(lost.values()) * below) / total


def check_against_literal(
    model: NgramModel, literal: Literal, discounts: list[list[float]]
) -> None:
    histories = {
        ngram[:-1] for counts in literal.counts[1:] for ngram in counts if ngram[-1] != "<s>"
    }
    for history, word in itertools.product(sorted(histories), sorted(literal.words)):
        expected = literal.probability(history, word, discounts)
        found = math.exp(log_probability(model, history, word))
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-30)


@given(TEXTS, st.integers(1, 4), st.integers(1, 5), st.sampled_from([None, "<unk>"]), DISCOUNTS)
def test_probabilities_follow_the_definition(
    text: list[str],
    order: int,
    num_words: int,
    unknown: str | None,
    discounts: tuple[float, float, float],
) -> None:
    model = estimate(text, num_words, order, unknown, discounts)
    words = set(number_text(text).most_frequent(num_words))
    check_against_literal(model, Literal(text, words, order, unknown), [[0.0, *discounts]] * order)


@given(TEXTS, st.integers(1, 4), st.sampled_from([None, "<unk>"]), st.data())
def test_probabilities_add_up_to_one_after_any_history(
    text: list[str], order: int, unknown: str | None, data: st.DataObject
) -> None:
    vocabulary = data.draw(st.sets(st.sampled_from("ABCDEFG"), min_size=1))
    model = estimate(text, vocabulary, order, unknown, SMALL_TEXT_DISCOUNTS)
    words = st.integers(0, len(model.vocabulary) - 1)
    history = data.draw(st.lists(words, min_size=3, max_size=3))
    numbers = np.arange(1, len(model.vocabulary))
    log_prob = log_probabilities(model, [history] * len(numbers), numbers)
    assert np.exp(log_prob).sum() == pytest.approx(1.0, abs=1e-5)


def random_text(num_sentences: int) -> list[str]:
    random = np.random.default_rng(1)
    lengths = random.integers(3, 15, num_sentences)
    return [" ".join(f"W{rank}" for rank in random.zipf(1.5, length)) for length in lengths]


def literal_discounts(counts: dict[Ngram, int]) -> list[float]:
    n = Counter(counts.values())
    y = n[1] / (n[1] + 2 * n[2])
    return [0.0, 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]


def test_begin_of_sentence_is_not_counted_among_the_predicted_words() -> None:
    text = ["A B B C C C D D D D"]
    times = {"A": 1, "B": 2, "C": 3, "D": 4, "</s>": 1}
    discounts = literal_discounts({(word,): count for word, count in times.items()})
    left_over = sum(discounts[min(count, 3)] for count in times.values())
    model = estimate(text, order=1, unknown=None)
    for word, count in times.items():
        expected = (count - discounts[min(count, 3)] + left_over / len(times)) / 11
        assert math.exp(log_probability(model, [], word)) == pytest.approx(expected, rel=1e-5)


def test_discounts_come_from_the_counts_of_counts() -> None:
    text = random_text(500)
    words = {word for sentence in text for word in sentence.split()}
    literal = Literal(text, words, 3, None)
    discounts = [literal_discounts(counts) for counts in literal.counts[1:]]
    model = estimate(text, order=3, unknown=None)
    for *history, word in sorted(literal.counts[3])[::50]:
        expected = literal.probability(tuple(history), word, discounts)
        assert math.exp(log_probability(model, history, word)) == pytest.approx(expected, rel=1e-5)


def test_vocabulary_of_frequent_words_has_discounts_of_all_words() -> None:
    text = random_text(500)
    words = set(number_text(text).most_frequent(30))
    assert min(Literal(text, words, 2, None).counts[1].values()) > 4  # so it has none of its own
    every_word = {word for sentence in text for word in sentence.split()}
    discounts = [
        literal_discounts(counts)
        for counts in (
            Literal(text, every_word, 2, None).counts[1],
            Literal(text, words, 2, None).counts[2],
        )
    ]
    check_against_literal(estimate(text, 30, 2, None), Literal(text, words, 2, None), discounts)


def test_text_too_small_for_discounts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"different 1-grams counted 1, 2, 3, 4 times.*more text"):
        estimate(["YES NO", "NO NO"], order=2)


def test_words_never_seen_have_a_probability() -> None:
    model = estimate(["A B"], ["A", "B", "C"], 2, None, SMALL_TEXT_DISCOUNTS)
    assert -20 < log_probability(model, ["A"], "C") < log_probability(model, ["A"], "B")


def test_vocabulary_can_be_the_most_frequent_of_given_words() -> None:
    text = number_text(["A B C D", "A B C", "A B", "A"])
    assert text.most_frequent(2, among={"B", "D", "Z"}) == ["B", "D"]
    assert text.most_frequent(None, among={"C"}) == ["C"]


def test_order_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="order is 0; expected at least 1"):
        estimate(["A"], order=0)


@pytest.mark.parametrize("vocabulary", [0, []])
def test_empty_vocabulary_is_refused(vocabulary: int | list[str]) -> None:
    with pytest.raises(ValueError, match="the vocabulary is empty"):
        estimate(["A"], vocabulary)


@pytest.mark.parametrize("word", ["B\n", "A B", "", "<eps>"])
def test_what_is_no_word_is_refused_in_a_vocabulary(word: str) -> None:
    with pytest.raises(ValueError, match="cannot be a word of the vocabulary; expected words with"):
        estimate(["A B"], ["A", word], discounts=SMALL_TEXT_DISCOUNTS)


def test_one_string_is_no_vocabulary() -> None:
    with pytest.raises(TypeError, match=r"vocabulary is one string, 'words\.txt'; give a list"):
        estimate(["A B"], "words.txt", discounts=SMALL_TEXT_DISCOUNTS)


def test_fewer_than_no_words_are_refused() -> None:
    with pytest.raises(ValueError, match="num_words is -1; expected at least 0"):
        estimate(["A B"], -1, discounts=SMALL_TEXT_DISCOUNTS)


@pytest.mark.parametrize("discounts", [(1.1, 1, 1), (1, 2.1, 1), (1, 1, 3.1), (-0.1, 1, math.nan)])
def test_discounts_of_more_than_there_is_are_refused(
    discounts: tuple[float, float, float],
) -> None:
    with pytest.raises(ValueError, match="expected them in 0 to 1, 0 to 2, and 0 to 3"):
        estimate(["A B"], discounts=discounts)


@pytest.mark.skipif(not TEXT.exists(), reason="needs ../shared/data/librispeech/lm")
def test_higher_orders_predict_books_better() -> None:
    with lzma.open(TEXT, "rt") as file:
        lines = list(itertools.islice(file, 20_000))
    text = number_text(lines[:-1000])
    values = [perplexity(estimate(text, 5000, order), lines[-1000:]).value for order in (1, 2, 3)]
    assert values[0] > 2 * values[1]
    assert values[1] > 1.02 * values[2]
