"""Which of a frame's tokens are worth passing on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Beams", "choose_cutoff"]

Doubles = NDArray[np.float64]

EXTRA_BEAM = 0.5  # where the number of tokens sets the cutoff, the next frame gets this much more


class Beams(NamedTuple):
    """What is kept: see DecoderOptions."""

    beam: float
    max_active: int
    min_active: int
    lattice_beam: float


@njit(cache=True)
def choose_cutoff(
    cost: Doubles, num_tokens: int, beams: Beams, sorting: Doubles
) -> tuple[float, float]:
    """Return the cost above which tokens are not passed on, and the beam for the next frame."""
    if num_tokens <= beams.min_active:
        return np.inf, np.inf
    best = np.inf
    for token in range(num_tokens):
        best = min(best, cost[token])
    num_within = 0
    for token in range(num_tokens):
        num_within += cost[token] <= best + beams.beam
    if num_within > beams.max_active:
        cutoff = _select(cost, num_tokens, beams.max_active - 1, sorting)
        return cutoff, min(cutoff - best + EXTRA_BEAM, beams.beam)
    if num_within < beams.min_active:
        cutoff = _select(cost, num_tokens, beams.min_active - 1, sorting)
        return cutoff, cutoff - best + EXTRA_BEAM
    return best + beams.beam, beams.beam


@njit(cache=True)
def _select(cost: Doubles, num_tokens: int, rank: int, sorting: Doubles) -> float:
    """Return the cost that `rank` others are not above."""
    sorting[:num_tokens] = cost[:num_tokens]
    low, high = 0, num_tokens - 1
    while low < high:
        pivot = sorting[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while sorting[left] < pivot:
                left += 1
            while sorting[right] > pivot:
                right -= 1
            if left <= right:
                sorting[left], sorting[right] = sorting[right], sorting[left]
                left += 1
                right -= 1
        if rank <= right:
            high = right
        elif rank >= left:
            low = left
        else:
            break
    return float(sorting[rank])
