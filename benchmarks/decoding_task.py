"""Utterances to decode, and all that is needed for it: what `benchmarks.decode` takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.corpus import Scorer
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.score import Setting
from natgrad.speech.symbols import Symbols

__all__ = ["FRAMES_PER_SECOND", "DecodingTask", "Utterance"]

FRAMES_PER_SECOND = 100.0


@dataclass(frozen=True, eq=False)
class Utterance:
    """Features (T, D), and what was said; None where nobody knows."""

    key: str
    features: NDArray[np.float32]
    words: tuple[str, ...] | None


@dataclass(frozen=True, eq=False)
class DecodingTask:
    """What is decoded, and how.

    Args:
        title: where it is from.
        utterances: at least one.
        graph: to search.
        words: of the graph's numbers.
        scorer: from features to log-likelihoods.
        options: of the search, as they are used; beams are measured around this one.
        setting: how the lattice is weighed to find the words.
    """

    title: str
    utterances: tuple[Utterance, ...]
    graph: SearchGraph
    words: Symbols
    scorer: Scorer
    options: DecoderOptions
    setting: Setting

    @property
    def num_frames(self) -> int:
        """How many frames all utterances have."""
        return sum(len(utterance.features) for utterance in self.utterances)

    @property
    def num_seconds(self) -> float:
        """How long they are."""
        return self.num_frames / FRAMES_PER_SECOND
