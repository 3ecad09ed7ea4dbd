"""What can be told of a recording from its samples alone: too short, silent, clipped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.data.audio import Audio

__all__ = ["clipped_share", "is_steady", "loudest_decibels", "shorter_than_a_frame"]

FRAME_SECONDS = 0.025
SHORTEST_PLATEAU_SAMPLES = 3
FULL_SCALE = 0.9999  # 32767 / 32768, and what is beyond
QUIETEST_CLIPPED = 0.1  # below, rounding to 16 bits makes plateaus of its own
STEADY_DECIBELS = 3.0
FEWEST_FRAMES = 10  # with less one cannot tell whether the level is steady
FLOOR = 1e-20


def shorter_than_a_frame(audio: Audio) -> bool:
    """Whether there is not even one frame of 25 ms in it."""
    return len(audio.samples) < round(FRAME_SECONDS * audio.sample_rate)


def clipped_share(samples: NDArray[np.float32]) -> float:
    """Return which share of the samples is clipped: at full scale, or in plateaus at an extreme.

    A plateau is three or more samples in a row that are all the largest (or smallest) of the
    recording. Speech has hardly any, but a recording that was clipped and then made softer does.

    >>> sine = 0.8 * np.sin(0.1 * np.arange(1000)).astype(np.float32)
    >>> clipped_share(sine), round(clipped_share(sine.clip(-0.7, 0.7)), 2)
    (0.0, 0.32)
    """
    num_clipped = int(np.count_nonzero(np.abs(samples) >= FULL_SCALE))
    for extreme in {float(samples.max()), float(samples.min())}:
        if QUIETEST_CLIPPED <= abs(extreme) < FULL_SCALE:
            edges = np.flatnonzero(np.diff(samples == extreme, prepend=False, append=False))
            lengths = edges[1::2] - edges[::2]
            num_clipped += int(lengths[lengths >= SHORTEST_PLATEAU_SAMPLES].sum())
    return num_clipped / len(samples)


def loudest_decibels(audio: Audio) -> float:
    """Return the level of the loudest frame, without its mean; 0 is a full-scale square wave.

    >>> silence = np.full(400, 0.2, dtype=np.float32)
    >>> round(loudest_decibels(Audio(silence, 16000)))
    -200
    """
    return float(_frame_decibels(audio).max())


def is_steady(audio: Audio) -> bool:
    """Whether its level hardly changes from frame to frame, as noise's does but never speech's."""
    levels = _frame_decibels(audio)
    if len(levels) < FEWEST_FRAMES:
        return False
    soft, loud = np.percentile(levels, [5, 95])
    return bool(loud - soft < STEADY_DECIBELS)


def _frame_decibels(audio: Audio) -> NDArray[np.float64]:
    length = min(max(1, round(FRAME_SECONDS * audio.sample_rate)), len(audio.samples))
    num_frames = len(audio.samples) // length
    frames = audio.samples[: num_frames * length].reshape(num_frames, length)
    levels: NDArray[np.float64] = 10 * np.log10(frames.var(axis=1, dtype=np.float64) + FLOOR)
    return levels
