"""What the demo trains on: sentences spoken by a few dozen voices, and the phone of every frame.

Nothing is downloaded: espeak-ng speaks what a small grammar says. Every utterance is a function of
its voice, its number and the seed alone, so any division into sources gives the same data.

To be a little less easy than speech by rule is, every utterance has its own speed, pitch, loudness,
and white noise, 10 to 30 dB below its speech. (It also gives pauses a spectrum: the logarithm of
perfect silence is none.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

import numpy as np
import numpy.typing as npt

from natgrad.data import Segment
from natgrad.recipes.mfcc import frame_labels, mfcc
from natgrad.recipes.sentences import sentence
from natgrad.recipes.synthesis import Utterance, speak

__all__ = ["HELD_OUT_VOICES", "PHONES", "TRAINING_VOICES", "sources", "spoken", "utterances"]

NUM_CEPSTRA = 13
RATES = (140, 230)  # words per minute
PITCHES = (35, 65)
GAINS_DB = (-12.0, 6.0)
SNRS_DB = (10.0, 30.0)

# One dialect each. None of these variants has an echo, which would fill the closures of its stops.
TRAINING_VOICES = (
    "en+Alex", "en-us+Andrea", "en-gb-scotland+Andy", "en-gb-x-rp+Annie", "en-gb-x-gbclan+Denis",
    "en-gb-x-gbcwmd+Gene", "en-029+Jacky", "en-us-nyc+Lee", "en+Mario", "en-us+Michael",
    "en-gb-scotland+Mike", "en-gb-x-rp+aunty", "en-gb-x-gbclan+belinda", "en-gb-x-gbcwmd+boris",
    "en-029+f1", "en-us-nyc+grandma", "en+grandpa", "en-us+gustave", "en-gb-scotland+ian",
    "en-gb-x-rp+iven", "en-gb-x-gbclan+john", "en-gb-x-gbcwmd+m1", "en-029+m3", "en-us-nyc+m5",
    "en+m7", "en-us+max", "en-gb-scotland+norbert", "en-gb-x-rp+pedro", "en-gb-x-gbclan+rob",
    "en-gb-x-gbcwmd+sandro", "en-029+steph2", "en-us-nyc+victor",
)  # fmt: skip
HELD_OUT_VOICES = (
    "en-us+anika", "en+linda", "en-gb-x-rp+paul", "en-gb-scotland+steph", "en-us-nyc+m4",
    "en-gb-x-gbclan+robert",
)  # fmt: skip

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
        utterance = spoken(voice, f"{seed}/{i}")
        features = mfcc(utterance.samples, utterance.sample_rate, NUM_CEPSTRA)
        labels = frame_labels(utterance.phones, utterance.sample_rate, len(features), CLASSES)
        yield f"{voice}-{seed}-{i:05d}", features, labels


def spoken(voice: str, seed: str) -> Utterance:
    """Return a random sentence in this voice, with its own speed, pitch, loudness and noise."""
    random = Random(f"{voice} {seed}")
    utterance = speak(sentence(random), voice, random.randint(*RATES), random.randint(*PITCHES))
    gain_db, snr_db = random.uniform(*GAINS_DB), random.uniform(*SNRS_DB)
    speech = utterance.samples
    rms = float(np.sqrt(np.mean(np.square(speech, dtype=np.float64))))
    noise = np.random.default_rng(random.getrandbits(64)).standard_normal(len(speech), np.float32)
    noisy = decibels(gain_db) * (speech + decibels(-snr_db) * rms * noise)
    return Utterance(noisy.astype(np.float32), utterance.sample_rate, utterance.phones)


def decibels(value: float) -> float:
    """Return the factor of amplitude that so many decibels are.

    >>> decibels(20.0)
    10.0
    """
    return float(10.0 ** (value / 20.0))
