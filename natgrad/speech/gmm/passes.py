"""What a worker does with its share of the utterances while a GMM-HMM is trained.

Every function here takes a share and returns what adds up: statistics, alignments. They are sent
to workers by name, and give the same whatever worker does them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Item, Scorer, Share, SpeakerTransforms
from natgrad.speech.features.cmvn import CmvnStatistics
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.align import AlignmentFailure, align, equal_alignment
from natgrad.speech.gmm.fmllr import FmllrStatistics, apply_affine, estimate_fmllr
from natgrad.speech.gmm.lda import LdaStatistics
from natgrad.speech.gmm.mllt import MlltStatistics
from natgrad.speech.gmm.statistics import GmmStatistics
from natgrad.speech.gmm.tree_statistics import TreeStatistics, accumulate_tree_statistics, merge
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.graphs.training_graph import TrainingGraphs
from natgrad.speech.hmm import ContextTree, HmmStates, TransitionCounts
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.trained import Alignments

__all__ = [
    "AlignedShare",
    "align_equally",
    "align_share",
    "count_features",
    "count_for_gmms",
    "count_for_lda",
    "count_for_mllt",
    "count_for_tree",
    "count_for_unadapted",
    "estimate_transforms",
]

SILENCE_WEIGHT = 0.01  # of frames of silence where a speaker's transform is estimated
NUM_ROUNDS = 2  # of estimating a transform, each with the Gaussians that the last one suggests


@dataclass
class AlignedShare:
    """The alignments of a share's utterances, and why others have none."""

    alignments: dict[str, NDArray[np.int32]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    num_retried: int = 0  # that needed the wider beam
    log_likelihood: float = 0.0  # of all frames aligned


def count_features(share: Share, alignments: Alignments, front_end: FrontEnd) -> CmvnStatistics:
    """Return the moments of all frames of aligned utterances."""
    kept = _aligned_items(share, alignments)
    first, *others = (CmvnStatistics.of(x) for _, x in share.read(front_end, None, kept))
    return sum(others, start=first)


def align_equally(
    share: Share, lexicon: Lexicon, tree: ContextTree, states: HmmStates
) -> AlignedShare:
    """Spread the frames of each utterance evenly over the states of its words."""
    result = AlignedShare()
    graphs = TrainingGraphs(lexicon, word_symbols(lexicon), tree, states)
    for item in share.items:
        graph = _graph_of(graphs, item)
        found = (
            equal_alignment(graph, item.num_frames, states.is_silence)
            if isinstance(graph, Graph)
            else graph
        )
        if isinstance(found, AlignmentFailure):
            result.failures[item.key] = found.reason
        else:
            result.alignments[item.key] = found
    return result


def align_share(
    share: Share,
    lexicon: Lexicon,
    model: AcousticModel,
    transforms: SpeakerTransforms | None,
    beam: float,
    retry_beam: float,
    acoustic_scale: float,
    scorer: Scorer | None = None,
) -> AlignedShare:
    """Align each utterance to its words, by the model's mixtures or by another scorer of its pdfs.

    Only the pdfs of the utterance's own graph need scores of the mixtures: a tenth of all.
    """
    result = AlignedShare()
    graphs = TrainingGraphs(lexicon, word_symbols(lexicon), model.tree, model.states)
    for item, features in share.read(model.front_end, transforms):
        graph = _graph_of(graphs, item)
        if isinstance(graph, AlignmentFailure):
            result.failures[item.key] = graph.reason
            continue
        pdf_of_label = model.states.pdf_of_label
        pdfs = np.unique(pdf_of_label[graph.label[graph.label > 0]])
        place = np.full(model.states.num_pdfs + 1, -1, dtype=np.int32)
        place[pdfs] = np.arange(len(pdfs))
        scores = (
            model.gmms.restricted_to(pdfs).log_likelihoods(features)
            if scorer is None
            else scorer(features)[:, pdfs]
        )
        found = align(
            graph,
            place[pdf_of_label],
            scores,
            acoustic_scale,
            beam,
            retry_beam,
        )
        if isinstance(found, AlignmentFailure):
            result.failures[item.key] = found.reason
            continue
        result.alignments[item.key] = found.states
        result.num_retried += found.beam > beam
        result.log_likelihood += found.log_likelihood
    return result


def count_for_gmms(
    share: Share,
    alignments: Alignments,
    model: AcousticModel,
    transforms: SpeakerTransforms | None,
) -> tuple[GmmStatistics, TransitionCounts]:
    """Return what the mixtures and the self-loops are re-estimated from."""
    statistics = GmmStatistics.zeros(model.gmms)
    for pdfs, features in _aligned(share, alignments, model.states, model.front_end, transforms):
        statistics.add(features, pdfs, model.gmms)
    counts = model.states.count(
        alignments[item.key] for item in share.items if item.key in alignments
    )
    return statistics, counts


def count_for_unadapted(
    share: Share, alignments: Alignments, model: AcousticModel, transforms: SpeakerTransforms
) -> GmmStatistics:
    """Return the moments of unadapted features, by the Gaussians that the adapted ones are of."""
    statistics = GmmStatistics.zeros(model.gmms)
    adapted = _aligned(share, alignments, model.states, model.front_end, transforms)
    unadapted = _aligned(share, alignments, model.states, model.front_end, None)
    for (pdfs, features), (_, others) in zip(adapted, unadapted, strict=True):
        statistics.add(features, pdfs, model.gmms, moments_of=others)
    return statistics


def count_for_tree(
    share: Share,
    alignments: Alignments,
    front_end: FrontEnd,
    states: HmmStates,
    transforms: SpeakerTransforms | None,
) -> TreeStatistics:
    """Return the moments of every state of every phone in every context."""
    kept = _aligned_items(share, alignments)
    return merge(
        accumulate_tree_statistics(features, alignments[item.key], states)
        for item, features in share.read(front_end, transforms, kept)
    )


def count_for_lda(
    share: Share, alignments: Alignments, front_end: FrontEnd, states: HmmStates
) -> LdaStatistics:
    """Return the moments of each pdf's frames of a front end without its transform."""
    statistics: LdaStatistics | None = None
    for pdfs, features in _aligned(share, alignments, states, front_end, None):
        if statistics is None:
            statistics = LdaStatistics.zeros(features.shape[1], states.num_pdfs)
        statistics.add(features, pdfs)
    assert statistics is not None, "only shares with alignments are counted"
    return statistics


def count_for_mllt(
    share: Share,
    alignments: Alignments,
    model: AcousticModel,
    transforms: SpeakerTransforms | None,
) -> MlltStatistics:
    """Return the covariances that a transform which makes them diagonal is estimated from."""
    statistics = MlltStatistics.zeros(model.gmms)
    for pdfs, features in _aligned(share, alignments, model.states, model.front_end, transforms):
        statistics.add(features, pdfs, model.gmms)
    return statistics


def estimate_transforms(
    share: Share,
    alignments: Alignments,
    model: AcousticModel,
    transforms: SpeakerTransforms | None,
    num_rounds: int = NUM_ROUNDS,
) -> dict[str, NDArray[np.float64]]:
    """Return each speaker's transform of the model's features (fMLLR).

    The Gaussian that a frame is of is judged by the features as they are now transformed; the
    transform itself is always of the features as they come from the front end.
    """
    before = transforms or {}
    result = {speaker: before[speaker] for speaker in share.by_speaker() if speaker in before}
    kept = sorted(_aligned_items(share, alignments), key=_speaker_of)
    # Speakers are read one after the other in one go: to open the features takes time.
    for _ in range(num_rounds):
        frames = share.read(model.front_end, None, kept)
        for speaker, of_speaker in groupby(frames, key=lambda frame: _speaker_of(frame[0])):
            start = result.get(speaker)
            statistics = _count_for_transform(of_speaker, alignments, model, start)
            result[speaker] = estimate_fmllr(statistics, start=start).transform
    return result


def _count_for_transform(
    frames: Iterable[tuple[Item, NDArray[np.float32]]],
    alignments: Alignments,
    model: AcousticModel,
    transform: NDArray[np.float64] | None,
) -> FmllrStatistics:
    statistics = FmllrStatistics.zeros(model.gmms.dim)
    for item, features in frames:
        states = alignments[item.key]
        weights = np.where(model.states.is_silence[states], SILENCE_WEIGHT, 1.0)
        judged = features if transform is None else apply_affine(transform, features)
        posteriors = model.gmms.posteriors(judged, model.states.pdf[states], weights)
        statistics.add_posteriors(features, posteriors, model.gmms)
    return statistics


def _speaker_of(item: Item) -> str:
    return item.speaker


def _graph_of(graphs: TrainingGraphs, item: Item) -> Graph | AlignmentFailure:
    """An utterance without words, or with one that is not in the lexicon, harms no other."""
    try:
        return graphs.graph(item.words or ())
    except ValueError as error:
        return AlignmentFailure(str(error))


def _aligned_items(share: Share, alignments: Alignments) -> list[Item]:
    """The utterances that are aligned, each of as many frames as its alignment."""
    kept = [item for item in share.items if item.key in alignments]
    for item in kept:
        if len(alignments[item.key]) != item.num_frames:
            raise ValueError(
                f"the alignment of {item.key} has {len(alignments[item.key])} frames, its features "
                f"in {share.features} have {item.num_frames}: were they computed again since? "
                "Align the utterances again"
            )
    return kept


def _aligned(
    share: Share,
    alignments: Alignments,
    states: HmmStates,
    front_end: FrontEnd,
    transforms: SpeakerTransforms | None,
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.float32]]]:
    kept = _aligned_items(share, alignments)
    for item, features in share.read(front_end, transforms, kept):
        yield states.pdf[alignments[item.key]], features
