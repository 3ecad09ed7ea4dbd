"""Smaller language models: the n-grams that matter least are left out (Stolcke, 1998).

Without hw, the history h backs off for w; its back-off weight alpha becomes alpha', so that
probabilities add up to one again. The relative entropy of the model without hw to that with it is

    d(hw) = p(h) [p(w|h) (log p(w|h) - log alpha' p(w|h')) + u(h) (log alpha - log alpha')]

where u(h) is the probability of all words without an n-gram after h, and h' is h without its first
word. An n-gram stays where d, or that of a longer n-gram that begins with it, is large enough.

Stolcke takes p(h) from the model. In a Kneser-Ney model the lower orders are not the frequencies of
words: so it is better to count h in the text that the model is from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.lm.ngram import BEGIN, END, NgramModel, NgramTable, Places, log_probabilities
from natgrad.speech.lm.numbered_text import NumberedText, number_text

__all__ = ["prune"]

Floats = NDArray[np.float64]

SMALLEST_MASS = 1e-6  # what is below is not told from zero: log-probabilities are in float32


def prune(
    model: NgramModel,
    *,
    num_ngrams: int | None = None,
    threshold: float | None = None,
    text: Iterable[str] | Path | NumberedText | None = None,
) -> NgramModel:
    """Return a smaller model that is nearly as good; the vocabulary stays.

    >>> from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
    >>> text = ["A B", "A B", "A B", "B B"]
    >>> model = estimate(text, order=2, discounts=SMALL_TEXT_DISCOUNTS)
    >>> prune(model, num_ngrams=7, text=text).num_ngrams
    7

    Args:
        model: probabilities after each history add up to one.
        num_ngrams: how many to keep at most, of all orders, those of order 1 among them; or else
        threshold: those whose loss raises the perplexity by less than this share go.
        text: that the model is from, or like it: says how probable each history is. By default,
            the model does, which is not as good.
    """
    if (num_ngrams is None) == (threshold is None):
        raise ValueError("give either num_ngrams or threshold (and not both)")
    if threshold is not None and not threshold > -1:
        raise ValueError(f"threshold is {threshold}; expected a share of the perplexity, as 1e-7")
    if num_ngrams is not None and num_ngrams < len(model.orders[0]):
        raise ValueError(
            f"num_ngrams is {num_ngrams}, but the vocabulary alone has {len(model.orders[0])}; "
            "ask for more n-grams, or take fewer words"
        )
    if model.order == 1 or (num_ngrams is not None and num_ngrams >= model.num_ngrams):
        return model
    shares = shares_in_text(model, text) if text is not None else shares_in_model(model)
    losses = losses_of_ngrams(model, shares)
    if threshold is not None:
        limit = np.log1p(threshold)
        return _without(model, [loss >= limit for loss in losses])
    assert num_ngrams is not None
    in_all = np.concatenate(losses)
    num_lost = model.num_ngrams - num_ngrams
    limit = np.partition(in_all, num_lost - 1)[num_lost - 1]
    return _without(model, [loss > limit for loss in losses])


def shares_in_text(
    model: NgramModel, sentences: Iterable[str] | Path | NumberedText
) -> list[Floats]:
    """Return for each order but the highest the relative frequency of its n-grams in a text."""
    text = number_text(sentences).renumbered(model.vocabulary, model.unknown)
    shares = []
    places = np.zeros(len(text.numbers), np.int64)
    for order, table in enumerate(model.orders[:-1], start=1):
        if order > 1:
            places = np.where(text.numbers == text.begin, -1, np.roll(places, 1))
        places = model.extend(places, order, text.numbers)
        shares.append(np.bincount(places[places >= 0], minlength=len(table)) / len(places))
    return shares


def shares_in_model(model: NgramModel) -> list[Floats]:
    """Return for each order but the highest the probability that the model gives its n-grams."""
    share = np.exp(model.orders[0].log_prob.astype(np.float64))
    begin, end = (model.vocabulary.number(name) - 1 for name in (BEGIN, END))
    share[begin] = share[end]  # there are as many
    shares = [share]
    for order in range(2, model.order):
        after_prefix = np.exp(model.orders[order - 1].log_prob.astype(np.float64))
        shares.append(shares[-1][model.prefixes(order)] * after_prefix)
    return shares


def losses_of_ngrams(model: NgramModel, shares: Sequence[Floats]) -> list[Floats]:
    """Return for each order but the first the loss of its n-grams, or of ones that need them."""
    losses = []
    for order in range(2, model.order + 1):
        table = model.orders[order - 1]
        shorter = log_probabilities(model, table.ngrams[:, 1:-1], table.ngrams[:, -1])
        losses.append(_loss(table, model.prefixes(order), shares[order - 2], shorter))
    for order in range(model.order, 2, -1):
        np.maximum.at(losses[order - 3], model.prefixes(order), losses[order - 2])
    return losses


def _loss(table: NgramTable, prefixes: Places, shares: Floats, shorter: Floats) -> Floats:
    """Return d(hw) of the n-grams of one order; `shorter` is log p(w|h')."""
    longer = table.log_prob.astype(np.float64)
    unseen, unseen_below = _left_over(longer, shorter, prefixes, len(shares))
    u, below = unseen[prefixes], unseen_below[prefixes]
    log_alpha = np.log(u / below)
    p = np.exp(longer)
    new_log_alpha = np.log((u + p) / (below + np.exp(shorter)))
    d: Floats = p * (longer - new_log_alpha - shorter) + u * (log_alpha - new_log_alpha)
    return shares[prefixes] * d


def _left_over(
    longer: Floats, shorter: Floats, prefixes: Places, num_histories: int
) -> tuple[Floats, Floats]:
    """Return what words without an n-gram after h have of p(.|h), and of p(.|h')."""
    left, left_below = (
        1 - np.bincount(prefixes, np.exp(values), minlength=num_histories)
        for values in (longer, shorter)
    )
    return np.maximum(left, SMALLEST_MASS), np.maximum(left_below, SMALLEST_MASS)


def _without(model: NgramModel, stays: Sequence[NDArray[np.bool_]]) -> NgramModel:
    """Return the model with those n-grams, of the orders from 2, that stay."""
    smaller = NgramModel(model.vocabulary, model.orders[:1])
    for table, stay in zip(model.orders[1:], stays, strict=True):
        ngrams, log_prob = table.ngrams[stay], table.log_prob[stay]
        shorter = log_probabilities(smaller, ngrams[:, 1:-1], ngrams[:, -1])
        histories = smaller.orders[-1]
        left, left_below = _left_over(
            log_prob.astype(np.float64), shorter, smaller.places(ngrams[:, :-1]), len(histories)
        )
        backoff = np.log(left / left_below).astype(np.float32)
        updated = NgramTable(histories.ngrams, histories.log_prob, backoff)
        longest = NgramTable(ngrams, log_prob, np.zeros(len(ngrams), np.float32))
        smaller = NgramModel(model.vocabulary, (*smaller.orders[:-1], updated, longest))
    return smaller
