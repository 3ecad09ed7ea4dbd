"""Sound to test with: noise that comes and goes about as syllables do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

# By suffix: what soundfile needs to be told.
FORMATS = {
    ".wav": {"format": "WAV", "subtype": "PCM_16"},
    ".flac": {"format": "FLAC", "subtype": "PCM_16"},
    ".opus": {"format": "OGG", "subtype": "OPUS"},
}


def babble(seconds: float = 0.5, sample_rate: int = 16000, seed: int = 1) -> NDArray[np.float32]:
    """Return low noise whose loudness rises and falls four times a second."""
    times = np.arange(round(seconds * sample_rate)) / sample_rate
    noise = np.random.default_rng(seed).standard_normal(len(times) + 15)
    smooth = np.convolve(noise, np.ones(16) / 4, mode="valid")
    return (0.05 * smooth * (0.01 + np.sin(4 * np.pi * times) ** 2)).astype(np.float32)


def write_recording(
    path: Path, samples: NDArray[np.float32] | None = None, sample_rate: int = 16000
) -> Path:
    """Write a recording in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if samples is None:
        samples = babble(sample_rate=sample_rate)
    soundfile.write(path, samples, sample_rate, **FORMATS[path.suffix])
    return path
