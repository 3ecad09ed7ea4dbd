"""How well a language model predicts a text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from natgrad.speech.lm.ngram import Ints, NgramModel, Places, log_probabilities
from natgrad.speech.lm.numbered_text import NumberedText, number_text

__all__ = ["Perplexity", "perplexity"]

WORDS_PER_CHUNK = 200_000


@dataclass(frozen=True)
class Perplexity:
    """The sum of the words' log-probabilities, unknown words left out, and how many there were.

    >>> result = Perplexity(-6 * math.log(100), num_words=7, num_sentences=1, num_unknown=2)
    >>> round(result.value), round(result.unknown_rate, 3)
    (100, 0.286)
    """

    log_prob: float  # natural
    num_words: int
    num_sentences: int
    num_unknown: int  # of the words

    @property
    def value(self) -> float:
        """The perplexity per word of the vocabulary and end of sentence."""
        num_events = self.num_words - self.num_unknown + self.num_sentences
        return math.exp(-self.log_prob / num_events)

    @property
    def unknown_rate(self) -> float:
        """The share of words that are not in the vocabulary."""
        return self.num_unknown / self.num_words


def perplexity(model: NgramModel, sentences: Iterable[str] | Path | NumberedText) -> Perplexity:
    """Return the perplexity of a text, or of a file with one sentence a line.

    Words not in the vocabulary are counted, and not predicted. They are in the history of others
    as the model's unknown word, if it has one.

    >>> from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
    >>> model = estimate(["YES NO", "NO NO"], order=2, discounts=SMALL_TEXT_DISCOUNTS)
    >>> result = perplexity(model, ["NO YES", "NO MAYBE NO"])
    >>> result.num_words, result.num_unknown, round(result.value, 2)
    (5, 1, 3.53)
    """
    text = number_text(sentences).renumbered(model.vocabulary, model.unknown)
    is_word = text.numbers != text.begin
    num_unknown = int(np.count_nonzero(text.numbers == model.unknown))
    ends = np.flatnonzero(is_word & (text.numbers != model.unknown))
    log_prob = 0.0
    for first in range(0, len(ends), WORDS_PER_CHUNK):
        chunk = ends[first : first + WORDS_PER_CHUNK]
        histories = histories_before(text, chunk, model.order - 1)
        log_prob += float(log_probabilities(model, histories, text.numbers[chunk]).sum())
    num_words = int(np.count_nonzero(is_word)) - text.num_sentences
    return Perplexity(log_prob, num_words, text.num_sentences, num_unknown)


def histories_before(text: NumberedText, places: Places, num_words: int) -> Ints:
    """Return the words before each place, (N, num_words): 0 before the begin of the sentence."""
    histories = np.zeros((len(places), num_words), np.int32)
    inside = np.ones(len(places), np.bool_)
    for distance in range(1, num_words + 1):
        words = text.numbers[np.maximum(places - distance, 0)]
        histories[:, -distance] = np.where(inside, words, 0)
        inside &= words != text.begin
    return histories
