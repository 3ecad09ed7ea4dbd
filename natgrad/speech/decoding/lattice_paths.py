"""The cheapest ways through a lattice.

All rests on the order of a lattice's arcs: by source, and states so that every arc leads to a later
one. So when an arc is met, all ways to its source are known; and, from the other end, all ways on
from its target.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["ROUNDOFF", "best_way", "bound_arcs", "least_from_start", "least_to_end"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

ROUNDOFF = 1e-9  # relative, of costs along one path that were added up in another order


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
