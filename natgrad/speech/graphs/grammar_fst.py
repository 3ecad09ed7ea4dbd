"""A language model as an acceptor of words: its states are histories, which may back off."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE, NgramModel, NgramTable
from natgrad.speech.symbols import Symbols

__all__ = ["grammar_graph", "restricted_to"]

Ints = NDArray[np.int32]
Places = NDArray[np.int64]
Floats = NDArray[np.float64]

EMPTY_HISTORY = 0
NONE = -1


def restricted_to(model: NgramModel, words: Iterable[str]) -> NgramModel:
    """Return a model without the n-grams that have other words than these, <s> and </s>.

    What was the probability of the others is lost: the model's probabilities sum to less than 1.

    >>> names, zeros = [BEGIN, END, "YES", "NO"], np.zeros(4, np.float32)
    >>> unigrams = NgramTable(np.arange(1, 5, dtype=np.int32)[:, None], zeros, zeros)
    >>> list(restricted_to(NgramModel(Symbols(names), (unigrams,)), ["NO", "MAYBE"]).vocabulary)
    ['<s>', '</s>', 'NO']
    """
    kept = {*words, BEGIN, END}
    is_kept = np.array([False, *(name in kept for name in model.vocabulary)])
    new_number = np.cumsum(is_kept).astype(np.int32)
    tables = []
    for table in model.orders:
        rows = np.flatnonzero(is_kept[table.ngrams].all(axis=1))
        ngrams = new_number[table.ngrams[rows]]
        tables.append(NgramTable(ngrams, table.log_prob[rows], table.backoff[rows]))
    names = [name for name in model.vocabulary if name in kept]
    return NgramModel(Symbols(names), tuple(tables))


def grammar_graph(model: NgramModel, words: Symbols) -> Graph:
    """Return the acceptor of a model's sentences; to back off is an arc labelled len(words).

    Of histories, those are states that some n-gram continues, the empty one, and <s>, where it
    starts. An explicit n-gram and the way by the shorter history are both there: the best path
    takes the cheaper, which is nearly always the former. What has a probability or a back-off
    weight of zero in the sense of ARPA files (log10 of -99) is not there.

    Args:
        model: whose words are all among `words`, but for <s> and </s>.
        words: the numbers of words.

    Raises:
        ValueError: words of the model are not there; it names some.
    """
    number_of_word = _numbers(model, words)
    histories = _Histories(model)
    begin, end = model.vocabulary.number(BEGIN), model.vocabulary.number(END)
    final = np.full(histories.num_states, np.inf)
    arcs = []
    for order, table in enumerate(model.orders, start=1):
        source = histories.state_of_prefix(order)
        target, cost_of_history = histories.reached_by(order)
        cost = _cost(table.log_prob)
        word = table.ngrams[:, -1]
        ends = word == end
        final[source[ends]] = cost[ends]
        cost += cost_of_history
        goes_on = (cost < np.inf) & ~ends & (word != begin)
        number = number_of_word[word]
        arcs.append([x[goes_on] for x in (source, number, number, cost, target)])
        if order < model.order:
            arcs.append(_backoff_arcs(histories, order, len(words)))
    source, label, word, cost, target = map(np.concatenate, zip(*arcs, strict=True))
    return graph_of_arcs(source, label, word, cost, target, final, histories.start)


def _numbers(model: NgramModel, words: Symbols) -> Ints:
    others = {BEGIN, END}
    missing = [name for name in model.vocabulary if name not in words and name not in others]
    if missing:
        raise ValueError(
            f"{len(missing)} words of the language model have no number: {' '.join(missing[:10])}"
            f"{' ...' if len(missing) > 10 else ''}. Number all words of the lexicon, by "
            "word_symbols, and leave others out of the model, by restricted_to"
        )
    numbers = [0 if name in others else words.number(name) for name in model.vocabulary]
    return np.array([0, *numbers], dtype=np.int32)


def _backoff_arcs(histories: _Histories, order: int, label: int) -> list[NDArray[np.generic]]:
    table = histories.model.orders[order - 1]
    rows = np.flatnonzero(histories.states[order - 1] != NONE)
    target, cost = histories.of(table.ngrams[rows, 1:])
    cost += _cost(table.backoff[rows])
    labels = np.full(len(rows), label)
    source = histories.states[order - 1][rows]
    arcs = (source, labels, np.zeros_like(labels), cost, target)
    return [column[cost < np.inf] for column in arcs]


def _cost(log_numbers: NDArray[np.float32]) -> Floats:
    """Return the costs of probabilities or back-off weights; infinite for those of zero."""
    # As it is in float32, IMPOSSIBLE is a little more than in float64.
    return np.where(log_numbers > np.float32(IMPOSSIBLE), -log_numbers.astype(np.float64), np.inf)


class _Histories:
    """Which n-grams are states, and which state any history is in."""

    def __init__(self, model: NgramModel) -> None:
        self.model = model
        self.num_states = 1  # the empty history
        self.states: list[Places] = []  # by order, of its n-grams; or none
        self._reached: list[tuple[Places, Floats]] = []  # and the cost of backing off to there
        for order, table in enumerate(model.orders[:-1], start=1):
            self._number(order)
            state, cost = self.of(table.ngrams[:, 1:])
            is_state = self.states[-1] != NONE
            cost = np.where(is_state, 0.0, cost + _cost(table.backoff))
            self._reached.append((np.where(is_state, self.states[-1], state), cost))

    def _number(self, order: int) -> None:
        continued = np.unique(self.model.keys[order] // len(self.model.vocabulary))
        if order == 1:
            begin = self.model.vocabulary.number(BEGIN) - 1
            continued = np.union1d(continued, [begin])
        states = np.full(len(self.model.orders[order - 1]), NONE, dtype=np.int64)
        states[continued] = self.num_states + np.arange(len(continued))
        self.num_states += len(continued)
        self.states.append(states)

    @property
    def start(self) -> int:
        """The state at the begin of a sentence."""
        begin = self.model.vocabulary.number(BEGIN)
        return int(self.states[0][begin - 1]) if self.states else EMPTY_HISTORY

    def state_of_prefix(self, order: int) -> Places:
        """Return the states that the n-grams of an order leave."""
        prefix = self.model.keys[order - 1] // len(self.model.vocabulary)
        return prefix if order == 1 else self.states[order - 2][prefix]

    def reached_by(self, order: int) -> tuple[Places, Floats]:
        """Return the states after the n-grams of an order, and the costs of backing off so far."""
        if order < self.model.order:
            return self._reached[order - 1]
        return self.of(self.model.orders[order - 1].ngrams[:, 1:])

    def of(self, histories: Ints) -> tuple[Places, Floats]:
        """Return the states of the longest ends of histories (N, k) that are n-grams."""
        state = np.full(len(histories), EMPTY_HISTORY, dtype=np.int64)
        cost = np.zeros(len(histories))
        waiting = np.arange(len(histories))
        for length in range(histories.shape[1], 0, -1):
            places = self.model.places(histories[waiting, histories.shape[1] - length :])
            known = places >= 0
            for found, reached in zip((state, cost), self._reached[length - 1], strict=True):
                found[waiting[known]] = reached[places[known]]
            waiting = waiting[~known]
        return state, cost
