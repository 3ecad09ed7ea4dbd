"""A lexicon as phones and costs, and as a transducer from phones to words."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.phones import PhoneSet
from natgrad.speech.symbols import Symbols

__all__ = [
    "LexiconGraph",
    "SilenceCosts",
    "WordPhones",
    "lexicon_graph",
    "phones_of_word",
    "word_symbols",
]

BOUNDARY, LOOP = 0, 1  # between words, before a silence that there may be, and after it


class WordPhones(NamedTuple):
    """One pronunciation of a word: its phones, and the cost of choosing it."""

    phones: tuple[int, ...]
    cost: float


class SilenceCosts(NamedTuple):
    """What it costs to have a silence at the utterance's begin and after each word, and not to."""

    present: float
    absent: float

    @staticmethod
    def of(lexicon: Lexicon) -> SilenceCosts:
        """Return the costs of a lexicon's silence."""
        probability = lexicon.silence_probability
        return SilenceCosts(-math.log(probability), -math.log1p(-probability))


def word_symbols(lexicon: Lexicon) -> Symbols:
    """Number the words of a lexicon, in order.

    >>> from natgrad.speech.lexicon.lexicon import Pronunciation
    >>> lexicon = Lexicon((Pronunciation("NO", ("N", "OW")), Pronunciation("A", ("AH",))))
    >>> list(word_symbols(lexicon))
    ['A', 'NO']
    """
    return Symbols(sorted(lexicon.words))


def phones_of_word(lexicon: Lexicon, word: str, phones: PhoneSet) -> list[WordPhones]:
    """Return the pronunciations of a word as phones.

    Raises:
        ValueError: if the lexicon has none, or one of sounds that are not in the set of phones.
    """
    found = []
    for pronunciation in lexicon.of(word):
        unknown = phones.unknown_sounds(pronunciation.sounds)
        if unknown:
            raise ValueError(
                f"the word {word} is pronounced {' '.join(pronunciation.sounds)}, but the models "
                f"have no sound {', '.join(unknown)}: correct the lexicon, or train with it"
            )
        cost = -math.log(pronunciation.probability)
        found.append(WordPhones(phones.in_word(pronunciation.sounds), cost))
    if not found:
        raise ValueError(
            f"the word {word} is not in the lexicon: add a pronunciation of it, or leave out what "
            "it is in"
        )
    return found


class LexiconGraph(NamedTuple):
    """A transducer from phones, and symbols that tell pronunciations apart, to words.

    The symbols are numbered from len(phones): first #0, which stands for backing off in the
    language model, then #1 and so on, which end pronunciations.
    """

    graph: Graph
    num_symbols: int


def lexicon_graph(
    lexicon: Lexicon, words: Symbols, phones: PhoneSet, wanted: Iterable[str]
) -> LexiconGraph:
    """Return the transducer L of some of a lexicon's words, in any sequence.

    Between words, and at both ends, there is a silence or not. A word is on the first arc of its
    pronunciation. A pronunciation that is also that of another word, or begins that of another (or
    its rest, after a silence), or has the silence's phone in it ends in a symbol: so any input with
    symbols has one reading.
    """
    present, absent = SilenceCosts.of(lexicon)
    silence, back_off = phones.symbols.number(lexicon.silence), len(phones)
    ways = [
        (words.number(word), *way)
        for word in sorted(wanted)
        for way in phones_of_word(lexicon, word, phones)
    ]
    symbols = _tell_apart([way for _, way, _ in ways], silence)
    arcs = [
        _Arc(BOUNDARY, 0, 0, absent, LOOP),
        _Arc(BOUNDARY, silence, 0, present, LOOP),
        _Arc(LOOP, back_off, len(words), 0.0, LOOP),
    ]
    num_states = 2
    for (word, way, cost), symbol in zip(ways, symbols, strict=True):
        labels = [*way, back_off + symbol] if symbol else way
        inner = range(num_states, num_states + len(labels) - 1)
        num_states += len(inner)
        for source, label, target in zip((LOOP, *inner), labels, (*inner, BOUNDARY), strict=True):
            first = source == LOOP
            arcs.append(_Arc(source, label, word if first else 0, cost if first else 0.0, target))
    final = np.full(num_states, np.inf)
    final[LOOP] = 0.0
    sources, labels_of_arcs, words_of_arcs, weights, targets = zip(*arcs, strict=True)
    graph = graph_of_arcs(sources, labels_of_arcs, words_of_arcs, weights, targets, final, BOUNDARY)
    return LexiconGraph(graph, 1 + max(symbols, default=0))


class _Arc(NamedTuple):
    source: int
    label: int
    word: int
    weight: float
    target: int


def _tell_apart(ways: Sequence[tuple[int, ...]], silence: int) -> list[int]:
    """Return the number of the symbol that ends each pronunciation, 0 for none.

    >>> _tell_apart([(2, 3), (2, 3), (2, 3, 4), (5,), (1,), (6,), (1, 6)], silence=1)
    [1, 2, 0, 0, 1, 1, 2]
    """
    times = Counter(ways)
    beginnings = {way[:length] for way in ways for length in range(1, len(way))}
    # The silence that one begins with can also be the one before another word: that of the rest.
    rests = [way[1:] for way in ways if way[0] == silence]
    beginnings |= {rest[:length] for rest in rests for length in range(1, len(rest) + 1)}
    used: Counter[tuple[int, ...]] = Counter()
    symbols = []
    for way in ways:
        if silence not in way and times[way] == 1 and way not in beginnings:
            symbols.append(0)
            continue
        group = tuple(itertools.dropwhile(lambda phone: phone == silence, way))
        used[group] += 1
        symbols.append(used[group])
    return symbols
