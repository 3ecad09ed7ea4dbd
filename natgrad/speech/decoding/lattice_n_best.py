"""The best word sequences of a lattice, each with its best path."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.decoding.lattice_paths import ROUNDOFF, least_to_end

if TYPE_CHECKING:
    from natgrad.speech.decoding.lattice import Lattice

__all__ = ["find_n_best"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]


class _Hypothesis(NamedTuple):
    """The words so far (or all, where complete), and where in the lattice one can be after them."""

    cost: float  # of its best completion
    serial: int  # which came first, where costs are the same
    words: tuple[int, ...]
    complete: bool
    states: Longs
    costs: Doubles


def find_n_best(lattice: Lattice, num_paths: int, cost: Doubles, final: Doubles) -> list[Longs]:
    """Return the arcs of the best path of each of the best word sequences, best first.

    An A* search over word sequences: a hypothesis is a beginning of one, with all places in the
    lattice where it may be; as the cost of its best completion is known exactly, hypotheses are
    completed in the order of their cost. All open hypotheses lead to different sequences, so that
    those beyond the `num_paths` best are never needed.
    """
    walk = _Walk(lattice, cost, final)
    heap = [_Hypothesis(float(walk.to_end[0]), 0, (), False, *walk.start)]
    found: list[Longs] = []
    num_made = 1
    limit = np.inf
    while heap and len(found) < num_paths:
        hypothesis = heapq.heappop(heap)
        if hypothesis.complete:
            found.append(walk.along(hypothesis.words, _just_above(hypothesis.cost)))
            continue
        for child in _children(walk, hypothesis, limit, num_made):
            heapq.heappush(heap, child)
            num_made += 1
        num_wanted = num_paths - len(found)
        if len(heap) >= 2 * num_wanted:
            heap = heapq.nsmallest(num_wanted, heap)  # sorted, hence a heap
            limit = _just_above(heap[-1].cost)
    return found


def _just_above(cost: float) -> float:
    """Return a limit that a path of this cost is within, in whatever order its costs are added."""
    return cost + ROUNDOFF * (1.0 + abs(cost))


def _children(
    walk: _Walk, hypothesis: _Hypothesis, limit: float, serial: int
) -> Iterator[_Hypothesis]:
    """Yield what costs less than the limit: the sequence that ends here, those with a word more."""
    reached = walk.from_states(hypothesis.states, hypothesis.costs, limit)
    ending = float((reached.costs + walk.final[reached.first : reached.last + 1]).min())
    if ending < limit:
        yield _Hypothesis(ending, serial, hypothesis.words, True, *walk.nowhere)
        serial += 1
    arcs = reached.word_arcs
    words, targets = walk.lattice.word[arcs], walk.lattice.target[arcs].astype(np.int64)
    costs = reached.costs[walk.lattice.source[arcs] - reached.first] + walk.cost[arcs]
    completed = costs + walk.to_end[targets]
    order = np.argsort(words, kind="stable")
    breaks = np.flatnonzero(np.diff(words[order], prepend=-1))
    for chosen in np.split(order, breaks[1:]) if len(order) else []:
        sequence = (*hypothesis.words, int(words[chosen[0]]))
        best = float(completed[chosen].min())
        yield _Hypothesis(best, serial, sequence, False, targets[chosen], costs[chosen])
        serial += 1


class _Reached(NamedTuple):
    """What can be reached before the next word: states `first` to `last`, with their costs."""

    first: int
    last: int
    costs: Doubles
    entering: Longs  # the arc by which each is reached at that cost; -1 for none
    word_arcs: Longs  # the arcs with a word that leave them


class _Walk:
    """Walks through a lattice from word to word."""

    start = (np.zeros(1, dtype=np.int64), np.zeros(1))
    nowhere = (np.zeros(0, dtype=np.int64), np.zeros(0))

    def __init__(self, lattice: Lattice, cost: Doubles, final: Doubles) -> None:
        self.lattice = lattice
        self.cost = cost
        self.final = final
        self.to_end = least_to_end(lattice.source, lattice.target, cost, final)
        self._least = np.full(lattice.num_states, np.inf)
        self._entering = np.full(lattice.num_states, -1, dtype=np.int64)
        self._word_arcs = np.empty(lattice.num_arcs, dtype=np.int64)

    def from_states(
        self, states: Longs, costs: Doubles, limit: float, arcs: Longs | None = None
    ) -> _Reached:
        """Follow all arcs without a word from some states, which were entered by some arcs.

        Paths that cost the limit or more, however they end, are left out.
        """
        first, last, num_arcs = _walk(
            self.lattice.first_arc,
            self.lattice.target,
            self.lattice.word,
            self.cost,
            self.to_end,
            limit,
            states,
            costs,
            np.full(len(states), -1, dtype=np.int64) if arcs is None else arcs,
            self._least,
            self._entering,
            self._word_arcs,
        )
        window = slice(first, last + 1)
        reached = _Reached(
            first,
            last,
            self._least[window].copy(),
            self._entering[window].copy(),
            self._word_arcs[:num_arcs].copy(),
        )
        self._least[window] = np.inf
        self._entering[window] = -1
        return reached

    def along(self, words: tuple[int, ...], limit: float) -> Longs:
        """Return the arcs of the best path that has exactly these words, and is in the limit."""
        stages = [self.from_states(*self.start, limit)]
        for word in words:
            reached = stages[-1]
            arcs = reached.word_arcs[self.lattice.word[reached.word_arcs] == word]
            costs = reached.costs[self.lattice.source[arcs] - reached.first] + self.cost[arcs]
            targets = self.lattice.target[arcs].astype(np.int64)
            stages.append(self.from_states(targets, costs, limit, arcs))
        last = stages[-1]
        state = last.first + int(np.argmin(last.costs + self.final[last.first : last.last + 1]))
        way: list[int] = []
        for reached in reversed(stages):
            while (arc := int(reached.entering[state - reached.first])) >= 0:
                way.append(arc)
                state = int(self.lattice.source[arc])
                if self.lattice.word[arc] > 0:
                    break
        return np.array(way[::-1], dtype=np.int64)


@njit(cache=True)
def _walk(
    first_arc: Longs,
    target: Ints,
    word: Ints,
    cost: Doubles,
    to_end: Doubles,
    limit: float,
    states: Longs,
    costs: Doubles,
    arcs: Longs,
    least: Doubles,
    entering: Longs,
    word_arcs: Longs,
) -> tuple[int, int, int]:
    """Find what arcs without a word reach; return the first and last state and how many word arcs.

    `least` and `entering` must come as inf and -1 throughout, and are so outside what is returned.
    """
    first, last = states.min(), states.max()
    for place in range(len(states)):
        if costs[place] < least[states[place]]:
            least[states[place]] = costs[place]
            entering[states[place]] = arcs[place]
    num_word_arcs = 0
    state = first
    while state <= last:
        if least[state] < np.inf:
            for arc in range(first_arc[state], first_arc[state + 1]):
                through = least[state] + cost[arc]
                if through + to_end[target[arc]] >= limit:
                    continue
                if word[arc] > 0:
                    word_arcs[num_word_arcs] = arc
                    num_word_arcs += 1
                elif through < least[target[arc]]:
                    least[target[arc]] = through
                    entering[target[arc]] = arc
                    last = max(last, np.int64(target[arc]))
        state += 1
    return first, last, num_word_arcs
