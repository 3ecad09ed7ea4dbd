"""Back-off language models as sorted arrays, and the probabilities that they give to words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from natgrad.speech.symbols import Symbols

__all__ = [
    "BEGIN",
    "END",
    "IMPOSSIBLE",
    "UNKNOWN",
    "NgramModel",
    "NgramTable",
    "log_probabilities",
    "log_probability",
]

BEGIN, END = "<s>", "</s>"
UNKNOWN = "<unk>"  # the name that our models give to words outside their vocabulary
UNKNOWN_NAMES = (UNKNOWN, "<UNK>")  # the names that are understood
LN10 = float(np.log(10.0))
IMPOSSIBLE = -99.0 * LN10  # what an ARPA file writes for a probability of zero, such as of <s>

Ints = NDArray[np.int32]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class NgramTable:
    """The n-grams of one order, in lexicographic order of their words' numbers.

    Logarithms are natural. `backoff` is of the n-gram as a history, and 0 where it is none.
    """

    ngrams: Ints  # (n, k)
    log_prob: NDArray[np.float32]  # (n,)
    backoff: NDArray[np.float32]  # (n,)

    def __len__(self) -> int:
        return len(self.ngrams)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """A back-off language model: one table per order, of which every word's is the first.

    The n-gram at place i of the first table is the word number i + 1. All but the last word of an
    n-gram are an n-gram of the table before: so the tables are the levels of a trie.

    >>> log_prob = np.log(np.float32([1e-38, 0.5, 0.5]))
    >>> unigrams = NgramTable(np.int32([[1], [2], [3]]), log_prob, np.zeros(3, np.float32))
    >>> model = NgramModel(Symbols([BEGIN, END, "YES"]), (unigrams,))
    >>> round(float(np.exp(log_probability(model, [BEGIN], "YES"))), 4)
    0.5
    """

    vocabulary: Symbols  # of words, with <s> and </s>, and perhaps an unknown word
    orders: tuple[NgramTable, ...]

    def __post_init__(self) -> None:
        for name in (BEGIN, END):
            if name not in self.vocabulary:
                raise ValueError(f"the vocabulary lacks {name}; add it to the model's words")
        for order, table in enumerate(self.orders, start=1):
            shapes = table.ngrams.shape, table.log_prob.shape, table.backoff.shape
            if shapes != ((len(table), order), (len(table),), (len(table),)):
                raise ValueError(
                    f"the table of {order}-grams has arrays of the shapes {shapes}; "
                    f"expected (n, {order}), (n,), (n,)"
                )
        expected = np.arange(1, len(self.vocabulary))
        if not self.orders or not np.array_equal(self.orders[0].ngrams[:, 0], expected):
            raise ValueError("the first table must have each word of the vocabulary once, in order")

    @property
    def order(self) -> int:
        """The number of words of the longest n-grams."""
        return len(self.orders)

    @property
    def num_ngrams(self) -> int:
        """The number of n-grams of all orders."""
        return sum(len(table) for table in self.orders)

    @cached_property
    def unknown(self) -> int:
        """The number of the word that stands for all that are not in the vocabulary; 0 if none."""
        known = [name for name in UNKNOWN_NAMES if name in self.vocabulary]
        return self.vocabulary.number(known[0]) if known else 0

    @cached_property
    def keys(self) -> tuple[Places, ...]:
        """For each order, its n-grams as (place of the prefix) * len(vocabulary) + word: sorted."""
        keys: list[Places] = []
        for order, table in enumerate(self.orders, start=1):
            prefixes = self._places(table.ngrams[:, :-1], keys)
            if len(prefixes) and prefixes.min() < 0:
                lost = [self.vocabulary.name(word) for word in table.ngrams[prefixes.argmin()]]
                raise ValueError(
                    f"the {order}-gram {' '.join(lost)!r} is there but not its prefix "
                    f"{' '.join(lost[:-1])!r}; add that to the table of {order - 1}-grams"
                )
            keys.append(prefixes * len(self.vocabulary) + table.ngrams[:, -1])
            if (np.diff(keys[-1]) <= 0).any():
                raise ValueError(f"the {order}-grams must differ and be sorted by word numbers")
        return tuple(keys)

    def places(self, ngrams: Ints) -> Places:
        """Return the place in its table of each row of `ngrams` (N, k); -1 where it is not there.

        With k = 0, the place is 0: that of the empty history.
        """
        return self._places(ngrams, self.keys)

    def prefixes(self, order: int) -> Places:
        """Return the places, one order below, of all but the last word of an order's n-grams."""
        prefixes: Places = self.keys[order - 1] // len(self.vocabulary)
        return prefixes

    def extend(self, places: Places, order: int, words: Ints) -> Places:
        """Return the places of n-grams of `order`, from those of their prefixes and last words."""
        return _extend(self.keys[order - 1], places, words, len(self.vocabulary))

    def _places(self, ngrams: Ints, keys: Sequence[Places]) -> Places:
        places = np.zeros(len(ngrams), np.int64)
        for order in range(ngrams.shape[1]):
            places = _extend(keys[order], places, ngrams[:, order], len(self.vocabulary))
        return places

    def numbers(self, words: Sequence[str]) -> Ints:
        """Return the numbers of words, `self.unknown` for those not in the vocabulary.

        >>> from natgrad.speech.lm.kneser_ney import estimate
        >>> model = estimate(["YES NO"], order=1, discounts=(0.5, 0.5, 0.5))
        >>> [model.vocabulary.name(number) for number in model.numbers(["NO", "MAYBE"])]
        ['NO', '<unk>']
        """
        known = self.vocabulary
        return np.array(
            [known.number(word) if word in known else self.unknown for word in words], np.int32
        )


