"""The fewest errors that any path of a lattice has against the words that were said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

if TYPE_CHECKING:
    from natgrad.speech.decoding.lattice import Lattice

__all__ = ["count_oracle_errors"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

UNREACHED = 1 << 29  # more errors than any path has, and no overflow when some are added


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
    errors = np.full((num_states, length + 1), UNREACHED, dtype=np.int32)
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
