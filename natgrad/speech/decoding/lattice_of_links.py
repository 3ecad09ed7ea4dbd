"""From the links of a finished search to a lattice; and from those of a running one to its best."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.decoding.lattice import Lattice, Path
from natgrad.speech.decoding.link_history import LinkHistory
from natgrad.speech.decoding.search_graph import SearchGraph

__all__ = ["lattice_of_links", "path_of_links"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]


def lattice_of_links(
    graph: SearchGraph, history: LinkHistory, last_final: Floats, reached_final: bool
) -> Lattice:
    """Return the lattice of a history that was finished.

    `last_final` has the final costs of its last frame's tokens.
    """
    num_frames = history.num_frames
    links, first_link, _, first_token = history.columns
    num_segments = 2 * num_frames + 1
    links = links[: first_link[num_segments]]
    segment = np.repeat(np.arange(num_segments), np.diff(first_link[: num_segments + 1]))
    source = first_token[segment // 2] + links["source"]
    target = first_token[(segment + 1) // 2] + links["target"]
    num_tokens = int(first_token[num_frames + 1])
    frame = np.repeat(np.arange(num_frames + 1), np.diff(first_token[: num_frames + 2]))
    depth = _depth_within_frame(source, target, segment, num_tokens)
    order = np.lexsort((depth, frame))  # stable: tokens stay as they were where nothing else rules
    number = np.empty(num_tokens, dtype=np.int32)
    number[order] = np.arange(num_tokens, dtype=np.int32)
    final = np.full(num_tokens, np.inf, dtype=np.float32)
    final[first_token[num_frames] :] = last_final
    by_source = np.argsort(number[source], kind="stable")
    arc = _origin(graph, links["arc"], segment % 2 == 1)[by_source]
    return Lattice(
        num_frames=num_frames,
        reached_final=reached_final,
        frame=frame.astype(np.int32),
        final=final[order],
        source=number[source[by_source]],
        target=number[target[by_source]],
        label=graph.graph.label[arc],
        word=graph.graph.word[arc],
        graph_cost=graph.graph.weight[arc],
        acoustic_cost=np.ascontiguousarray(links["acoustic"][by_source]),
    )


def path_of_links(graph: SearchGraph, history: LinkHistory, token: int) -> Path:
    """Return the best way to a token of the last frame."""
    way, frames, emitting = history.trace_back(token)
    links = history.columns.links[way]
    arc = _origin(graph, links["arc"], emitting)
    words = graph.graph.word[arc]
    return Path(
        words=tuple(words[words > 0].tolist()),
        alignment=graph.graph.label[arc[emitting]] - np.int32(1),
        graph_cost=float(graph.graph.weight[arc].sum(dtype=np.float64)),
        acoustic_cost=float(links["acoustic"].sum(dtype=np.float64)),
        word_begin_frames=tuple(frames[words > 0].tolist()),
    )


def _origin(graph: SearchGraph, arc: Ints, emitting: NDArray[np.bool_]) -> Ints:
    """Return the arcs of the graph that links followed."""
    origin = np.empty(len(arc), dtype=np.int32)
    origin[emitting] = graph.emitting_origin[arc[emitting]]
    origin[~emitting] = graph.epsilon_origin[arc[~emitting]]
    return origin


@njit(cache=True)
def _depth_within_frame(source: Longs, target: Longs, segment: Longs, num_tokens: int) -> Ints:
    """Return the longest way to each token by epsilon links: such links go to greater depths."""
    depth = np.zeros(num_tokens, dtype=np.int32)
    for link in range(len(source)):
        if segment[link] % 2 == 0:
            depth[target[link]] = max(depth[target[link]], depth[source[link]] + 1)
    return depth
