"""Frames beside a frame: their differences ("deltas"), or all of them in one vector ("splicing").

Both look `order * window` or `right` frames ahead and no further; for frames as they come, apply
`deltas_within` or `spliced_within` by a ContextStream, as natgrad.speech.features.front_end does.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.frame_stream import repeat_edges

__all__ = ["add_deltas", "deltas_within", "splice", "spliced_within"]

Floats = NDArray[np.float32]


def add_deltas(features: Floats, order: int = 2, window: int = 2) -> Floats:
    """Return (T, D (order + 1)): features, their differences, differences of these, ... as Kaldi.

    The difference at t is the slope of the line that fits frames t - window to t + window best.
    Higher orders take differences of these, but as if the edge frames of the features themselves
    had been repeated first; so they look order * window frames ahead.

    >>> add_deltas(np.arange(6, dtype=np.float32)[:, None], order=1)[:, 1].round(2)
    array([0.5, 0.8, 1. , 1. , 0.8, 0.5], dtype=float32)
    """
    context = order * window
    return deltas_within(repeat_edges(features, context, context), order, window)


def deltas_within(padded: Floats, order: int, window: int) -> Floats:
    """Return what add_deltas gives for all but the first and last order * window frames.

    Every value is summed in the same order whatever the number of frames, so that frames in pieces
    give the same bits.
    """
    context = order * window
    num_frames, dim = len(padded) - 2 * context, padded.shape[1]
    result = np.zeros((num_frames, (order + 1) * dim), dtype=np.float32)
    for degree in range(order + 1):
        part = result[:, degree * dim : (degree + 1) * dim]
        for offset, weight in _difference_weights(degree, window):
            first = context + offset
            part += weight * padded[first : first + num_frames]
    return result


@cache
def _difference_weights(degree: int, window: int) -> tuple[tuple[int, np.float32], ...]:
    """The weights, by how many frames later, whose sum is the difference of a degree."""
    offsets = np.arange(-window, window + 1)
    slope = offsets / np.square(offsets).sum()
    weights = np.ones(1)
    for _ in range(degree):
        weights = np.convolve(weights, slope)
    reach = degree * window
    return tuple(
        (offset, np.float32(weight))
        for offset, weight in zip(range(-reach, reach + 1), weights, strict=True)
        if weight != 0
    )


def splice(features: Floats, left: int, right: int) -> Floats:
    """Return (T, D (left + 1 + right)): each frame between its neighbours, the earliest first.

    Beyond the edges, the edge frame repeats.

    >>> splice(np.array([[1.0], [2.0], [3.0]], dtype=np.float32), 1, 1).tolist()
    [[1.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 3.0]]
    """
    return spliced_within(repeat_edges(features, left, right), left + 1 + right)


def spliced_within(padded: Floats, width: int) -> Floats:
    """Return (T - width + 1, D width): every `width` consecutive frames in one row."""
    num_frames, dim = len(padded) - width + 1, padded.shape[1]
    if num_frames == 0 or dim == 0:
        return np.empty((num_frames, dim * width), dtype=np.float32)
    values = np.ascontiguousarray(padded, dtype=np.float32).ravel()
    rows = np.lib.stride_tricks.sliding_window_view(values, dim * width)[::dim]
    return rows.copy()
