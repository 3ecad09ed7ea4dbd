"""Searches through a lattice: the best path, the n best word sequences, the least errors.

All rest on the order of a lattice's arcs: by source, and states so that every arc leads to a later
one. So when an arc is met, all ways to its source are known; and, from the other end, all ways on
from its target.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from natgrad.speech.lattice import Lattice

__all__ = ["best_way", "bound_arcs", "count_oracle_errors", "find_n_best"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]


@njit(cache=True)
def best_way(source: Ints, target: Ints, cost: Doubles, final: Doubles) -> Longs:
    """Return the arcs of the path that costs least."""
    num_states, num_arcs = len(final), len(source)
    least = np.full(num_states, np.inf)
    least[0] = 0.0
    entering = np.full(num_states, -1, dtype=np.int64)
    for arc in range(num_arcs):
        through = least[source[arc]] + cost[arc]
        if through < least[target[arc]]:
            least[target[arc]] = through
            entering[target[arc]] = arc
    state = np.argmin(least + final)
    length = 0
    at = state
    while entering[at] >= 0:
        at = source[entering[at]]
        length += 1
    way = np.empty(length, dtype=np.int64)
    while entering[state] >= 0:
        length -= 1
        way[length] = entering[state]
        state = source[entering[state]]
    return way


@njit(cache=True)
def least_from_start(source: Ints, target: Ints, cost: Doubles, num_states: int) -> Doubles:
    """Return the least cost from the start to each state."""
    least = np.full(num_states, np.inf)
    least[0] = 0.0
    for arc in range(len(source)):
        least[target[arc]] = min(least[target[arc]], least[source[arc]] + cost[arc])
    return least


@njit(cache=True)
def least_to_end(source: Ints, target: Ints, cost: Doubles, final: Doubles) -> Doubles:
    """Return the least cost from each state to an end."""
    least = final.copy()
    for arc in range(len(source) - 1, -1, -1):
        least[source[arc]] = min(least[source[arc]], least[target[arc]] + cost[arc])
    return least


def bound_arcs(
    source: Ints, target: Ints, cost: Doubles, final: Doubles
) -> tuple[Doubles, Doubles, float]:
    """Return the least cost of a path with each arc, of one that ends in each state, and of any."""
    before = least_from_start(source, target, cost, len(final))
    after = least_to_end(source, target, cost, final)
    return before[source] + cost + after[target], before + final, float(after[0])


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
    least = least_to_end(lattice.source, lattice.target, cost, final)
    walk = _Walk(lattice, cost)
    start = (np.zeros(1, dtype=np.int64), np.zeros(1))
    heap = [_Hypothesis(float(least[0]), 0, (), False, *start)]
    found: list[Longs] = []
    num_made = 1
    while heap and len(found) < num_paths:
        hypothesis = heapq.heappop(heap)
        if hypothesis.complete:
            found.append(walk.along(hypothesis.words, final))
            continue
        for child in _children(walk, hypothesis, least, final, num_made):
            heap.append(child)
            num_made += 1
        heap = heapq.nsmallest(num_paths - len(found), heap)  # sorted, hence a heap
    return found


def _children(
    walk: _Walk, hypothesis: _Hypothesis, least: Doubles, final: Doubles, serial: int
) -> Iterator[_Hypothesis]:
    """Yield the sequence that ends here, if any does, and the sequences with one word more."""
    reached = walk.from_states(hypothesis.states, hypothesis.costs)
    ending = float((reached.costs + final[reached.first : reached.last + 1]).min())
    if ending < np.inf:
        yield _Hypothesis(ending, serial, hypothesis.words, True, *walk.nowhere)
        serial += 1
    arcs = reached.word_arcs
    words = walk.lattice.word[arcs]
    targets = walk.lattice.target[arcs].astype(np.int64)
    costs = reached.costs[walk.lattice.source[arcs] - reached.first] + walk.cost[arcs]
    order = np.argsort(words, kind="stable")
    breaks = np.flatnonzero(np.diff(words[order], prepend=-1, append=-1))
    for begin, end in pairwise(breaks):
        chosen = order[begin:end]
        best = float((costs[chosen] + least[targets[chosen]]).min())
        if best < np.inf:
            sequence = (*hypothesis.words, int(words[chosen[0]]))
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

    nowhere = (np.zeros(0, dtype=np.int64), np.zeros(0))

    def __init__(self, lattice: Lattice, cost: Doubles) -> None:
        self.lattice = lattice
        self.cost = cost
        self._least = np.full(lattice.num_states, np.inf)
        self._entering = np.full(lattice.num_states, -1, dtype=np.int64)
        self._word_arcs = np.empty(lattice.num_arcs, dtype=np.int64)

    def from_states(self, states: Longs, costs: Doubles, arcs: Longs | None = None) -> _Reached:
        """Follow all arcs without a word from some states, which were entered by some arcs."""
        first, last, num_arcs = _walk(
            self.lattice.first_arc,
            self.lattice.target,
            self.lattice.word,
            self.cost,
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

    def along(self, words: tuple[int, ...], final: Doubles) -> Longs:
        """Return the arcs of the best path that has exactly these words."""
        stages = [self.from_states(np.zeros(1, dtype=np.int64), np.zeros(1))]
        for word in words:
            reached = stages[-1]
            arcs = reached.word_arcs[self.lattice.word[reached.word_arcs] == word]
            costs = reached.costs[self.lattice.source[arcs] - reached.first] + self.cost[arcs]
            targets = self.lattice.target[arcs].astype(np.int64)
            stages.append(self.from_states(targets, costs, arcs))
        last = stages[-1]
        state = last.first + int(np.argmin(last.costs + final[last.first : last.last + 1]))
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
                if word[arc] > 0:
                    word_arcs[num_word_arcs] = arc
                    num_word_arcs += 1
                    continue
                through = least[state] + cost[arc]
                if through < least[target[arc]]:
                    least[target[arc]] = through
                    entering[target[arc]] = arc
                    last = max(last, np.int64(target[arc]))
        state += 1
    return first, last, num_word_arcs


def count_oracle_errors(lattice: Lattice, reference: Ints) -> tuple[int, tuple[int, ...]]:
    """Return the fewest errors of any path against the reference, and that path's words."""
    columns = (lattice.first_arc, lattice.target, lattice.word)
    ends = np.isfinite(lattice.final)
    errors = _count_errors(*columns, ends, reference)
    words = _trace_errors(*columns, ends, reference, errors)
    return int(errors[0, 0]), tuple(words[words > 0].tolist())


