"""Modified Kneser-Ney estimation of back-off language models (Chen and Goodman, 1999).

    p(w | h) = (a(hw) - D(a(hw))) / sum_v a(hv) + gamma(h) p(w | h')

h' is h without its first word; below the empty history is the uniform distribution. a(hw) is how
often hw was seen, for the highest order and after <s>; else how many different words it was seen
after. D takes one of three values, for a = 1, 2, and more, that counts of counts give. gamma(h)
is what the discounts leave over: so for words not seen after h it is the back-off weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from natgrad.speech.lm.counts import NgramCounts, count_ngrams
from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE, UNKNOWN, NgramModel, NgramTable
from natgrad.speech.lm.numbered_text import NumberedText, number_text
from natgrad.speech.symbols import EPSILON, Symbols

__all__ = ["SMALL_TEXT_DISCOUNTS", "Discounts", "estimate"]

Discounts = tuple[float, float, float]  # for n-grams counted once, twice, and more often
Floats = NDArray[np.float64]

SMALL_TEXT_DISCOUNTS: Discounts = (0.5, 1.0, 1.5)  # sensible where a text is too small to tell


def estimate(
    sentences: Iterable[str] | Path | NumberedText,
    vocabulary: int | Iterable[str] | None = None,
    order: int = 3,
    unknown: str | None = UNKNOWN,
    discounts: Discounts | None = None,
) -> NgramModel:
    """Estimate a language model from a text.

    8 million words take 15 seconds and 1 GB (order 3).

    >>> model = estimate(["YES NO", "NO NO"], order=2, discounts=SMALL_TEXT_DISCOUNTS)
    >>> list(model.vocabulary), [len(table) for table in model.orders]
    (['<s>', '</s>', '<unk>', 'NO', 'YES'], [5, 5])

    Args:
        sentences: one each, words apart by spaces; or a file of them, perhaps .gz or .xz.
        vocabulary: the words, seen or not; or how many of the most frequent; by default all.
        order: the number of words of the longest n-grams.
        unknown: stands for all words that are not in the vocabulary. If None, the model gives all
            probability to the vocabulary, and a word after an unknown one has that as no history:
            this is better where unknown words can never be recognised.
        discounts: the same for all orders, instead of those that the text's counts of counts give.

    Raises:
        ValueError: the text is empty, or too small for discounts to be estimated; a word of the
            vocabulary is none, or a discount takes more than there is.
    """
    if discounts is not None and not all(0 <= d <= r for r, d in enumerate(discounts, start=1)):
        raise ValueError(f"discounts are {discounts}; expected them in 0 to 1, 0 to 2, and 0 to 3")
    text = number_text(sentences)
    words = _vocabulary(text, vocabulary, unknown)
    number_of_unknown = words.number(unknown) if unknown else 0
    levels = count_ngrams(text.renumbered(words, number_of_unknown), order)
    # What a restricted vocabulary leaves has hardly a word that was seen once, so the discounts of
    # order 1 are those of all words.
    whole = count_ngrams(text, min(order, 2))[0].counts
    for numbered, counts in ((text.words, whole), (words, levels[0].counts)):
        counts[numbered.number(BEGIN) - 1] = 0  # nothing predicts <s>
    used = [
        discounts or _estimate_discounts(counts, order)
        for order, counts in enumerate([whole, *(level.counts for level in levels[1:])], start=1)
    ]
    return _join(words, levels, *_probabilities(levels, used, len(words) - 2))


def _vocabulary(
    text: NumberedText, wanted: int | Iterable[str] | None, unknown: str | None
) -> Symbols:
    if isinstance(wanted, str):
        raise TypeError(f"the vocabulary is one string, {wanted[:40]!r}; give a list of words")
    if wanted is None or isinstance(wanted, int):
        wanted = text.most_frequent(wanted)
    special = [BEGIN, END, *([unknown] if unknown else [])]
    words = sorted(set(wanted) - set(special))
    if not words:
        raise ValueError("the vocabulary is empty; give words, or how many to take from the text")
    for word in words:
        if word == EPSILON or word.split() != [word]:
            raise ValueError(
                f"{word!r} cannot be a word of the vocabulary; expected words without blanks (or "
                f"ends of lines), and not {EPSILON}, which stands for none"
            )
    return Symbols([*special, *words])


def _estimate_discounts(counts: NDArray[np.int64], order: int) -> Discounts:
    """Return D for n-grams counted once, twice and more often, so as Chen and Goodman derive it."""
    once, twice, thrice, four_times = (int(np.count_nonzero(counts == r)) for r in (1, 2, 3, 4))
    if once and twice and thrice:
        share = once / (once + 2 * twice)
        discounts = (
            1 - 2 * share * twice / once,
            2 - 3 * share * thrice / twice,
            3 - 4 * share * four_times / thrice,
        )
        if four_times and min(discounts) >= 0:
            return discounts
    raise ValueError(
        f"there are {once}, {twice}, {thrice}, {four_times} different {order}-grams counted 1, 2, "
        "3, 4 times; expected falling numbers above 0, for discounts to be estimated: give more "
        "text, or a lower order, or discounts=SMALL_TEXT_DISCOUNTS (--small-text-discounts)"
    )


def _probabilities(
    levels: Sequence[NgramCounts], discounts: Sequence[Discounts], num_words: int
) -> tuple[list[Floats], list[Floats]]:
    """Return for each order p(w | h) of its n-grams hw, and gamma of the n-grams as histories."""
    shorter: Floats = np.array([1 / num_words])
    probabilities: list[Floats] = []
    gammas: list[Floats] = []
    for level, discount in zip(levels, discounts, strict=True):
        lost = np.array([0.0, *discount])[np.minimum(level.counts, 3)]
        totals = _sum_by_history(level.counts, level, len(shorter))
        left_over = _sum_by_history(lost, level, len(shorter))
        # What has never been a history is backed off from for free.
        gamma = np.divide(left_over, totals, out=np.ones(len(totals)), where=totals > 0)
        share = (level.counts - lost) / np.maximum(totals, 1)[level.prefixes]
        shorter = share + gamma[level.prefixes] * shorter[level.suffixes]
        probabilities.append(shorter)
        gammas.append(gamma)
    return probabilities, [*gammas[1:], np.ones(len(levels[-1]))]


def _sum_by_history(values: ArrayLike, level: NgramCounts, num_histories: int) -> Floats:
    values = np.asarray(values, np.float64)
    return np.bincount(level.prefixes, values, minlength=num_histories).astype(np.float64)


def _join(
    words: Symbols,
    levels: Sequence[NgramCounts],
    probabilities: Sequence[Floats],
    gammas: Sequence[Floats],
) -> NgramModel:
    probabilities[0][words.number(BEGIN) - 1] = 0.0
    ngrams = np.zeros((1, 0), np.int32)
    tables = []
    for level, probability, gamma in zip(levels, probabilities, gammas, strict=True):
        ngrams = np.hstack([ngrams[level.prefixes], level.words[:, None]])
        tables.append(NgramTable(ngrams, _logarithms(probability), _logarithms(gamma)))
    return NgramModel(words, tuple(tables))


def _logarithms(values: Floats) -> NDArray[np.float32]:
    return np.log(np.maximum(values, np.exp(IMPOSSIBLE))).astype(np.float32)
