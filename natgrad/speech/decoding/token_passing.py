"""One frame of beam search, compiled: tokens pass along arcs and leave links behind.

A token is a state of the graph that can be reached within the frames taken so far, with the cost of
the cheapest way there. A link is one way from a token to another; its slack is by how much that way
is dearer than the cheapest to the same token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.decoding.beams import Beams, choose_cutoff
from natgrad.speech.decoding.search_graph import SearchArrays

__all__ = [
    "LINK",
    "Buffers",
    "FrameCounts",
    "Tokens",
    "begin",
    "make_buffers",
    "make_tokens",
    "pass_frame",
]

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

# source and target count the tokens of their frame; arc counts the emitting or the epsilon arcs of
# a SearchGraph. The acoustic cost is not scaled.
LINK = np.dtype(
    [
        ("source", np.int32),
        ("target", np.int32),
        ("arc", np.int32),
        ("acoustic", np.float32),
        ("slack", np.float32),
    ]
)
FULL = -1  # instead of a number of tokens: the buffers are too small for this frame
LINKS_PER_TOKEN = 4  # that there is room for


class Tokens(NamedTuple):
    """The tokens of one frame, in arrays that may be longer."""

    state: Ints
    cost: Doubles


class Buffers(NamedTuple):
    """Where a frame is worked on. Contents do not matter from one frame to the next."""

    links: NDArray[np.void]
    through: Doubles  # for each link, the cost of the way that ends in it
    chain: Ints  # for each token, the next of the same level; later its new number
    head: Ints  # for each level, a token
    sorting: Doubles


class FrameCounts(NamedTuple):
    """How many tokens a frame has, and links lead to it and are within it (in this order)."""

    num_tokens: int  # or FULL
    num_emitting: int
    num_epsilon: int
    num_made: int  # tokens made, kept or not: their numbers in token_of_state are used up


def make_tokens(capacity: int) -> Tokens:
    """Return room for tokens."""
    return Tokens(np.empty(capacity, dtype=np.int32), np.empty(capacity, dtype=np.float64))


def make_buffers(num_tokens: int, num_levels: int) -> Buffers:
    """Return room to work in."""
    num_links = LINKS_PER_TOKEN * num_tokens
    return Buffers(
        np.empty(num_links, dtype=LINK),
        np.empty(num_links, dtype=np.float64),
        np.empty(num_tokens, dtype=np.int32),
        np.empty(num_levels, dtype=np.int32),
        np.empty(num_tokens, dtype=np.float64),
    )


@njit(cache=True)
def begin(
    graph: SearchArrays,
    start: int,
    token_of_state: Ints,
    base: int,
    beams: Beams,
    after: Tokens,
    buffers: Buffers,
) -> FrameCounts:
    """Make the tokens of frame 0: the start, and what epsilons reach from there."""
    after.state[0] = start
    after.cost[0] = 0.0
    token_of_state[start] = base
    num_made, num_links = _close(graph, token_of_state, base, 1, 0, beams.beam, after, buffers)
    if num_made == FULL:
        return FrameCounts(FULL, 0, 0, len(after.state))
    return _keep(num_made, 0, num_links, beams.beam, beams.lattice_beam, after, buffers)


@njit(cache=True)
def pass_frame(
    graph: SearchArrays,
    token_of_state: Ints,
    base: int,
    beams: Beams,
    now: Tokens,
    num_now: int,
    acoustic: Floats,
    scaled: Floats,
    after: Tokens,
    buffers: Buffers,
) -> FrameCounts:
    """Take one frame: from the tokens `now` to those `after` it.

    `acoustic` and `scaled` are the frame's cost of each pdf, without and with its scale.
    token_of_state[s] is base + the number of state s's token; anything less, and it has none.
    """
    cutoff, beam = choose_cutoff(now.cost, num_now, beams, buffers.sorting)
    bounds = (cutoff, beam, beams.lattice_beam)
    num_made, num_emitting, limit = _emit(
        graph, token_of_state, base, bounds, now, num_now, acoustic, scaled, after, buffers
    )
    if num_made == FULL:
        return FrameCounts(FULL, 0, 0, len(after.state))
    num_made, num_links = _close(
        graph, token_of_state, base, num_made, num_emitting, limit, after, buffers
    )
    if num_made == FULL:
        return FrameCounts(FULL, 0, 0, len(after.state))
    return _keep(num_made, num_emitting, num_links, limit, beams.lattice_beam, after, buffers)


@njit(cache=True)
def _emit(
    graph: SearchArrays,
    token_of_state: Ints,
    base: int,
    bounds: tuple[float, float, float],
    now: Tokens,
    num_now: int,
    acoustic: Floats,
    scaled: Floats,
    after: Tokens,
    buffers: Buffers,
) -> tuple[int, int, float]:
    """Follow emitting arcs; return the number of tokens (or FULL), of links, and a cost limit.

    The limit is the best cost plus the beam: it falls as better tokens are met.
    """
    cutoff, beam, lattice_beam = bounds
    least = np.float64(scaled.min())
    limit = _estimate_limit(graph, now, num_now, scaled, beam)
    num_made = 0
    num_links = 0
    for token in range(num_now):
        cost = now.cost[token]
        if cost > cutoff:
            continue
        state = now.state[token]
        for arc in range(graph.first_emitting[state], graph.first_emitting[state + 1]):
            record = graph.emitting[arc]
            total = cost + record.weight
            if total + least >= limit:
                break  # later arcs weigh more
            total += scaled[record.pdf]
            if total >= limit:
                continue
            limit = min(limit, total + beam)
            there = token_of_state[record.target] - base
            if there < 0:
                if num_made == len(after.state):
                    return FULL, 0, limit
                there = num_made
                num_made += 1
                token_of_state[record.target] = base + there
                after.state[there] = record.target
                after.cost[there] = total
            elif total < after.cost[there]:
                after.cost[there] = total
            elif total > after.cost[there] + lattice_beam:
                continue
            if num_links == len(buffers.links):
                return FULL, 0, limit
            link = buffers.links[num_links]
            link.source = token
            link.target = there
            link.arc = arc
            link.acoustic = acoustic[record.pdf]
            buffers.through[num_links] = total
            num_links += 1
    return num_made, num_links, limit


@njit(cache=True)
def _estimate_limit(
    graph: SearchArrays, now: Tokens, num_now: int, scaled: Floats, beam: float
) -> float:
    """Return a bound on the next frame's costs from the best token alone, before all others.

    Without it, the tokens that come first would make tokens that are all too dear in the end.
    """
    best = 0
    for token in range(num_now):
        if now.cost[token] < now.cost[best]:
            best = token
    limit = np.inf
    state = now.state[best]
    for arc in range(graph.first_emitting[state], graph.first_emitting[state + 1]):
        record = graph.emitting[arc]
        limit = min(limit, now.cost[best] + record.weight + scaled[record.pdf] + beam)
    return limit


@njit(cache=True)
def _close(
    graph: SearchArrays,
    token_of_state: Ints,
    base: int,
    num_made: int,
    num_links: int,
    limit: float,
    after: Tokens,
    buffers: Buffers,
) -> tuple[int, int]:
    """Follow epsilon arcs, level by level; return the number of tokens (or FULL) and of links."""
    head, chain = buffers.head, buffers.chain
    head[:] = -1
    for token in range(num_made):
        level = graph.level[after.state[token]]
        if level >= 0 and after.cost[token] < limit:
            chain[token] = head[level]
            head[level] = token
    for at in range(len(head)):
        token = head[at]
        while token >= 0:
            cost = after.cost[token]
            state = after.state[token]
            for arc in range(graph.first_epsilon[state], graph.first_epsilon[state + 1]):
                record = graph.epsilon[arc]
                total = cost + record.weight
                if total >= limit:
                    break  # later arcs weigh more
                there = token_of_state[record.target] - base
                before = np.inf
                if there < 0:
                    if num_made == len(after.state):
                        return FULL, 0
                    there = num_made
                    num_made += 1
                    token_of_state[record.target] = base + there
                    after.state[there] = record.target
                    after.cost[there] = total
                else:
                    before = after.cost[there]
                    after.cost[there] = min(before, total)
                if before >= limit:
                    level = graph.level[record.target]
                    if level >= 0:
                        chain[there] = head[level]
                        head[level] = there
                if num_links == len(buffers.links):
                    return FULL, 0
                link = buffers.links[num_links]
                link.source = token
                link.target = there
                link.arc = arc
                link.acoustic = 0.0
                buffers.through[num_links] = total
                num_links += 1
            token = chain[token]
    return num_made, num_links


@njit(cache=True)
def _keep(
    num_made: int,
    num_emitting: int,
    num_links: int,
    limit: float,
    lattice_beam: float,
    after: Tokens,
    buffers: Buffers,
) -> FrameCounts:
    """Move up the tokens within the limit and the links within the lattice beam; set slacks."""
    number = buffers.chain
    num_tokens = 0
    for token in range(num_made):
        cost = after.cost[token]
        number[token] = -1
        if cost < limit:
            number[token] = num_tokens
            after.cost[num_tokens] = cost
            after.state[num_tokens] = after.state[token]
            num_tokens += 1
    num_kept = 0
    num_kept_emitting = 0
    for place in range(num_links):
        if place == num_emitting:
            num_kept_emitting = num_kept
        link = buffers.links[place]
        target = number[link.target]
        if target < 0:
            continue
        slack = buffers.through[place] - after.cost[target]
        if slack > lattice_beam:
            continue
        kept = buffers.links[num_kept]
        kept.source = link.source if place < num_emitting else number[link.source]
        kept.target = target
        kept.arc = link.arc
        kept.acoustic = link.acoustic
        kept.slack = slack
        num_kept += 1
    if num_links == num_emitting:
        num_kept_emitting = num_kept
    return FrameCounts(num_tokens, num_kept_emitting, num_kept - num_kept_emitting, num_made)
