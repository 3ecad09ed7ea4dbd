"""The links that a search has left behind, frame by frame, without those that cannot matter.

A token's extra cost is by how much the best way through it is dearer than the best way of all. It
is found from the last frame backwards: a link's is its slack and the extra cost of where it leads,
a token's that of its best link. What exceeds the lattice beam is dropped, so that after some time
only what may be part of the lattice is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.decoding.token_passing import LINK, FrameCounts

__all__ = ["LinkHistory"]

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]

# Extra costs that have changed by less than this share of the lattice beam are not passed on to
# earlier frames (until the end): so pruning looks at new frames, and seldom at old ones.
TOLERANCE = 0.1


class Columns(NamedTuple):
    """What the compiled functions read and write.

    Links are in segments: 2 t has the epsilon links within frame t, in an order in which no link
    comes before one that leads to its source; 2 t + 1 those from frame t to t + 1.
    """

    links: NDArray[np.void]
    first_link: Longs  # of each segment, and the end
    extra: Floats  # of each token
    first_token: Longs  # of each frame, and the end


class LinkHistory:
    """The links of an utterance so far; `num_frames` frames were taken."""

    def __init__(self) -> None:
        self.columns = Columns(
            np.empty(1 << 16, dtype=LINK),
            np.zeros(1 << 8, dtype=np.int64),
            np.empty(1 << 16, dtype=np.float32),
            np.zeros(1 << 8, dtype=np.int64),
        )
        self.clear()

    def clear(self) -> None:
        """Begin an utterance: forget all links."""
        self.num_frames = -1
        self._num_frames_pruned = 0

    def append(self, counts: FrameCounts, links: NDArray[np.void]) -> None:
        """Add a frame's tokens, and the links to and within it."""
        self.num_frames += 1
        frame = self.num_frames
        self._reserve(frame, counts)
        stored, first_link, extra, first_token = self.columns
        begin = first_link[max(2 * frame - 1, 0)]
        num_links = counts.num_emitting + counts.num_epsilon
        # As plain numbers: numpy copies records field by field.
        words = stored[begin : begin + num_links].view(np.int32)
        words[:] = links[:num_links].view(np.int32)
        first_link[2 * frame] = begin + counts.num_emitting
        first_link[2 * frame + 1] = begin + num_links
        end = first_token[frame] + counts.num_tokens
        extra[first_token[frame] : end] = 0.0
        first_token[frame + 1] = end

    def prune(self, lattice_beam: float) -> None:
        """Drop what cannot be in the lattice, whichever token of the last frame is the best."""
        frame = _mark(
            self.columns,
            self.num_frames,
            self._num_frames_pruned,
            lattice_beam,
            TOLERANCE * lattice_beam,
        )
        _compact(self.columns, frame, self.num_frames)
        self._num_frames_pruned = self.num_frames

    def finish(self, lattice_beam: float, last_extra: Floats) -> NDArray[np.bool_]:
        """Drop all that is not in the lattice, given the extra costs of the last frame's tokens.

        Returns which of the last frame's tokens are still there.
        """
        frame = self.num_frames
        last = slice(*self.columns.first_token[frame : frame + 2])
        self.columns.extra[last] = np.where(last_extra <= lattice_beam, last_extra, np.inf)
        _mark(self.columns, frame, frame, lattice_beam, tolerance=-1.0)
        kept = self.columns.extra[last] < np.inf
        _compact(self.columns, 0, frame)
        return kept

    def trace_back(self, token: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Return the best way to a token of the last frame: its links, their frames, which emit."""
        capacity = int(self.columns.first_link[2 * self.num_frames + 1])
        way = np.empty(capacity, dtype=np.int32)
        segments = np.empty(capacity, dtype=np.int32)
        length = _trace_back(self.columns, self.num_frames, token, way, segments)
        way, segments = way[:length][::-1], segments[:length][::-1]
        return way, segments // 2, segments % 2 == 1

    def _reserve(self, frame: int, counts: FrameCounts) -> None:
        links, first_link, extra, first_token = self.columns
        num_links = int(first_link[max(2 * frame - 1, 0)])
        self.columns = Columns(
            _grown(links, num_links + counts.num_emitting + counts.num_epsilon),
            _grown(first_link, 2 * frame + 2),
            _grown(extra, int(first_token[frame]) + counts.num_tokens),
            _grown(first_token, frame + 2),
        )


def _grown(array: NDArray[Any], num_needed: int) -> NDArray[Any]:
    """Return an array with at least so many elements, and the same to begin with."""
    if num_needed <= len(array):
        return array
    larger = np.zeros(max(num_needed, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True)
def _mark(
    columns: Columns,
    num_frames: int,
    num_frames_pruned: int,
    lattice_beam: float,
    tolerance: float,
) -> int:
    """Set the extra costs of all but the last frame's tokens; mark links and tokens with too much.

    Frames from `num_frames_pruned` on are all looked at; earlier ones until nothing changes.
    Returns the first frame that was.
    """
    extra, first_token = columns.extra, columns.first_token
    before = np.empty(0, dtype=np.float32)
    frame = num_frames
    while True:
        begin, end = first_token[frame], first_token[frame + 1]
        if frame < num_frames:
            if end - begin > len(before):
                before = np.empty(end - begin, dtype=np.float32)
            before[: end - begin] = extra[begin:end]
            extra[begin:end] = np.inf
            _weigh(columns, 2 * frame + 1, begin, end, lattice_beam)
        _weigh(columns, 2 * frame, begin, begin, lattice_beam)
        if frame == 0:
            break
        if frame < num_frames_pruned:
            changed = False
            for token in range(end - begin):
                if not abs(extra[begin + token] - before[token]) <= tolerance:
                    changed = True
            if not changed:
                break
        frame -= 1
    return frame


@njit(cache=True)
def _weigh(columns: Columns, segment: int, sources: int, targets: int, lattice_beam: float) -> None:
    """Set the extra costs of a segment's sources from its targets; mark links with too much."""
    links, first_link, extra, _ = columns
    for place in range(first_link[segment + 1] - 1, first_link[segment] - 1, -1):
        link = links[place]
        cost = extra[targets + link.target] + link.slack
        if not cost <= lattice_beam:
            link.target = -1
        else:
            source = sources + link.source
            extra[source] = min(extra[source], cost)


@njit(cache=True)
def _compact(columns: Columns, first_frame: int, num_frames: int) -> None:
    """Move up the links that are not marked and the tokens that have one, from a frame on."""
    links, first_link, extra, first_token = columns
    begin, end = first_token[first_frame], first_token[num_frames + 1]
    number = np.empty(end - begin, dtype=np.int32)
    for frame in range(first_frame, num_frames + 1):
        kept = 0
        for token in range(first_token[frame] - begin, first_token[frame + 1] - begin):
            number[token] = kept
            kept += extra[begin + token] < np.inf
    num_links = first_link[2 * first_frame]
    segment_begin = num_links
    for segment in range(2 * first_frame, 2 * num_frames + 1):
        sources = first_token[segment // 2] - begin
        targets = first_token[(segment + 1) // 2] - begin
        segment_end = first_link[segment + 1]
        for place in range(segment_begin, segment_end):
            link = links[place]
            if link.target >= 0:
                kept_link = links[num_links]
                kept_link.source = number[sources + link.source]
                kept_link.target = number[targets + link.target]
                kept_link.arc = link.arc
                kept_link.acoustic = link.acoustic
                kept_link.slack = link.slack
                num_links += 1
        first_link[segment + 1] = num_links
        segment_begin = segment_end
    num_tokens = begin
    frame_begin = begin
    for frame in range(first_frame, num_frames + 1):
        frame_end = first_token[frame + 1]
        for token in range(frame_begin, frame_end):
            if extra[token] < np.inf:
                extra[num_tokens] = extra[token]
                num_tokens += 1
        first_token[frame + 1] = num_tokens
        frame_begin = frame_end


@njit(cache=True)
def _trace_back(columns: Columns, num_frames: int, token: int, way: Ints, segments: Ints) -> int:
    """Follow links without slack to the start; list them, last first; return how many."""
    links, first_link, _, _ = columns
    length = 0
    for segment in range(2 * num_frames, -1, -1):
        # Within a frame, links that lead to a source come before it: one pass backwards is enough.
        for place in range(first_link[segment + 1] - 1, first_link[segment] - 1, -1):
            link = links[place]
            if link.target == token and link.slack == 0.0:
                way[length] = place
                segments[length] = segment
                length += 1
                token = link.source
                if segment % 2 == 1:
                    break
    return length
