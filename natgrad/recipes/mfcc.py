"""Frames of speech: mel-frequency cepstra by kaldi-native-fbank, and the phone of each frame."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from natgrad.recipes.synthesis import Phone

__all__ = ["frame_labels", "mfcc"]

FRAME_SHIFT_MS = 10.0
FRAME_LENGTH_MS = 25.0
LOWEST_HZ, HIGHEST_HZ = 20.0, 7600.0


def mfcc(
    samples: npt.NDArray[np.float32], sample_rate: int, num_cepstra: int = 13
) -> npt.NDArray[np.float32]:
    """Return (frames, num_cepstra), Kaldi's MFCC of 25 ms every 10, less their mean over time.

    The mean is that of this utterance, as in Kaldi's recipes: it takes away loudness and channel.
    No dither: noise, where it is wanted, is for the caller to add, from a seed.

    >>> mfcc(np.sin(np.arange(22050, dtype=np.float32)), 22050, num_cepstra=13).shape
    (98, 13)
    """
    if importlib.util.find_spec("kaldi_native_fbank") is None:
        raise ImportError(
            "the features of the demo are made by the package kaldi-native-fbank, which is not "
            "installed: run  pip install 'natgrad[demo]'"
        )
    from natgrad.speech import mfcc as cepstra

    options = cepstra.MfccOptions(
        sample_rate,
        num_cepstra=num_cepstra,
        num_mel_bins=max(23, num_cepstra),
        low_hz=LOWEST_HZ,
        high_hz=HIGHEST_HZ,
        use_energy=False,
        frame_length_ms=FRAME_LENGTH_MS,
        frame_shift_ms=FRAME_SHIFT_MS,
    )
    frames = cepstra.mfcc(samples, options)
    centred: npt.NDArray[np.float32] = frames - frames.mean(axis=0, dtype=np.float64)
    return centred.astype(np.float32)


def frame_labels(
    phones: Sequence[Phone], sample_rate: int, num_frames: int, classes: Mapping[str, int]
) -> npt.NDArray[np.int64]:
    """Return (num_frames,): for each frame of `mfcc`, the class of the phone at its centre.

    >>> phones = [Phone("a", 0, 500), Phone("b", 500, 1000)]
    >>> frame_labels(phones, 22050, 4, {"a": 0, "b": 1})
    array([0, 0, 1, 1])
    """
    shift = int(FRAME_SHIFT_MS * sample_rate / 1000)  # rounded down, as Kaldi does
    length = int(FRAME_LENGTH_MS * sample_rate / 1000)
    centres = np.arange(num_frames) * shift + length // 2
    ends = np.array([phone.end for phone in phones])
    if num_frames and centres[-1] >= ends[-1]:
        raise ValueError(
            f"frame_labels got {num_frames} frames, of which the last has its centre at sample "
            f"{centres[-1]}, but the phones end at {ends[-1]}."
        )
    unknown = {phone.name for phone in phones} - set(classes)
    if unknown:
        raise ValueError(f"frame_labels got phones that have no class: {sorted(unknown)}.")
    ids = np.array([classes[phone.name] for phone in phones], dtype=np.int64)
    return ids[np.searchsorted(ends, centres, side="right")]
