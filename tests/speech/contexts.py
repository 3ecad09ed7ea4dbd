"""Random frames of states in context, that depend on the context; and the phones they are of."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.tree_statistics import TreeStatistics
from natgrad.speech.hmm import Topology
from natgrad.speech.phones import PhoneSet

Context = tuple[int, int, int, int]
Doubles = NDArray[np.float64]

PHONES = PhoneSet(silences=("SIL", "NSN"), speech=("AH", "B", "K"))
TOPOLOGY = Topology(speech_states=2, silence_states=3)


@dataclass
class Frames:
    """The frames of each context, (n, D)."""

    of: dict[Context, Doubles]

    def statistics(self) -> TreeStatistics:
        contexts = sorted(self.of)
        moments = [
            np.concatenate([[len(x)], x.sum(axis=0), (x**2).sum(axis=0)])
            for x in (self.of[context] for context in contexts)
        ]
        return TreeStatistics(np.array(contexts, dtype=np.int32), np.stack(moments))


def draw_frames(seed: int, dim: int = 3, num_contexts: int = 60) -> Frames:
    random = np.random.default_rng(seed)
    effect = {side: random.normal(0, 1.5, (len(PHONES), dim)) for side in ("left", "right")}
    own = random.normal(0, 3.0, (len(PHONES), 3, dim))
    of = {}
    for _ in range(num_contexts):
        left, right = random.integers(0, len(PHONES), 2).tolist()
        phone = int(random.integers(1, len(PHONES)))
        is_silence = phone in PHONES.silence_numbers
        if is_silence:
            left = right = 0
        position = int(random.integers(TOPOLOGY.num_states(PHONES, phone)))
        mean = own[phone, position] + effect["left"][left] + effect["right"][right]
        of[left, phone, right, position] = random.normal(mean, 1.0, (random.integers(1, 30), dim))
    return Frames(of)


def literal_log_likelihood(frames: Doubles, variance_floor: float = 0.01) -> float:
    """That of frames, frame by frame, by the Gaussian that has their mean and variance."""
    mean = frames.mean(axis=0)
    variance = frames.var(axis=0)
    if (variance < variance_floor).any():  # the Gaussian's variance is not that of the frames
        variance = np.maximum(variance, variance_floor)
        return float(-0.5 * len(frames) * (np.log(variance) + 1 + math.log(2 * math.pi)).sum())
    squares = (frames - mean) ** 2 / variance
    return float(-0.5 * (squares + np.log(2 * math.pi * variance)).sum())
