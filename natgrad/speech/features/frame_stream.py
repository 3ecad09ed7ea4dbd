"""Frames as they come: what turns them into other frames with a stated look-ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.mfcc import FeatureError

__all__ = ["ContextStream", "FrameStream", "StreamChain", "repeat_edges"]

Floats = NDArray[np.float32]


class FrameStream(Protocol):
    """Takes frames in pieces of any length, and gives frames; the pieces make no difference."""

    @property
    def look_ahead_frames(self) -> int:
        """Frame t is given when frame t + look_ahead_frames has come, and not later."""

    def accept(self, frames: Floats) -> Floats:
        """Take the next (T, D) frames, and return those, perhaps none, that are now known."""

    def finish(self) -> Floats:
        """Return the last frames: none will come after those that came."""


class ContextStream:
    """Applies a function of a frame and its neighbours; beyond the edges, the edge frame repeats.

    The function takes (left + T + right, D) frames and gives those of the T in the middle.

    >>> stream = ContextStream(lambda x: x[:-2] + x[2:], dim=1, left=1, right=1)
    >>> stream.accept(np.array([[1.0], [2.0]], dtype=np.float32)).tolist()
    [[3.0]]
    >>> stream.finish().tolist()
    [[3.0]]
    """

    def __init__(
        self, function: Callable[[Floats], Floats], dim: int, left: int, right: int
    ) -> None:
        self._function = function
        self._left, self._right = left, right
        self._kept = np.empty((0, dim), dtype=np.float32)

    @property
    def look_ahead_frames(self) -> int:
        """The number of frames after a frame that it depends on."""
        return self._right

    def accept(self, frames: Floats) -> Floats:
        """Take the next frames, and return those that are now known."""
        if len(self._kept) == 0 and len(frames):
            self._kept = np.repeat(frames[:1], self._left, axis=0)
        available = np.concatenate([self._kept, frames])
        context = self._left + self._right
        if len(available) <= context:
            # As frames of the right dimension come even when none do, they can be concatenated.
            nothing = np.zeros((context, available.shape[1]), dtype=np.float32)
            self._kept = available
            return self._function(nothing)
        self._kept = available[len(available) - context :].copy()
        return self._function(available)

    def finish(self) -> Floats:
        """Return the last frames."""
        return self.accept(np.repeat(self._kept[-1:], self._right, axis=0))


class StreamChain:
    """One stream or several, each of which takes what the one before it gives."""

    def __init__(self, streams: Sequence[FrameStream]) -> None:
        self._streams = tuple(streams)

    @property
    def look_ahead_frames(self) -> int:
        """The sum of what the streams look ahead."""
        return sum(stream.look_ahead_frames for stream in self._streams)

    def accept(self, frames: Floats) -> Floats:
        """Take the next frames, and return those that are now known."""
        for stream in self._streams:
            frames = stream.accept(frames)
        return frames

    def finish(self) -> Floats:
        """Return the last frames."""
        first, *others = self._streams
        frames = first.finish()
        for stream in others:
            frames = np.concatenate([stream.accept(frames), stream.finish()])
        return frames


def repeat_edges(frames: Floats, left: int, right: int) -> Floats:
    """Return (left + T + right, D): the first frame repeated before all, the last after all.

    >>> repeat_edges(np.array([[1.0], [2.0]], dtype=np.float32), 2, 1).ravel().tolist()
    [1.0, 1.0, 1.0, 2.0, 2.0]
    """
    if len(frames) == 0:
        raise FeatureError("there are no frames; expected at least one")
    before, after = np.repeat(frames[:1], left, axis=0), np.repeat(frames[-1:], right, axis=0)
    return np.concatenate([before, frames, after])
