"""An n-gram model of short sequences, as the automaton that a search walks through.

Probabilities are those of interpolated Kneser-Ney with three discounts for each order (Chen and
Goodman's "modified" one):

    p(w | h) = max(c(h w) - D(c(h w)), 0) / c(h) + b(h) p(w | h'),

with h' the history without its oldest item, and b(h) what the discounts left. Counts c of the
highest order, and of n-grams that begin a sequence, are how often they were seen; those of the
others, after how many different items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["SequenceModel", "estimate_sequences"]

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
DISCOUNTS_OF_LITTLE_DATA = (0.0, 0.5, 1.0, 1.5)  # where counts do not tell what they should be


class SequenceModel(NamedTuple):
    """States are histories; arcs of a state are the items seen after it, in rising order.

    State 0 is the empty history. An item that has no arc at a state costs `backoff` of it, and is
    looked for at the state `shorter`. State 0 has an arc for every item.
    """

    start: int  # the history of nothing but a beginning
    num_items: int  # items are 0 to before it, and the last one is the end of a sequence
    first_arc: Ints  # (S + 1,)
    item: Ints  # (A,)
    log_prob: NDArray[np.float32]  # (A,)
    target: Ints  # (A,) the history after it
    shorter: Ints  # (S,)
    backoff: NDArray[np.float32]  # (S,) natural logarithm

    def follow(self, state: int, item: int) -> tuple[float, int]:
        """Return the log-probability of an item at a state, and the state after it."""
        total = 0.0
        while True:
            begin, end = self.first_arc[state], self.first_arc[state + 1]
            arc = int(begin + np.searchsorted(self.item[begin:end], item))
            if arc < end and self.item[arc] == item:
                return total + float(self.log_prob[arc]), int(self.target[arc])
            total, state = total + float(self.backoff[state]), int(self.shorter[state])

    def log_probability(self, sequence: Iterable[int]) -> float:
        """Return the log-probability of a whole sequence."""
        total, state = 0.0, self.start
        for item in (*sequence, self.num_items - 1):
            log, state = self.follow(state, item)
            total += log
        return total


@dataclass(frozen=True, eq=False)
class _Order:
    """The different n-grams of one order: the last item of each, and how it hangs together."""

    item: NDArray[np.int64]
    history: NDArray[np.int64]  # number of the n-gram without its last item, one order below
    shorter: NDArray[np.int64]  # number of the n-gram without its first item, one order below
    count: NDArray[np.int64]


def estimate_sequences(sequences: Sequence[Ints], num_items: int, order: int) -> SequenceModel:
    """Estimate a model of sequences of the items 0 to before `num_items`, which then is the end.

    >>> model = estimate_sequences([np.array([0, 1, 0], dtype=np.int32)] * 3, 2, order=2)
    >>> model.log_probability([0, 1, 0]) > model.log_probability([1, 0, 1])
    True

    Raises:
        ValueError: an item is in none of the sequences, or is not in that range.
    """
    if order < 1:
        raise ValueError(f"order is {order}; expected at least 1")
    found = np.unique(np.concatenate([np.zeros(0, dtype=np.int32), *sequences]))
    if found.tolist() != list(range(num_items)):
        raise ValueError(
            f"the {len(sequences)} sequences have {len(found)} different items; expected each of "
            f"0 to {num_items - 1}, and no others"
        )
    longest = max(len(sequence) for sequence in sequences) + 2  # with its beginning and end
    orders = _count(sequences, num_items, min(order, longest))
    probabilities, backoffs = _smooth(orders, num_items)
    return _automaton(orders, probabilities, backoffs, num_items)


def _count(sequences: Sequence[Ints], num_items: int, order: int) -> list[_Order]:
    """List the n-grams of each order from 1; what comes before a sequence is num_items + 1."""
    end, begin = num_items, num_items + 1
    tokens = np.concatenate([np.concatenate([[begin], s, [end]]) for s in sequences])
    lengths = np.array([len(sequence) + 2 for sequence in sequences])
    place = np.arange(len(tokens)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    number = np.zeros(len(tokens), dtype=np.int64)  # of the n-gram that ends here, an order below
    raw_orders = []
    for n in range(1, order + 1):
        here = np.flatnonzero(place >= n - 1)
        history = number[here - 1] if n > 1 else np.zeros(len(here), dtype=np.int64)
        codes, first, inverse, counts = np.unique(
            history * (num_items + 2) + tokens[here],
            return_index=True, return_inverse=True, return_counts=True,
        )  # fmt: skip
        shorter = number[here][first] if n > 1 else np.zeros(len(codes), dtype=np.int64)
        starts = place[here][first] == n - 1
        item, histories = codes % (num_items + 2), codes // (num_items + 2)
        raw_orders.append((_Order(item, histories, shorter, counts), starts))
        number = np.zeros(len(tokens), dtype=np.int64)
        number[here] = inverse
    return [
        _with_continuations(one, starts, raw_orders[n + 1][0] if n + 1 < order else None)
        for n, (one, starts) in enumerate(raw_orders)
    ]


def _with_continuations(grams: _Order, starts: NDArray[np.bool_], above: _Order | None) -> _Order:
    if above is None:
        return grams
    different = np.bincount(above.shorter, minlength=len(grams.item))
    count = np.where(starts, grams.count, different)
    return _Order(grams.item, grams.history, grams.shorter, count)


def _discounts(counts: NDArray[np.int64]) -> Floats:
    """(4,) what is taken from counts of 0, 1, 2, and 3 or more.

    With n_c the number of n-grams that have count c, that is c - (c + 1) n_(c+1) / n_c y, with
    y = n_1 / (n_1 + 2 n_2).
    """
    n = [float(np.sum(counts == c)) for c in (1, 2, 3, 4)]
    if min(n) == 0.0:
        return np.array(DISCOUNTS_OF_LITTLE_DATA)
    y = n[0] / (n[0] + 2.0 * n[1])
    discounts = [c - (c + 1) * y * n[c] / n[c - 1] for c in (1, 2, 3)]
    if not all(0.0 < discount < c for c, discount in enumerate(discounts, start=1)):
        return np.array(DISCOUNTS_OF_LITTLE_DATA)
    return np.array([0.0, *discounts])


def _smooth(orders: list[_Order], num_items: int) -> tuple[list[Floats], list[Floats]]:
    """For each order, p(last item | rest); and b(h) of all its histories."""
    probabilities: list[Floats] = []
    backoffs: list[Floats] = []
    lower: Floats = np.full(1, 1.0 / (num_items + 1))
    for n, grams in enumerate(orders):
        is_begin = (grams.item == num_items + 1) & (n == 0)  # is never predicted
        count = np.where(is_begin, 0, grams.count).astype(np.float64)
        discount = _discounts(grams.count[~is_begin])[np.minimum(count, 3).astype(np.int64)]
        num_histories = 1 if n == 0 else len(orders[n - 1].item)
        totals = np.bincount(grams.history, count, num_histories)
        left = np.bincount(grams.history, discount, num_histories)
        share = np.divide(left, totals, out=np.ones_like(left), where=totals > 0)
        seen = (count - discount) / np.maximum(totals[grams.history], 1e-300)
        below = lower[grams.shorter]
        probabilities.append(np.where(is_begin, 0.0, seen + share[grams.history] * below))
        backoffs.append(share)
        lower = probabilities[-1]
    return probabilities, backoffs


def _automaton(
    orders: list[_Order], probabilities: list[Floats], backoffs: list[Floats], num_items: int
) -> SequenceModel:
    """Make a state of each n-gram that something follows; and arcs of all."""
    has_arcs = [
        np.bincount(above.history, minlength=len(grams.item)) > 0
        for grams, above in pairwise(orders)
    ]
    state_of = [np.zeros(1, dtype=np.int64)]
    num_states = 1
    for mask in has_arcs:
        numbers = np.where(mask, num_states + np.cumsum(mask) - 1, -1)
        state_of.append(numbers)
        num_states += int(mask.sum())
    shorter, backoff = np.zeros(num_states, np.int64), np.zeros(num_states)
    sources, items, logs, targets = [], [], [], []
    after: NDArray[np.int64] = np.zeros(1, dtype=np.int64)  # the state once an n-gram was seen
    with np.errstate(divide="ignore"):
        for n, grams in enumerate(orders):
            own = state_of[n + 1] if n + 1 < len(state_of) else np.full(len(grams.item), -1)
            after = np.where(own >= 0, own, after[grams.shorter])
            if n + 1 < len(state_of):
                is_state = own >= 0
                lower_state = state_of[n][grams.shorter] if n else np.zeros(len(own), np.int64)
                shorter[own[is_state]] = lower_state[is_state]
                backoff[own[is_state]] = np.log(backoffs[n + 1][is_state])
            sources.append(state_of[n][grams.history])
            items.append(grams.item)
            logs.append(np.log(probabilities[n]))
            targets.append(after)
    start = int(targets[0][orders[0].item == num_items + 1][0])
    keep = np.concatenate(items) <= num_items
    source = np.concatenate(sources)[keep]
    first_arc = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num_states))])
    return SequenceModel(
        start, num_items + 1, first_arc.astype(np.int32),
        np.concatenate(items)[keep].astype(np.int32),
        np.concatenate(logs)[keep].astype(np.float32),
        np.concatenate(targets)[keep].astype(np.int32),
        shorter.astype(np.int32), backoff.astype(np.float32),
    )  # fmt: skip
