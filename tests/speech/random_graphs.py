"""Small random decoding graphs, and every way through them, by definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.decoding.lattice import Lattice, Path
from natgrad.speech.graphs.graph import Graph

NUM_LABELS = 5
PDF_OF_LABEL = np.array([-1, 2, 0, 1, 3, 0], dtype=np.int32)
NUM_PDFS = 4


class Way(NamedTuple):
    labels: tuple[int, ...]
    words: tuple[int, ...]
    graph_cost: float
    acoustic_cost: float

    def cost(self, acoustic_scale: float) -> float:
        return self.graph_cost + acoustic_scale * self.acoustic_cost


def random_graph(
    seed: int, num_states: int = 4, num_arcs: int = 9, num_words: int = 3, epsilons: bool = True
) -> Graph:
    """Every state has a self-loop; epsilon arcs go to later states only, so that they end."""
    rng = np.random.default_rng(seed)
    loops = np.arange(num_states)
    source = np.concatenate([loops, rng.integers(num_states, size=num_arcs)])
    target = np.concatenate([loops, rng.integers(num_states, size=num_arcs)])
    label = rng.integers(1, NUM_LABELS + 1, size=num_states + num_arcs)
    if epsilons:
        chance = rng.random(num_states + num_arcs) < 0.4
        label[(target > source) & chance] = 0
    word = np.where(rng.random(len(label)) < 0.5, rng.integers(1, num_words + 1, len(label)), 0)
    word[:num_states] = 0
    weight = rng.exponential(1.0, len(label)).astype(np.float32)
    final = np.where(rng.random(num_states) < 0.5, rng.exponential(1.0, num_states), np.inf)
    order = np.argsort(source, kind="stable")
    return Graph(
        start=int(rng.integers(num_states)),
        first_arc=np.searchsorted(source[order], np.arange(num_states + 1)).astype(np.int64),
        label=label[order].astype(np.int32),
        word=word[order].astype(np.int32),
        weight=weight[order],
        target=target[order].astype(np.int32),
        final=final.astype(np.float32),
    )


def random_scores(seed: int, num_frames: int) -> NDArray[np.float32]:
    rng = np.random.default_rng([seed, 1])
    return rng.normal(-30.0, 10.0, (num_frames, NUM_PDFS)).astype(np.float32)


def ways_through(
    graph: Graph, log_likelihoods: NDArray[np.float32], use_final: bool = True
) -> list[Way]:
    """Every path from the start that takes all frames, and that may end if it must."""

    def extend(state: int, frame: int) -> Iterator[tuple[list[int], float]]:
        if frame == len(log_likelihoods):
            ending = float(graph.final[state]) if use_final else 0.0
            if ending < np.inf:
                yield [], ending
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            after = frame + bool(graph.label[arc] > 0)
            if after <= len(log_likelihoods):
                for arcs, ending in extend(int(graph.target[arc]), after):
                    yield [arc, *arcs], ending

    return [
        _way(graph, log_likelihoods, np.array(arcs, dtype=np.int64), ending)
        for arcs, ending in extend(graph.start, 0)
    ]


def _way(
    graph: Graph, log_likelihoods: NDArray[np.float32], arcs: NDArray[np.int64], ending: float
) -> Way:
    labels, words = graph.label[arcs], graph.word[arcs]
    labels, words = labels[labels > 0], words[words > 0]
    scores = log_likelihoods[np.arange(len(labels)), PDF_OF_LABEL[labels]]
    return Way(
        tuple(labels.tolist()),
        tuple(words.tolist()),
        float(graph.weight[arcs].sum(dtype=np.float64)) + ending,
        -float(scores.sum(dtype=np.float64)),
    )


def arcs_through_lattice(lattice: Lattice, state: int = 0) -> Iterator[list[int]]:
    """The arcs of every path of a lattice."""
    if np.isfinite(lattice.final[state]):
        yield []
    for arc in np.flatnonzero(lattice.source == state).tolist():
        for arcs in arcs_through_lattice(lattice, int(lattice.target[arc])):
            yield [arc, *arcs]


def way_of(path: Path) -> Way:
    labels = tuple((path.alignment + 1).tolist())
    return Way(labels, path.words, path.graph_cost, path.acoustic_cost)
