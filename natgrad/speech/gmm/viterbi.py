"""The compiled inner loops of alignment: searches for one best path through a graph.

They always get the same types, so that each is compiled once. Ties go to the path that was found
first: same input, same path.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["FOUND", "NOT_A_NUMBER", "NOT_FINAL", "NO_TOKENS", "Network", "best_path", "flat_path"]

FOUND, NO_TOKENS, NOT_FINAL, NOT_A_NUMBER = range(4)

LEAST_GAIN = 1e-4  # of cost: rounding must not make a cycle look worth its while

Array = NDArray[Any]


class Network(NamedTuple):
    """The arrays of a `Graph`, in a form that compiled code can take."""

    start: int
    first_arc: NDArray[np.int64]
    label: NDArray[np.int32]
    weight: NDArray[np.float32]
    target: NDArray[np.int32]
    final: NDArray[np.float32]


class _Front(NamedTuple):
    """The tokens of one frame: the best path's cost and number by state, and which states."""

    cost: NDArray[np.float64]
    token: NDArray[np.int32]
    active: NDArray[np.int32]


class _Tokens(NamedTuple):
    """All tokens: the arc that led to each, and from which token (-1 at the start)."""

    arc: NDArray[np.int32]
    before: NDArray[np.int32]


@njit(cache=True)
def _new_front(num_states: int) -> _Front:
    return _Front(
        np.full(num_states, np.inf),
        np.zeros(num_states, np.int32),
        np.zeros(num_states, np.int32),
    )


@njit(cache=True)
def _with_room(tokens: _Tokens, num_tokens: int, room: int) -> _Tokens:
    if num_tokens + room <= len(tokens.arc):
        return tokens
    arc = np.empty(2 * len(tokens.arc) + room, np.int32)
    before = np.empty(len(arc), np.int32)
    arc[:num_tokens] = tokens.arc[:num_tokens]
    before[:num_tokens] = tokens.before[:num_tokens]
    return _Tokens(arc, before)


@njit(cache=True)
def _trace(tokens: _Tokens, token: int) -> Array:
    """The arcs that led to a token, first to last."""
    length = 0
    walker = token
    while tokens.before[walker] >= 0:
        length += 1
        walker = tokens.before[walker]
    arcs = np.empty(length, np.int64)
    while length:
        length -= 1
        arcs[length] = tokens.arc[token]
        token = tokens.before[token]
    return arcs


@njit(cache=True)
def _pass_epsilons(
    graph: Network,
    front: _Front,
    num_active: int,
    tokens: _Tokens,
    num_tokens: int,
    queue: Array,
    queued: Array,
) -> tuple[int, int]:
    """Go along the arcs that take no frame; return the numbers of active states and of tokens.

    First in, first out: each state is passed at most once for each state there is, unless there
    is a cycle that costs less than nothing.
    """
    num_states = len(graph.final)
    length, head, passes_left = num_active, 0, num_states * num_states
    for place in range(num_active):
        queue[place] = front.active[place]
        queued[front.active[place]] = True
    while length:
        state = queue[head]
        head = (head + 1) % num_states
        length -= 1
        queued[state] = False
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            reached = graph.target[arc]
            cost = front.cost[state] + graph.weight[arc]
            if graph.label[arc] != 0 or not cost < front.cost[reached]:
                continue
            if front.cost[reached] == np.inf:
                front.token[reached] = num_tokens
                num_tokens += 1
                front.active[num_active] = reached
                num_active += 1
            front.cost[reached] = cost
            tokens.arc[front.token[reached]] = arc
            tokens.before[front.token[reached]] = front.token[state]
            if not queued[reached]:
                queued[reached] = True
                queue[(head + length) % num_states] = reached
                length += 1
        passes_left -= 1
        if passes_left < 0:
            raise ValueError("the graph has a cycle of epsilon arcs that costs less than nothing")
    return num_active, num_tokens


@njit(cache=True)
def _take_frame(
    graph: Network,
    acoustic_cost: Array,
    beam: float,
    front: _Front,
    num_active: int,
    after: _Front,
    tokens: _Tokens,
    num_tokens: int,
) -> tuple[int, int, bool]:
    """Go along the arcs that take a frame, from the states within the beam, and clear `front`.

    Returns the number of active states of `after`, of tokens, and whether all costs are numbers.
    """
    best = 0
    for place in range(1, num_active):
        if front.cost[front.active[place]] < front.cost[front.active[best]]:
            best = place
    # The best goes first: what it reaches shows early which others are not worth a token.
    front.active[0], front.active[best] = front.active[best], front.active[0]
    cutoff = front.cost[front.active[0]] + beam
    cutoff_after = np.inf
    num_after = 0
    for place in range(num_active):
        state = front.active[place]
        cost_here = front.cost[state]
        front.cost[state] = np.inf
        if place > 0 and not cost_here < cutoff:
            continue
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            if graph.label[arc] == 0:
                continue
            cost = cost_here + graph.weight[arc] + acoustic_cost[graph.label[arc]]
            reached = graph.target[arc]
            if cost != cost:
                return num_after, num_tokens, False
            if not (cost < cutoff_after and cost < after.cost[reached]):
                continue
            if after.cost[reached] == np.inf:
                after.token[reached] = num_tokens
                num_tokens += 1
                after.active[num_after] = reached
                num_after += 1
            after.cost[reached] = cost
            tokens.arc[after.token[reached]] = arc
            tokens.before[after.token[reached]] = front.token[state]
            cutoff_after = min(cutoff_after, cost + beam)
    return num_after, num_tokens, True


