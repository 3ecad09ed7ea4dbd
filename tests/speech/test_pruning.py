"""Pruning against the relative entropy, summed over all words."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import NgramModel, log_probabilities
from natgrad.speech.lm.pruning import losses_of_ngrams, prune, shares_in_text

LETTERS = st.lists(st.sampled_from("ABCDE"), min_size=1, max_size=8).map(" ".join)
TEXTS = st.lists(LETTERS, min_size=2, max_size=8)


def distribution(model: NgramModel, history: Sequence[int]) -> np.ndarray:
    words = np.arange(1, len(model.vocabulary))
    return np.exp(log_probabilities(model, [history] * len(words), words))


def literal_loss(model: NgramModel, ngram: tuple[int, ...], share: float) -> float:
    """The relative entropy after the n-gram's history, for the n-gram's own sake."""
    history, order = ngram[:-1], len(ngram)
    p = distribution(model, history)
    below = distribution(model, history[1:])
    explicit = {
        tuple(other.tolist())[-1] - 1
        for other in model.orders[order - 1].ngrams
        if tuple(other.tolist())[:-1] == history
    } - {ngram[-1] - 1}
    q = np.array([p[word] if word in explicit else 0.0 for word in range(len(p))])
    rest = [word for word in range(len(p)) if word not in explicit]
    q[rest] = (1 - q.sum()) * below[rest] / below[rest].sum()
    return share * float(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 1e-30))


@given(TEXTS, st.integers(2, 3), st.sampled_from([None, "<unk>"]))
def test_losses_are_relative_entropies(text: list[str], order: int, unknown: str | None) -> None:
    model = estimate(text, 4, order, unknown, discounts=SMALL_TEXT_DISCOUNTS)
    shares = shares_in_text(model, text)
    expected = [
        [
            literal_loss(model, tuple(ngram.tolist()), shares[length - 2][prefix])
            for ngram, prefix in zip(
                model.orders[length - 1].ngrams, model.prefixes(length), strict=True
            )
        ]
        for length in range(2, order + 1)
    ]
    if order == 3:  # what begins a longer n-gram stays as long as that
        for prefix, loss in zip(model.prefixes(3), expected[1], strict=True):
            expected[0][prefix] = max(expected[0][prefix], loss)
    for found, literal in zip(losses_of_ngrams(model, shares), expected, strict=True):
        np.testing.assert_allclose(found, literal, rtol=1e-3, atol=1e-6)


def test_shares_are_relative_frequencies_in_the_text() -> None:
    text = ["A B A B", "B A", "A C B"]
    model = estimate(text, ["A", "B"], 3, None, SMALL_TEXT_DISCOUNTS)
    tokens = [["<s>", *sentence.split(), "</s>"] for sentence in text]
    num_tokens = sum(map(len, tokens))
    for length, shares in enumerate(shares_in_text(model, text), start=1):
        for ngram, share in zip(model.orders[length - 1].ngrams, shares, strict=True):
            names = [model.vocabulary.name(number) for number in ngram]
            times = sum(
                sentence[first : first + length] == names
                for sentence in tokens
                for first in range(len(sentence))
            )
            assert share == pytest.approx(times / num_tokens)


@given(
    TEXTS, st.integers(2, 4), st.sampled_from([None, "<unk>"]), st.floats(0, 1), st.booleans(),
    st.data(),
)  # fmt: skip
def test_pruned_model_is_as_small_as_asked_for_and_adds_up_to_one(
    text: list[str],
    order: int,
    unknown: str | None,
    share: float,
    use_text: bool,
    data: st.DataObject,
) -> None:
    model = estimate(text, order=order, unknown=unknown, discounts=SMALL_TEXT_DISCOUNTS)
    least = len(model.orders[0])
    num_ngrams = least + int(share * (model.num_ngrams - least))
    pruned = prune(model, num_ngrams=num_ngrams, text=text if use_text else None)
    assert pruned.num_ngrams <= num_ngrams
    assert pruned.order == order
    assert len(pruned.keys) == order  # so all prefixes are there
    words = st.integers(0, len(model.vocabulary) - 1)
    history = data.draw(st.lists(words, min_size=3, max_size=3))
    assert distribution(pruned, history).sum() == pytest.approx(1.0, abs=1e-4)


def small_model() -> tuple[NgramModel, list[str]]:
    random = np.random.default_rng(0)
    text = [" ".join(random.choice(list("ABCDEF"), 10)) for _ in range(50)]
    return estimate(text, order=3, discounts=SMALL_TEXT_DISCOUNTS), text


def test_ngrams_of_least_loss_go_first() -> None:
    model, text = small_model()
    losses = np.concatenate(losses_of_ngrams(model, shares_in_text(model, text)))
    num_lost = 40
    pruned = prune(model, num_ngrams=model.num_ngrams - num_lost, text=text)
    kept = {tuple(ngram.tolist()) for table in pruned.orders[1:] for ngram in table.ngrams}
    ngrams = [tuple(ngram.tolist()) for table in model.orders[1:] for ngram in table.ngrams]
    limit = np.sort(losses)[num_lost - 1]
    assert kept == {ngram for ngram, loss in zip(ngrams, losses, strict=True) if loss > limit}


def test_threshold_of_zero_keeps_and_of_infinity_leaves_single_words() -> None:
    model, text = small_model()
    assert prune(model, threshold=-1e-9, text=text).num_ngrams == model.num_ngrams
    single = prune(model, threshold=math.inf, text=text)
    assert [len(table) for table in single.orders] == [len(model.orders[0]), 0, 0]
    numbers = range(1, len(model.vocabulary))
    for history, word in itertools.product(numbers, numbers):
        found = log_probabilities(single, [[history]], [word])[0]
        assert found == model.orders[0].log_prob[word - 1]


def test_smaller_thresholds_keep_more() -> None:
    model, text = small_model()
    sizes = [prune(model, threshold=t, text=text).num_ngrams for t in (1e-3, 1e-4, 1e-5)]
    assert sizes[0] < sizes[1] < sizes[2] <= model.num_ngrams


def test_model_small_enough_stays_as_it_is() -> None:
    model, _ = small_model()
    assert prune(model, num_ngrams=model.num_ngrams) is model


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either num_ngrams or threshold"),
        ({"num_ngrams": 100, "threshold": 0.1}, "either num_ngrams or threshold"),
        ({"num_ngrams": 5}, "num_ngrams is 5, but the vocabulary alone has 9"),
        ({"threshold": math.nan}, "threshold is nan; expected a share"),
        ({"threshold": -2.0}, "threshold is -2.0; expected a share"),
    ],
)
def test_wishes_that_contradict_are_refused(options: dict[str, int], message: str) -> None:
    model, _ = small_model()
    with pytest.raises(ValueError, match=message):
        prune(model, **options)  # type: ignore[arg-type]