@njit(cache=True)
def _count_errors(
    first_arc: Longs, target: Ints, word: Ints, ends: NDArray[np.bool_], reference: Ints
) -> Ints:
    """Return the fewest errors from each state on, against the reference's words from each on."""
    num_states, length = len(ends), len(reference)
    errors = np.full((num_states, length + 1), 1 << 29, dtype=np.int32)
    for state in range(num_states - 1, -1, -1):
        here = errors[state]
        if ends[state]:
            here[length] = 0
        for arc in range(first_arc[state], first_arc[state + 1]):
            there = errors[target[arc]]
            if word[arc] == 0:
                for place in range(length + 1):
                    here[place] = min(here[place], there[place])
                continue
            for place in range(length):
                here[place] = min(here[place], there[place] + 1)
                here[place] = min(here[place], there[place + 1] + (word[arc] != reference[place]))
            here[length] = min(here[length], there[length] + 1)
        for place in range(length - 1, -1, -1):
            here[place] = min(here[place], here[place + 1] + 1)
    return errors


@njit(cache=True)
def _trace_errors(
    first_arc: Longs,
    target: Ints,
    word: Ints,
    ends: NDArray[np.bool_],
    reference: Ints,
    errors: Ints,
) -> Ints:
    """Return the words (and zeros) along a path that has the fewest errors."""
    length = len(reference)
    words = np.zeros(len(ends), dtype=np.int32)
    num_words = 0
    state, place = np.int64(0), 0
    while not (ends[state] and errors[state, place] == length - place):
        rest = errors[state, place]
        if place < length and errors[state, place + 1] + 1 == rest:
            place += 1
            continue
        for arc in range(first_arc[state], first_arc[state + 1]):
            there = errors[target[arc]]
            if word[arc] == 0:
                matched, step = there[place] == rest, 0
            elif place < length and there[place + 1] + (word[arc] != reference[place]) == rest:
                matched, step = True, 1
            else:
                matched, step = there[place] + 1 == rest, 0
            if matched:
                words[num_words] = word[arc]
                num_words += 1
                state, place = np.int64(target[arc]), place + step
                break
    return words[:num_words]
