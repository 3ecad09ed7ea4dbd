"""Small language models, and literal lists of the sentences that they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE, NgramModel, NgramTable
from natgrad.speech.symbols import Symbols

# n-grams with the natural logarithms of their probability and their back-off weight
Entries = Mapping[tuple[str, ...], tuple[float, float]]


def model_of(entries: Entries) -> NgramModel:
    """Return the model of n-grams in any order; the vocabulary is that of the unigrams."""
    names = [ngram[0] for ngram in entries if len(ngram) == 1]
    vocabulary = Symbols(names)
    tables = []
    for order in range(1, 1 + max(map(len, entries))):
        rows = sorted(
            ([vocabulary.number(word) for word in ngram], *numbers)
            for ngram, numbers in entries.items()
            if len(ngram) == order
        )
        ngrams, log_prob, backoff = zip(*rows, strict=True)
        tables.append(
            NgramTable(
                np.array(ngrams, np.int32),
                np.array(log_prob, np.float32),
                np.array(backoff, np.float32),
            )
        )
    return NgramModel(vocabulary, tuple(tables))


def random_entries(
    words: Sequence[str], order: int, seed: int
) -> dict[tuple[str, ...], tuple[float, float]]:
    """Return n-grams of all words with <s> and </s>, with arbitrary costs, few of each order."""
    random = np.random.default_rng(seed)

    def numbers() -> tuple[float, float]:
        log_prob, backoff = -random.uniform(0.2, 4.0, size=2)
        return float(log_prob), float(backoff)

    entries: dict[tuple[str, ...], tuple[float, float]]
    entries = {(word,): numbers() for word in (END, *words)}
    entries[(BEGIN,)] = (IMPOSSIBLE, numbers()[1])
    longest = list(entries)
    for _ in range(1, order):
        longer = [(*ngram, w) for ngram in longest if ngram[-1] != END for w in (END, *words)]
        chosen = random.permutation(len(longer))[: random.integers(1, 7)]
        longest = [longer[place] for place in chosen]
        entries.update({ngram: numbers() for ngram in longest})
    return entries


def sentences(entries: Entries, most_words: int) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield all sentences with the cost of each way to them, by n-grams and by backing off."""
    order = max(map(len, entries))

    def go_on(
        history: tuple[str, ...], words: tuple[str, ...], cost: float
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        for ngram, (log_prob, _) in entries.items():
            if ngram[:-1] != history or log_prob <= IMPOSSIBLE:
                continue
            if ngram[-1] == END:
                yield words, cost - log_prob
            elif len(words) < most_words:
                longest = (*history, ngram[-1])[max(0, len(ngram) - order + 1) :]
                yield from go_on(longest, (*words, ngram[-1]), cost - log_prob)
        if history:
            _, backoff = entries.get(history, (0.0, 0.0))
            yield from go_on(history[1:], words, cost - backoff)

    yield from go_on((BEGIN,)[: order - 1], (), 0.0)
