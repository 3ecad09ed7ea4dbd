"""How probable arcs of a lattice are, by the forward-backward algorithm."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["StatePosteriors", "arc_posteriors", "merge_by_state"]

Ints = NDArray[np.int32]
Doubles = NDArray[np.float64]


class StatePosteriors(NamedTuple):
    """Entry i: at `frame[i]`, HMM state `state[i]` has the probability `weight[i]`.

    Sorted by frame, then state. A frame's weights sum to 1.
    """

    frame: Ints
    state: Ints
    weight: Doubles


def merge_by_state(frame: Ints, state: Ints, weight: Doubles) -> StatePosteriors:
    """Add up the weights of the same state at the same frame.

    >>> frame, state = np.array([0, 0, 0], np.int32), np.array([7, 4, 7], np.int32)
    >>> merge_by_state(frame, state, np.array([0.25, 0.5, 0.25]))
    StatePosteriors(frame=array([0, 0], dtype=int32), state=array([4, 7], dtype=int32), \
weight=array([0.5, 0.5]))
    """
    num_states = int(state.max(initial=0)) + 1
    keys, places = np.unique(frame.astype(np.int64) * num_states + state, return_inverse=True)
    weights = np.bincount(places, weights=weight, minlength=len(keys)).astype(np.float64)
    return StatePosteriors(
        (keys // num_states).astype(np.int32), (keys % num_states).astype(np.int32), weights
    )


@njit(cache=True)
def arc_posteriors(source: Ints, target: Ints, cost: Doubles, final: Doubles) -> Doubles:
    """Return the posterior of each arc of a lattice (see Lattice for the order of its arcs)."""
    num_states, num_arcs = len(final), len(source)
    forward = np.full(num_states, -np.inf)
    forward[0] = 0.0
    for arc in range(num_arcs):
        forward[target[arc]] = np.logaddexp(forward[target[arc]], forward[source[arc]] - cost[arc])
    backward = -final
    for arc in range(num_arcs - 1, -1, -1):
        backward[source[arc]] = np.logaddexp(
            backward[source[arc]], backward[target[arc]] - cost[arc]
        )
    posterior = np.empty(num_arcs)
    for arc in range(num_arcs):
        through = forward[source[arc]] - cost[arc] + backward[target[arc]]
        posterior[arc] = np.exp(through - backward[0])
    return posterior