def _extend(keys: Places, places: Places, words: Ints, base: int) -> Places:
    wanted = places * base + words
    there = (places >= 0) & (words > 0) & (words < base)
    if len(keys) == base - 1 and keys[-1] < base:  # each word once: as of order 1, found unsearched
        return np.where(there & (places == 0), wanted - 1, -1)
    found = np.searchsorted(keys, wanted)
    there &= found < len(keys)
    there[there] = keys[found[there]] == wanted[there]
    return np.where(there, found, -1)


def log_probabilities(
    model: NgramModel, histories: ArrayLike, words: ArrayLike
) -> NDArray[np.float64]:
    """Return the natural log-probability of each word after its history.

    Args:
        model: the language model.
        histories: integers (N, K): numbers of the words before, the last one nearest; 0 stands for
            no word (before the begin of a sentence, or an unknown one where the model has none),
            and hides what is before it. Only the last (order - 1) columns count.
        words: integers (N,), positive.

    >>> from natgrad.speech.lm.kneser_ney import estimate
    >>> model = estimate(["YES NO", "NO NO"], order=2, discounts=(0.5, 0.5, 0.5))
    >>> no = model.vocabulary.number("NO")
    >>> np.exp(log_probabilities(model, [[0], [no]], [no, no])).round(3).tolist()
    [0.575, 0.358]
    """
    words, histories = np.asarray(words, np.int32), np.asarray(histories, np.int32)
    if words.ndim != 1 or histories.ndim != 2 or len(words) != len(histories):
        raise ValueError(
            f"histories and words have the shapes {histories.shape} and {words.shape}; "
            "expected (N, K) and (N,)"
        )
    total = np.zeros(len(words))
    waiting = np.arange(len(words))  # those whose n-gram has not been found yet
    for order in range(min(model.order, histories.shape[1] + 1), 0, -1):
        history = histories[waiting, histories.shape[1] - (order - 1) :]
        contexts = model.places(history)
        places = model.extend(contexts, order, words[waiting])
        found = places >= 0
        total[waiting[found]] += model.orders[order - 1].log_prob[places[found]]
        if order > 1:
            backs_off = ~found & (contexts >= 0)
            total[waiting[backs_off]] += model.orders[order - 2].backoff[contexts[backs_off]]
        waiting = waiting[~found]
    if len(waiting):
        raise ValueError(
            f"word number {words[waiting[0]]} is not in the vocabulary, which has 1 to "
            f"{len(model.vocabulary) - 1}; leave unknown words out, or use the model's `unknown`"
        )
    return total


def log_probability(model: NgramModel, history: Sequence[str], word: str) -> float:
    """Return the natural log-probability of one word after the words before it, nearest last.

    A sentence's history begins with <s>. Words not in the vocabulary are the model's unknown word;
    where it has none, they may be in the history but not asked for.
    """
    numbers = model.numbers([*history[max(0, len(history) - model.order + 1) :], word])
    if not numbers[-1]:
        raise ValueError(f"the word {word!r} is not in the vocabulary, which has no unknown word")
    return float(log_probabilities(model, numbers[None, :-1], numbers[-1:])[0])
