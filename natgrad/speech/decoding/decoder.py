"""Beam search through a decoding graph, for frames as they come; what it found is a lattice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.decoding.beams import Beams
from natgrad.speech.decoding.lattice import Lattice, Path
from natgrad.speech.decoding.lattice_of_links import lattice_of_links, path_of_links
from natgrad.speech.decoding.link_history import LinkHistory
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.decoding.token_passing import (
    FULL,
    FrameCounts,
    begin,
    make_buffers,
    make_tokens,
    pass_frame,
)

__all__ = ["Decoder", "DecoderOptions", "DecodingError", "decode"]

Floats = NDArray[np.float32]
Scores = NDArray[np.float32] | NDArray[np.float64]

FIRST_NUM_TOKENS = 1 << 15
LAST_BASE = np.iinfo(np.int32).max // 2  # what token_of_state can count to, with room for a frame


class DecodingError(ValueError):
    """An utterance cannot be decoded."""


@dataclass(frozen=True)
class DecoderOptions:
    """What a search keeps.

    Of each frame's tokens: those that cost at most `beam` more than the best, of these the best
    `max_active`, and at least `min_active`. Of the ways between them: those that are part of a way
    through the utterance that costs at most `lattice_beam` more than the best. Ways are dropped
    every `prune_interval_frames`, and when the utterance ends. Costs are of acoustic likelihoods
    multiplied by `acoustic_scale`.
    """

    beam: float = 13.0
    max_active: int = 7000
    min_active: int = 200
    lattice_beam: float = 8.0
    acoustic_scale: float = 0.1
    prune_interval_frames: int = 25

    def __post_init__(self) -> None:
        for name in ("beam", "lattice_beam", "acoustic_scale"):
            value = getattr(self, name)
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} is {value}; it must be finite and more than 0")
        for name in ("max_active", "min_active", "prune_interval_frames"):
            value = getattr(self, name)
            if value % 1 != 0:  # true of inf and NaN, too
                raise ValueError(f"{name} is {value}; it must be a whole number")
        for name in ("max_active", "prune_interval_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.min_active <= self.max_active:
            raise ValueError(
                f"min_active is {self.min_active}; it must be from 0 to max_active, "
                f"{self.max_active}"
            )


class Decoder:
    """Decodes utterances, one after the other, through one graph.

    An utterance's frames go to `accept`, in as many pieces as one likes: what is found does not
    depend on the pieces. `best_path` tells what is best so far. `finish` ends the utterance;
    `start` begins another (and has been called when the decoder is new).

    >>> from numpy import array, float32, inf, int32
    >>> from natgrad.speech.graphs.graph import Graph
    >>> either = Graph(0, array([0, 2, 3, 4]), array([1, 2, 1, 2], int32),
    ...     array([5, 6, 0, 0], int32), array([0.7, 0.7, 0.1, 0.1], float32),
    ...     array([1, 2, 1, 2], int32), array([inf, 0.0, 0.0]))
    >>> decoder = Decoder(SearchGraph.of(either, array([-1, 0, 1], int32)), DecoderOptions())
    >>> decoder.accept(array([[-1.0, -9.0]], float32))
    >>> decoder.best_path().words
    (5,)
    >>> decoder.accept(array([[-30.0, -2.0]], float32))
    >>> path = decoder.finish().best_path()
    >>> path.words, path.alignment
    ((6,), array([1, 1], dtype=int32))
    """

    def __init__(self, graph: SearchGraph, options: DecoderOptions) -> None:
        self.graph = graph
        self.options = options
        self._beams = Beams(
            float(options.beam),
            int(options.max_active),
            int(options.min_active),
            float(options.lattice_beam),
        )
        self._history = LinkHistory()
        # A state has a token if its entry is at least _base, which rises from frame to frame: so
        # the array need not be cleared.
        self._token_of_state = np.zeros(graph.graph.num_states, dtype=np.int32)
        self._base = 1
        self._now, self._after = make_tokens(FIRST_NUM_TOKENS), make_tokens(FIRST_NUM_TOKENS)
        self._buffers = make_buffers(FIRST_NUM_TOKENS, graph.num_levels)
        self.start()

    @property
    def num_frames(self) -> int:
        """The number of frames accepted since `start`."""
        return self._history.num_frames

    def start(self) -> None:
        """Begin an utterance, and forget the one before."""
        self._history.clear()
        self._finished = False
        self._take(None)

    def accept(self, log_likelihoods: Scores) -> None:
        """Search on through some frames, with the log-likelihood of each pdf: (T', P).

        Raises:
            DecodingError: if there are NaNs or too few pdfs, or if no way through the graph is left
                at some frame.
        """
        if self._finished:
            raise RuntimeError("the utterance was finished: call start before more frames")
        acoustic = np.negative(log_likelihoods, dtype=np.float32, order="C")
        self._check(acoustic)
        scaled = np.float32(self.options.acoustic_scale) * acoustic
        for frame in range(len(acoustic)):
            if self.num_frames % self.options.prune_interval_frames == 0:
                self._history.prune(self._beams.lattice_beam)
            self._take((acoustic[frame], scaled[frame]))
            if self._num_tokens == 0:
                self._finished = True
                raise DecodingError(
                    f"no way through the graph is left after frame {self.num_frames}: either the "
                    "graph has no path of so many frames, or all pdfs have a likelihood of 0 "
                    f"there, or what is within the beam, {self.options.beam:g}, leads no further: "
                    "then widen it"
                )

    def best_path(self) -> Path:
        """Return the best way through the frames so far, whether or not it may end there."""
        if self._finished:
            raise RuntimeError(
                "the utterance was finished: its best path is that of the lattice; call start "
                "for another"
            )
        best = int(np.argmin(self._now.cost[: self._num_tokens]))
        return path_of_links(self.graph, self._history, best)

    def finish(self) -> Lattice:
        """End the utterance.

        Where the graph can end within the beam, the lattice has only ways that end; where it
        cannot, all ways, and its `reached_final` is false.
        """
        if self._finished:
            raise RuntimeError("the utterance was finished before: call start for another")
        self._finished = True
        states = self._now.state[: self._num_tokens]
        final = self.graph.graph.final[states].astype(np.float32)
        reached_final = bool(np.isfinite(final).any())
        if not reached_final:
            final[:] = 0.0
        total = self._now.cost[: self._num_tokens] + final
        extra = (total - total.min()).astype(np.float32)
        final[extra > self._beams.lattice_beam] = np.inf
        kept = self._history.finish(self._beams.lattice_beam, extra)
        return lattice_of_links(self.graph, self._history, final[kept], reached_final)

    def _take(self, costs: tuple[Floats, Floats] | None) -> None:
        """Take one frame (or none, at the start), with as much room as that needs."""
        counts = self._try(costs)
        while counts.num_tokens == FULL:
            self._make_room(2 * len(self._after.state))
            counts = self._try(costs)
        self._history.append(counts, self._buffers.links)
        self._now, self._after = self._after, self._now
        self._num_tokens = counts.num_tokens

    def _try(self, costs: tuple[Floats, Floats] | None) -> FrameCounts:
        arrays, token_of_state, base = self.graph.arrays, self._token_of_state, self._base
        if costs is None:
            counts = begin(
                arrays,
                self.graph.graph.start,
                token_of_state,
                base,
                self._beams,
                self._after,
                self._buffers,
            )
        else:
            counts = pass_frame(
                arrays,
                token_of_state,
                base,
                self._beams,
                self._now,
                self._num_tokens,
                *costs,
                self._after,
                self._buffers,
            )
        self._base += counts.num_made
        if self._base > LAST_BASE:
            self._token_of_state[:] = 0
            self._base = 1
        return FrameCounts(*counts)

    def _make_room(self, num_tokens: int) -> None:
        """Give tokens and their links room; what is in the tokens of now is kept."""
        now = self._now
        self._now, self._after = make_tokens(num_tokens), make_tokens(num_tokens)
        self._now.state[: len(now.state)] = now.state
        self._now.cost[: len(now.cost)] = now.cost
        self._buffers = make_buffers(num_tokens, self.graph.num_levels)

    def _check(self, acoustic: Floats) -> None:
        if acoustic.ndim != 2 or acoustic.shape[1] < self.graph.num_pdfs:
            raise DecodingError(
                f"log-likelihoods have the shape {acoustic.shape}; expected one row a frame with "
                f"{self.graph.num_pdfs} pdfs or more: are they of another model than the graph?"
            )
        if not acoustic.min(initial=0.0) > -np.inf:  # NaN if one is
            frame, pdf = np.argwhere(~(acoustic > -np.inf))[0]
            raise DecodingError(
                f"the log-likelihood of pdf {pdf} at frame {self.num_frames + frame} is "
                f"{-acoustic[frame, pdf]}: look for NaNs in the features or the model"
            )


def decode(graph: SearchGraph, log_likelihoods: Scores, options: DecoderOptions) -> Lattice:
    """Decode one utterance, all of whose frames are there: (T, P).

    For many utterances, one Decoder is a little faster.
    """
    decoder = Decoder(graph, options)
    decoder.accept(log_likelihoods)
    return decoder.finish()
