"""Random alignments, made phone by phone, so that what they are of is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.hmm import ContextTree, HmmStates, PhoneSpan


class Made(NamedTuple):
    """An alignment, the phones that it was made of, and how long each of their states is."""

    states: NDArray[np.int32]
    spans: list[PhoneSpan]
    durations: list[tuple[int, int]]  # (state, frames)


def draw_alignment(seed: int, states: HmmStates, tree: ContextTree, num_phones: int) -> Made:
    random = np.random.default_rng(seed)
    phones = random.integers(1, len(states.phones), num_phones).tolist()
    durations, spans, begin = [], [], 0
    for place, phone in enumerate(phones):
        left = phones[place - 1] if place else 0
        right = phones[place + 1] if place + 1 < len(phones) else 0
        end = begin
        for position in range(states.topology.num_states(states.phones, phone)):
            lefts, here, rights = (np.array([each], np.int32) for each in (left, phone, right))
            pdf = int(tree.pdf(lefts, here, rights, position)[0])
            durations.append((states.number[phone, position, pdf], int(random.integers(1, 5))))
            end += durations[-1][1]
        spans.append(PhoneSpan(phone, begin, end))
        begin = end
    numbers, frames = np.array(durations, dtype=np.int32).T
    return Made(np.repeat(numbers, frames), spans, durations)
