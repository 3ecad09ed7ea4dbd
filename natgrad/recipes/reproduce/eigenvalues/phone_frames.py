"""Frames of the demo's voices, with the phone of each as espeak-ng knows it.

No corpus, no aligner and no download: for experiments that ask something of a network, not of
recognition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor

from natgrad.recipes.demo_speech import TRAINING_VOICES, Conditions, spoken
from natgrad.recipes.sentences import sentence
from natgrad.recipes.synthesis import Phone
from natgrad.speech.features.mfcc import MfccOptions, mfcc

__all__ = ["PhoneFrames", "frame_phones", "speak_frames"]

CONDITIONS = Conditions(gains_db=(-12.0, 6.0), snrs_db=(10.0, 30.0))
REST = "other"  # the class of the phones that have none of their own


@dataclass(frozen=True)
class PhoneFrames:
    """features (frames, cepstra x spliced frames) and labels (frames,), which index phones."""

    features: Tensor
    labels: Tensor
    phones: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


def speak_frames(
    num: int, seed: int, num_classes: int, context: int, phones: Sequence[str] = ()
) -> PhoneFrames:
    """Return about `num` frames, of whole utterances by all voices in turn.

    >>> frames = speak_frames(500, seed=0, num_classes=5, context=1)
    >>> frames.features.shape[1], frames.phones[-1], int(frames.labels.max())
    (39, 'other', 4)

    Args:
        num: utterances are spoken until there are as many.
        seed: of what is said, and how.
        num_classes: the most frequent phones are classes of their own, the rest is the last one.
        context: frames that are spliced on either side.
        phones: the classes, as another call has found them; by default they are found.
    """
    features: list[Tensor] = []
    names: list[str] = []
    while len(names) < num:
        voice = TRAINING_VOICES[len(features) % len(TRAINING_VOICES)]
        random = Random(f"{voice} {seed}/{len(features)}")
        said = spoken(sentence(random), voice, random, CONDITIONS)
        options = MfccOptions(said.sample_rate, use_energy=False)
        frames = torch.from_numpy(mfcc(said.samples, options))
        features.append(_spliced(frames - frames.mean(dim=0), context))
        names += frame_phones(said.phones, options, len(frames))
    if not phones:
        frequent = [name for name, _ in Counter(names).most_common(num_classes - 1)]
        phones = (*sorted(frequent), REST)
    classes = {phone: number for number, phone in enumerate(phones)}
    labels = torch.tensor([classes.get(name, len(phones) - 1) for name in names])
    return PhoneFrames(torch.cat(features), labels, tuple(phones))


def frame_phones(phones: Sequence[Phone], options: MfccOptions, num_frames: int) -> list[str]:
    """Return the name of the phone at the centre of each frame.

    >>> phones = [Phone("a", 0, 500), Phone("b", 500, 1000)]
    >>> frame_phones(phones, MfccOptions(sample_rate=16000), 4)
    ['a', 'a', 'b', 'b']
    """
    centres = (
        np.arange(num_frames) * options.frame_shift_samples + options.frame_length_samples // 2
    )
    ends = np.array([phone.end for phone in phones])
    return [phones[i].name for i in np.searchsorted(ends, centres, side="right")]


def _spliced(frames: Tensor, context: int) -> Tensor:
    """Return each frame with its neighbours; beyond an end, its last frame stands in."""
    num = len(frames)
    offsets = torch.arange(-context, context + 1)
    places = (torch.arange(num).unsqueeze(1) + offsets).clamp(0, num - 1)
    return frames[places].flatten(1)
