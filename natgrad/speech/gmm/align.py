"""Alignment: which HMM state each frame of an utterance belongs to, given what was said.

An utterance that cannot be aligned is no exception: it gives an `AlignmentFailure` that says why,
and others go on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.viterbi import (
    FOUND,
    NO_TOKENS,
    NOT_A_NUMBER,
    Network,
    best_path,
    flat_path,
)
from natgrad.speech.graphs.graph import Graph

__all__ = ["Alignment", "AlignmentFailure", "align", "equal_alignment"]

Ints = NDArray[np.int32]

SILENT_START, SILENT_END = 1, 2  # bits, for flat_path


@dataclass(frozen=True, eq=False)
class Alignment:
    """The best path of an utterance through its graph.

    A word begins at the frame of the arc that carries it: where the graph says the word early, as
    training graphs do, the first frame of its first phone.
    """

    states: Ints  # (T,) HMM states
    words: Ints  # (W,) numbers of words
    begin_frames: Ints  # (W,) where each begins
    graph_cost: float
    log_likelihood: float  # of all frames, not scaled
    beam: float  # with which the path was found

    @property
    def num_frames(self) -> int:
        """The number of frames."""
        return len(self.states)


@dataclass(frozen=True)
class AlignmentFailure:
    """Why an utterance has no alignment."""

    reason: str


def align(
    graph: Graph,
    pdf_of_label: Ints,
    log_likelihoods: NDArray[np.float32],
    acoustic_scale: float = 0.1,
    beam: float = 10.0,
    retry_beam: float = 40.0,
) -> Alignment | AlignmentFailure:
    """Return the cheapest path of all frames (T, num_pdfs) through a graph, or why there is none.

    Cost is the sum of the path's weights, its final cost, and - acoustic_scale * log-likelihood of
    each frame. Paths that fall `beam` behind the best are given up; when no path that is left ends
    in a final state, the search is done again with `retry_beam`. (Not asked for a retry is a path
    that the beam made worse.) Cost of it: O(arcs from active states) a frame.

    >>> loop = dict(first_arc=np.array([0, 1, 4, 5]), target=np.array([1, 1, 2, 2, 2], np.int32))
    >>> labels = dict(label=np.array([1, 1, 2, 3, 2], np.int32))
    >>> words = dict(word=np.array([7, 0, 8, 9, 0], np.int32), weight=np.ones(5, np.float32))
    >>> graph = Graph(0, **loop, **labels, **words, final=np.array([np.inf, np.inf, 0], np.float32))
    >>> scores = np.log(np.array([[.9, .1, .2], [.8, .2, .1], [.1, .9, .3]], np.float32))
    >>> found = align(graph, np.array([-1, 0, 1, 2], np.int32), scores, acoustic_scale=1.0)
    >>> found.states, found.words, found.begin_frames
    (array([0, 0, 1], dtype=int32), array([7, 8], dtype=int32), array([0, 2], dtype=int32))
    >>> align(graph, np.array([-1, 0, 1, 2], np.int32), scores[:1])
    AlignmentFailure(reason='too short: 1 frame, and its transcript needs 2 at least')
    """
    if not beam > 0 or retry_beam < beam:
        raise ValueError(
            f"a beam of {beam} with a retry beam of {retry_beam}: expected a beam above 0 and a "
            "retry beam that is no less"
        )
    network = _network(graph)
    scores = np.ascontiguousarray(log_likelihoods, dtype=np.float32)
    pdfs = np.ascontiguousarray(pdf_of_label, dtype=np.int32)
    _check_scores(graph, pdfs, scores)
    if len(scores) == 0:
        return AlignmentFailure("it has no frames")
    for width in (beam, retry_beam):
        status, frame, arcs = best_path(network, pdfs, scores, float(acoustic_scale), float(width))
        if status == FOUND:
            return _alignment(graph, arcs, pdfs, scores, width)
        if status == NOT_A_NUMBER:
            return AlignmentFailure(f"a log-likelihood of frame {frame} is not a number")
        if short := _why_impossible(network, len(scores)):
            return AlignmentFailure(short)
    if status == NO_TOKENS:
        return AlignmentFailure(
            f"no path goes on after frame {frame} of {len(scores)}, with a beam of {retry_beam:g}"
        )
    return AlignmentFailure(
        f"no path comes to the end of the transcript in {len(scores)} frames with a beam of "
        f"{retry_beam:g}: is it what was said?"
    )


def equal_alignment(
    graph: Graph, num_frames: int, is_silence: NDArray[np.bool_]
) -> Ints | AlignmentFailure:
    """Return states (T,) for a flat start: one path through the graph, its states equally long.

    The path is the shortest that begins and ends with silence, which `is_silence` (K,) tells by
    state; an utterance that is too short for it does without one silence or both.

    >>> first_arc, target = np.array([0, 1, 3, 4]), np.array([1, 1, 2, 2], np.int32)
    >>> label, nothing = np.array([1, 1, 2, 2], np.int32), np.zeros(4, np.int32)
    >>> final = np.array([np.inf, np.inf, 0.0], np.float32)
    >>> graph = Graph(0, first_arc, label, nothing, nothing.astype(np.float32), target, final)
    >>> equal_alignment(graph, 5, np.array([False, False]))
    array([0, 0, 0, 1, 1], dtype=int32)
    """
    network = _network(graph)
    silent = np.ascontiguousarray(is_silence, dtype=np.bool_)
    for edges in (SILENT_START | SILENT_END, SILENT_START, SILENT_END, 0):
        found, arcs = flat_path(network, silent, edges)
        arcs = arcs[graph.label[arcs] != 0]
        if found and 0 < len(arcs) <= num_frames:
            _check_self_loops(graph, arcs)
            of_frame = np.arange(num_frames) * len(arcs) // num_frames
            states: Ints = graph.label[arcs][of_frame] - np.int32(1)
            return states
    return AlignmentFailure(
        _why_impossible(network, num_frames) or "its graph has no path that takes a frame"
    )


def _network(graph: Graph) -> Network:
    return Network(
        int(graph.start),
        np.ascontiguousarray(graph.first_arc, dtype=np.int64),
        np.ascontiguousarray(graph.label, dtype=np.int32),
        np.ascontiguousarray(graph.weight, dtype=np.float32),
        np.ascontiguousarray(graph.target, dtype=np.int32),
        np.ascontiguousarray(graph.final, dtype=np.float32),
    )


def _alignment(
    graph: Graph,
    arcs: NDArray[np.int64],
    pdfs: Ints,
    scores: NDArray[np.float32],
    beam: float,
) -> Alignment:
    labels, words = graph.label[arcs], graph.word[arcs]
    emits = labels != 0
    frame = np.cumsum(emits) - emits
    of_frame = scores[np.arange(len(scores)), pdfs[labels[emits]]]
    end = graph.target[arcs[-1]]
    return Alignment(
        states=(labels[emits] - 1).astype(np.int32),
        words=words[words != 0],
        begin_frames=frame[words != 0].astype(np.int32),
        graph_cost=float(graph.weight[arcs].sum(dtype=np.float64) + graph.final[end]),
        log_likelihood=float(of_frame.sum(dtype=np.float64)),
        beam=beam,
    )


def _why_impossible(network: Network, num_frames: int) -> str | None:
    """Say why no path has that many frames or fewer; None if one has."""
    no_silence = np.zeros(max(int(network.label.max(initial=0)), 1), np.bool_)
    found, arcs = flat_path(network, no_silence, 0)
    if not found:
        return "its graph has no path from the start to a final state"
    needed = int((network.label[arcs] != 0).sum())
    if needed <= num_frames:
        return None
    frames = "frame" if num_frames == 1 else "frames"
    return f"too short: {num_frames} {frames}, and its transcript needs {needed} at least"


def _check_scores(graph: Graph, pdfs: Ints, scores: NDArray[np.float32]) -> None:
    if scores.ndim != 2:
        raise ValueError(f"log-likelihoods of shape {scores.shape}: expected (frames, pdfs)")
    if graph.num_arcs and int(graph.label.max()) >= len(pdfs):
        raise ValueError(
            f"the graph has label {int(graph.label.max())}, but pdf_of_label only {len(pdfs)} "
            "elements: were graph and HMM states made for different trees?"
        )
    if len(pdfs) and int(pdfs.max()) >= scores.shape[1]:
        raise ValueError(
            f"the HMM states have pdfs up to {int(pdfs.max())}, but there are log-likelihoods of "
            f"{scores.shape[1]} pdfs: are they of another model?"
        )


def _check_self_loops(graph: Graph, arcs: NDArray[np.int64]) -> None:
    source = np.repeat(np.arange(graph.num_states), np.diff(graph.first_arc))
    loops = np.flatnonzero(source == graph.target)
    stays = np.zeros(graph.num_states, np.int32)
    stays[graph.target[loops]] = graph.label[loops]
    bad = np.flatnonzero(stays[graph.target[arcs]] != graph.label[arcs])
    if len(bad):
        raise ValueError(
            f"the graph lets no frame stay in HMM state {graph.label[arcs[bad[0]]] - 1}: expected "
            "a training graph, where each has a self-loop"
        )
