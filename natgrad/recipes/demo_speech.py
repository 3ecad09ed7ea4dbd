"""Voices of the demo, and how they speak.

Speech by rule is easy. To be a little less so, every utterance has its own speed, pitch, loudness
and white noise. (Noise also gives pauses a spectrum: the logarithm of perfect silence is none.)
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from natgrad.recipes.synthesis import Utterance, speak

__all__ = ["REPORT_VOICES", "TRAINING_VOICES", "TUNING_VOICES", "Conditions", "spoken"]

Range = tuple[float, float]

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
REPORT_VOICES = (
    "en-us+anika", "en+linda", "en-gb-x-rp+paul", "en-gb-scotland+steph", "en-us-nyc+m4",
    "en-gb-x-gbclan+robert",
)  # fmt: skip
TUNING_VOICES = ("en-us+steph3", "en+adam", "en-gb-x-rp+m8", "en-gb-scotland+marcelo")


@dataclass(frozen=True)
class Conditions:
    """What utterances differ in, from the least to the most.

    Args:
        rates: words per minute.
        pitches: 50 is the voice's own.
        gains_db: of speech and noise.
        snrs_db: how far the noise is below the speech.
    """

    rates: tuple[int, int] = (140, 230)
    pitches: tuple[int, int] = (35, 65)
    gains_db: Range = (-24.0, -6.0)
    snrs_db: Range = (0.0, 20.0)


NOISY = Conditions()


def spoken(text: str, voice: str, random: Random, conditions: Conditions = NOISY) -> Utterance:
    """Return a text in this voice, with a speed, pitch, loudness and noise of its own.

    >>> said = spoken("Good morning.", "en+m3", Random(0))
    >>> said.sample_rate, len(said.samples) > 0.5 * said.sample_rate
    (22050, True)
    """
    rate, pitch = random.randint(*conditions.rates), random.randint(*conditions.pitches)
    utterance = speak(text, voice, rate, pitch)
    gain_db, snr_db = random.uniform(*conditions.gains_db), random.uniform(*conditions.snrs_db)
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
