"""Frames of the demo's voices with the phone of each, as espeak-ng knows it: no aligner needed.

Every utterance is a function of its voice, its number and the seed alone, so any division into
sources gives the same data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random

import numpy as np
import numpy.typing as npt

from natgrad.data import Segment
from natgrad.recipes.demo_speech import TRAINING_VOICES, Conditions, spoken
from natgrad.recipes.sentences import sentence
from natgrad.recipes.synthesis import Phone
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.features.mfcc import mfcc as compute_mfcc

__all__ = ["PHONES", "frame_labels", "mfcc", "sources", "utterances"]

NUM_CEPSTRA = 13
FRAME_SHIFT_MS = 10.0
FRAME_LENGTH_MS = 25.0
LOWEST_HZ, HIGHEST_HZ = 20.0, 7600.0
CONDITIONS = Conditions(gains_db=(-12.0, 6.0), snrs_db=(10.0, 30.0))

# espeak-ng's names of English phones, a class each, silence first.
PHONES = (
    "_", "0", "3", "3:", "@", "@L", "A:", "A@", "D", "E", "I", "N", "O:", "O@", "OI", "S", "T",
    "U", "U@", "V", "Z", "a", "aI", "aI@", "aU", "aa", "b", "d", "dZ", "e@", "eI", "f", "g", "h",
    "i", "i:", "i@", "j", "k", "l", "m", "n", "o@", "oU", "p", "r", "s", "t", "tS", "u:", "v",
    "w", "z",
)  # fmt: skip
# What some dialects say in their place, in some neighbourhoods.
ALLOPHONES = {
    ";": "j", "@2": "@", "@5": "@", "I#": "I", "I2": "I", "IR": "I", "O2": "O:", "VR": "V",
    "a#": "a", "aI2": "aI", "aI3": "aI@", "i@3": "i@", "r-": "r", "t#": "t", "t2": "t", "t[": "t",
    "w#": "w",
}  # fmt: skip
CLASSES = {phone: i for i, phone in enumerate(PHONES)}
CLASSES |= {allophone: CLASSES[phone] for allophone, phone in ALLOPHONES.items()}


def sources(
    num: int, seed: int, voices: Sequence[str] = TRAINING_VOICES, per_source: int = 25
) -> list[Callable[[], Iterator[Segment]]]:
    """Return utterances 0 to num - 1 as sources for `natgrad.data.build`, of some utterances each.

    >>> [len(list(source())) for source in sources(3, seed=0, per_source=2)]
    [2, 1]
    """
    return [
        partial(_segments, min(per_source, num - first), seed, tuple(voices), first)
        for first in range(0, num, per_source)
    ]


def _segments(num: int, seed: int, voices: Sequence[str], first: int) -> Iterator[Segment]:
    for key, features, labels in utterances(num, seed, voices, first):
        yield Segment(key, features, labels)


def utterances(
    num: int, seed: int, voices: Sequence[str] = TRAINING_VOICES, first: int = 0
) -> Iterator[tuple[str, npt.NDArray[np.float32], npt.NDArray[np.int64]]]:
    """Yield (key, features (frames, NUM_CEPSTRA), labels (frames,)) of utterances from `first` on.

    Voices take turns. Features are MFCC less their mean over the utterance; labels index `PHONES`.

    >>> (key, features, labels), = utterances(1, seed=0)
    >>> key, features.shape[1], len(features) == len(labels)
    ('en+Alex-0-00000', 13, True)
    """
    for i in range(first, first + num):
        voice = voices[i % len(voices)]
        random = Random(f"{voice} {seed}/{i}")
        utterance = spoken(sentence(random), voice, random, CONDITIONS)
        features = mfcc(utterance.samples, utterance.sample_rate, NUM_CEPSTRA)
        labels = frame_labels(utterance.phones, utterance.sample_rate, len(features), CLASSES)
        yield f"{voice}-{seed}-{i:05d}", features, labels


def mfcc(
    samples: npt.NDArray[np.float32], sample_rate: int, num_cepstra: int = 13
) -> npt.NDArray[np.float32]:
    """Return (frames, num_cepstra), Kaldi's MFCC of 25 ms every 10, less their mean over time.

    The mean is that of this utterance, as in Kaldi's recipes: it takes away loudness and channel.
    No dither: noise, where it is wanted, is for the caller to add, from a seed.

    >>> mfcc(np.sin(np.arange(22050, dtype=np.float32)), 22050, num_cepstra=13).shape
    (98, 13)
    """
    options = MfccOptions(
        sample_rate,
        num_cepstra=num_cepstra,
        num_mel_bins=max(23, num_cepstra),
        low_hz=LOWEST_HZ,
        high_hz=HIGHEST_HZ,
        use_energy=False,
        frame_length_ms=FRAME_LENGTH_MS,
        frame_shift_ms=FRAME_SHIFT_MS,
    )
    frames = compute_mfcc(samples, options)
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