@njit(cache=True)
def best_path(
    graph: Network,
    pdf_of_label: Array,
    log_likelihoods: Array,
    acoustic_scale: float,
    beam: float,
) -> tuple[int, int, Array]:
    """Return how the search ended, at which frame, and the arcs of the best path.

    A token is a path up to a frame and a state: of those that meet in a state the cheapest stays.
    Before each frame, tokens that are `beam` or more worse than the best are dropped.
    """
    num_states, num_frames = len(graph.final), len(log_likelihoods)
    front, after = _new_front(num_states), _new_front(num_states)
    queue, queued = np.zeros(num_states, np.int32), np.zeros(num_states, np.bool_)
    tokens = _Tokens(np.full(1, -1, np.int32), np.full(1, -1, np.int32))
    is_used = np.zeros(len(pdf_of_label), np.bool_)
    for label in graph.label:
        is_used[label] = True
    labels = np.flatnonzero(is_used[1:]) + 1
    acoustic_cost = np.zeros(len(pdf_of_label))
    no_arcs = np.empty(0, np.int64)

    front.cost[graph.start] = 0.0
    front.active[0] = graph.start
    num_active, num_tokens = 1, 1
    for frame in range(num_frames + 1):
        tokens = _with_room(tokens, num_tokens, 2 * num_states)
        if is_used[0]:
            num_active, num_tokens = _pass_epsilons(
                graph, front, num_active, tokens, num_tokens, queue, queued
            )
        if frame == num_frames:
            break
        for label in labels:
            acoustic_cost[label] = -acoustic_scale * log_likelihoods[frame, pdf_of_label[label]]
        num_active, num_tokens, are_numbers = _take_frame(
            graph, acoustic_cost, beam, front, num_active, after, tokens, num_tokens
        )
        if not are_numbers:
            return NOT_A_NUMBER, frame, no_arcs
        if num_active == 0:
            return NO_TOKENS, frame, no_arcs
        front, after = after, front

    least, end = np.inf, -1
    for state in front.active[:num_active]:
        cost = front.cost[state] + graph.final[state]
        if cost < least:
            least, end = cost, state
    if end < 0:
        return NOT_FINAL, num_frames, no_arcs
    return FOUND, num_frames, _trace(tokens, int(front.token[end]))


@njit(cache=True)
def _shortest(graph: Network, is_silence: Array, edges: int) -> tuple[Array, Array, _Tokens]:
    """Frames and cost of the best path to each node, and the arc and node before it.

    A node is a state with what is known of the path to it: nothing was emitted yet (3 state + 0),
    the last label was of speech (+ 1), or of silence (+ 2).
    """
    num_nodes = 3 * len(graph.final)
    frames, cost = np.full(num_nodes, np.iinfo(np.int64).max), np.full(num_nodes, np.inf)
    before = _Tokens(np.full(num_nodes, -1, np.int32), np.full(num_nodes, -1, np.int32))
    queue, queued = np.zeros(num_nodes, np.int32), np.zeros(num_nodes, np.bool_)
    root = 3 * graph.start
    frames[root], cost[root] = 0, 0.0
    queue[0], queued[root] = root, True
    head, length, passes_left = 0, 1, num_nodes * num_nodes
    while length:
        node = queue[head]
        head = (head + 1) % num_nodes
        length -= 1
        queued[node] = False
        state, seen = node // 3, node % 3
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            label = graph.label[arc]
            now = seen if label == 0 else 2 if is_silence[label - 1] else 1
            if graph.target[arc] == state or (seen == 0 and edges & 1 and now == 1):
                continue
            reached = 3 * graph.target[arc] + now
            new_frames, new_cost = frames[node] + (label != 0), cost[node] + graph.weight[arc]
            gain = cost[reached] - new_cost
            if new_frames > frames[reached] or (
                new_frames == frames[reached] and gain < LEAST_GAIN
            ):
                continue
            frames[reached], cost[reached] = new_frames, new_cost
            before.arc[reached], before.before[reached] = arc, node
            if not queued[reached]:
                queued[reached] = True
                queue[(head + length) % num_nodes] = reached
                length += 1
        passes_left -= 1
        if passes_left < 0:
            raise ValueError("the graph has a cycle of epsilon arcs that costs less than nothing")
    return frames, cost, before


@njit(cache=True)
def flat_path(graph: Network, is_silence: Array, edges: int) -> tuple[bool, Array]:
    """Return whether there is a path, and the arcs of the one that needs the fewest frames.

    Of paths that need as many, the one of least cost. Self-loops are not taken. With bit 1 of
    `edges` set, only a path whose first label is of silence will do; with bit 2, whose last is.
    """
    frames, cost, before = _shortest(graph, is_silence, edges)
    best = -1
    for node in range(len(frames)):
        end = cost[node] + graph.final[node // 3]
        if end == np.inf or (edges & 2 and node % 3 != 2):
            continue
        if (
            best < 0
            or frames[node] < frames[best]
            or (frames[node] == frames[best] and end < cost[best] + graph.final[best // 3])
        ):
            best = node
    if best < 0:
        return False, np.empty(0, np.int64)
    return True, _trace(before, best)
