"""From features to words: what a worker does with its share of the utterances to recognise."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Item, Scorer, Share, SpeakerTransforms
from natgrad.speech.decoding.decoder import Decoder, DecoderOptions, DecodingError
from natgrad.speech.decoding.search_graph import SearchGraph, SearchGraphError
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.passes import estimate_transforms
from natgrad.speech.graphs.graph_file import read_graph
from natgrad.speech.score import Setting

__all__ = [
    "Pass",
    "RecognisedShare",
    "recognise",
    "recognise_by_speaker",
]

NUM_ADAPTATION_ROUNDS = 3  # of fMLLR on the words of one pass


@dataclass(frozen=True)
class Pass:
    """A graph to search, how widely, and the settings that words are wanted for.

    Args:
        graph: a file of `natgrad.speech.graphs.decoding_graph`.
        options: of the decoder.
        settings: weights and penalties; a lattice gives other words for each.
    """

    graph: Path
    options: DecoderOptions
    settings: tuple[Setting, ...]

    def __post_init__(self) -> None:
        if not self.settings:
            raise ValueError("words are wanted for no setting: give one at least")
        for weight, penalty in self.settings:
            if not (0.0 < weight < math.inf and math.isfinite(penalty)):
                raise ValueError(
                    f"a setting has the lm_weight {weight} and the word_penalty {penalty}; "
                    "expected finite numbers, and a weight of more than 0"
                )


@dataclass
class RecognisedShare:
    """What was recognised, by utterance."""

    words: dict[str, dict[Setting, tuple[int, ...]]] = field(default_factory=dict)
    alignments: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    unfinished: list[str] = field(default_factory=list)  # no way ended at the last frame
    seconds: float = 0.0  # of one core, scoring included
    num_frames: int = 0

    @staticmethod
    def total(parts: Iterable[RecognisedShare]) -> RecognisedShare:
        """Return what was recognised in all parts."""
        result = RecognisedShare()
        for part in parts:
            result.words |= part.words
            result.alignments |= part.alignments
            result.failures |= part.failures
            result.unfinished += part.unfinished
            result.seconds += part.seconds
            result.num_frames += part.num_frames
        return result


def recognise(
    share: Share,
    front_end: FrontEnd,
    scorer: Scorer,
    pdf_of_label: NDArray[np.int32],
    one_pass: Pass,
    transforms: SpeakerTransforms | None = None,
    items: Sequence[Item] | None = None,
) -> RecognisedShare:
    """Recognise a share's utterances (or some of them)."""
    result = RecognisedShare()
    file = one_pass.graph.stat()
    version = (file.st_ino, file.st_mtime_ns)
    graph = _search_graph(one_pass.graph, version, pdf_of_label.tobytes())
    decoder = Decoder(graph, one_pass.options)
    for item, features in share.read(front_end, transforms, items):
        began = time.perf_counter()
        try:
            decoder.start()
            decoder.accept(scorer(features))
            lattice = decoder.finish()
        except DecodingError as error:
            result.failures[item.key] = str(error)
            continue
        if not lattice.reached_final:
            result.unfinished.append(item.key)
        paths = {
            setting: lattice.best_path(
                acoustic_scale=1.0 / setting.lm_weight, word_penalty=setting.word_penalty
            )
            for setting in one_pass.settings
        }
        result.words[item.key] = {setting: path.words for setting, path in paths.items()}
        best = lattice.best_path(acoustic_scale=one_pass.options.acoustic_scale)
        result.alignments[item.key] = best.alignment
        result.seconds += time.perf_counter() - began
        result.num_frames += len(features)
    return result


def recognise_by_speaker(
    share: Share, model: AcousticModel, passes_to_do: Sequence[Pass]
) -> tuple[list[RecognisedShare], dict[str, NDArray[np.float64]]]:
    """Recognise in passes: the first without speakers' transforms, the next with those it suggests.

    Returns:
        what each pass recognised, and the transforms that the last one suggests: for a network,
        which comes after it.
    """
    pdf_of_label = model.states.pdf_of_label
    unadapted = model.unadapted or model.gmms

    def adapt(
        heard: RecognisedShare, now: SpeakerTransforms | None
    ) -> dict[str, NDArray[np.float64]]:
        return estimate_transforms(share, heard.alignments, model, now, NUM_ADAPTATION_ROUNDS)

    first = recognise(
        share, model.front_end, unadapted.log_likelihoods, pdf_of_label, passes_to_do[0]
    )
    if len(passes_to_do) == 1:
        return [first], {}
    passes, transforms = [first], adapt(first, None)
    for one_pass in passes_to_do[1:]:
        passes.append(
            recognise(
                share,
                model.front_end,
                model.gmms.log_likelihoods,
                pdf_of_label,
                one_pass,
                transforms,
            )
        )
        transforms = adapt(passes[-1], transforms)
    return passes, transforms


@lru_cache(maxsize=2)
def _search_graph(path: Path, version: tuple[int, int], pdf_of_label: bytes) -> SearchGraph:
    """Read a graph once in each process: it may take a second, and much memory.

    Its version is asked for so that another one that was written in its place is read too.
    """
    graph = read_graph(path)
    try:
        return SearchGraph.of(graph, np.frombuffer(pdf_of_label, dtype=np.int32))
    except SearchGraphError as error:
        raise SearchGraphError(f"{path}: {error}") from error
