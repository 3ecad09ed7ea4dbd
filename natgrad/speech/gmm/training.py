"""Training of GMM-HMMs: a flat start with monophones, then ever better models of each other's
alignments: triphones with deltas, with LDA and MLLT, with fMLLR for each speaker.

All are trained by the same loop. What an iteration does beside re-estimation (aligning again, new
transforms, more Gaussians) is said by a `Schedule`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Scorer, Share, over_shares
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm import passes as gmm_passes
from natgrad.speech.gmm.fmllr import rotate_affine
from natgrad.speech.gmm.lda import estimate_lda
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.mllt import estimate_mllt, transform_means
from natgrad.speech.gmm.passes import AlignedShare
from natgrad.speech.gmm.questions import derive_questions
from natgrad.speech.gmm.split import split
from natgrad.speech.gmm.statistics import VARIANCE_FLOOR, update
from natgrad.speech.gmm.tree import build_tree
from natgrad.speech.gmm.tree_statistics import merge
from natgrad.speech.hmm import ContextTree, HmmStates, MonophoneTree, Topology
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.phones import PhoneSet
from natgrad.speech.trained import Alignments, Trained

__all__ = ["GmmTrainer", "Iteration", "Schedule", "convert_alignment"]


@dataclass(frozen=True)
class Schedule:
    """When what is done: iterations are numbered from 1.

    Args:
        num_iterations: of re-estimation.
        num_gaussians: in all, when they have grown.
        last_growth: the iteration after which their number stays.
        align_at: iterations before which the utterances are aligned again.
        mllt_at: those before which MLLT is estimated again.
        fmllr_at: those before which the speakers' transforms are.
        beam, retry_beam: of alignment.
        first_beam: of the first one.
        acoustic_scale: of alignment.
        power: Gaussians are shared out by the frames of each pdf to this power.
    """

    num_iterations: int
    num_gaussians: int
    last_growth: int
    align_at: tuple[int, ...]
    mllt_at: tuple[int, ...] = ()
    fmllr_at: tuple[int, ...] = ()
    beam: float = 10.0
    retry_beam: float = 40.0
    first_beam: float = 10.0
    acoustic_scale: float = 0.1
    power: float = 0.25


@dataclass(frozen=True)
class Iteration:
    """What an iteration reached."""

    number: int
    num_iterations: int
    log_likelihood: float  # mean per frame, of the model before it was re-estimated
    num_gaussians: int
    num_failures: int
    num_retried: int


@dataclass(frozen=True, eq=False)
class GmmTrainer:
    """Trains on shares of a corpus, on the workers of an executor."""

    shares: Sequence[Share]
    lexicon: Lexicon
    executor: Executor
    on_iteration: Callable[[Iteration], None] | None = None

    def flat_start(
        self, phones: PhoneSet, topology: Topology, front_end: FrontEnd, schedule: Schedule
    ) -> Trained:
        """Train monophones from nothing but the transcripts."""
        tree = MonophoneTree(phones, topology)
        states = HmmStates.of(phones, topology, tree)
        alignments, failures = _gather(
            self._over_shares(gmm_passes.align_equally, tree, states, each=self._lexicons)
        )
        moments = reduce(
            add, self._over_shares(gmm_passes.count_features, front_end, of=alignments)
        )
        mean = moments.total / moments.count
        variance = moments.squares / moments.count - mean**2
        gmms = GmmSet.flat(mean, np.maximum(variance, VARIANCE_FLOOR), tree.num_pdfs)
        model = AcousticModel(front_end, tree, states, gmms)
        return self.train(Trained(model, alignments, None, failures), schedule)

    def train_context(
        self, before: Trained, front_end: FrontEnd, num_leaves: int, schedule: Schedule
    ) -> Trained:
        """Train a model of phones in context, from the alignments of an earlier one.

        Speakers' transforms, if the earlier one has them, are of this front end's features.

        Raises:
            ValueError: there are transforms, and they are of another front end's features.
        """
        states, transforms = before.model.states, before.transforms
        if transforms is not None and not _are_same(front_end, before.model.front_end):
            raise ValueError(
                "the speakers' transforms are of the features of the earlier model's front end, "
                "and another one is given: give that one, or an earlier model without transforms"
            )
        statistics = merge(
            self._over_shares(
                gmm_passes.count_for_tree, front_end, states, transforms, of=before.alignments
            )
        )
        phones, topology = states.phones, states.topology
        tree = build_tree(
            statistics, phones, topology, derive_questions(statistics, phones), num_leaves
        )
        model = AcousticModel(
            front_end,
            tree,
            HmmStates.of(phones, topology, tree),
            tree.initial_gmms(statistics),
        )
        alignments = {
            key: convert_alignment(alignment, states, tree, model.states)
            for key, alignment in before.alignments.items()
        }
        return self.train(Trained(model, alignments, transforms, before.failures), schedule)

    def estimate_lda(self, before: Trained, left: int, right: int, dim: int) -> FrontEnd:
        """Return the front end of spliced frames and the projection that tells pdfs best apart."""
        spliced = FrontEnd(left=left, right=right)
        statistics = reduce(
            add,
            self._over_shares(
                gmm_passes.count_for_lda, spliced, before.model.states, of=before.alignments
            ),
        )
        return replace(spliced, transform=estimate_lda(statistics, dim).astype(np.float32))

    def align(self, trained: Trained, schedule: Schedule, scorer: Scorer | None = None) -> Trained:
        """Align all utterances of the shares, whatever was aligned before.

        With a scorer, by its scores of the model's pdfs instead of the mixtures'.
        """
        return self._aligned_again(trained, schedule, schedule.beam, scorer)[0]

    def adapt(self, trained: Trained, schedule: Schedule) -> Trained:
        """Estimate a transform for each speaker, and align again with them."""
        return self.align(self._with_new_transforms(trained), schedule)

    def train(self, trained: Trained, schedule: Schedule) -> Trained:
        """Re-estimate a model as often as a schedule says."""
        num_gaussians = trained.model.gmms.num_gaussians
        growth = schedule.num_gaussians - num_gaussians
        last_growth, num_retried, beam = schedule.last_growth, 0, schedule.first_beam
        for number in range(1, schedule.num_iterations + 1):
            if number in schedule.align_at:
                trained, num_retried = self._aligned_again(trained, schedule, beam)
                beam = schedule.beam
            if number in schedule.mllt_at:
                trained = self._with_new_mllt(trained)
            if number in schedule.fmllr_at:
                trained = self._with_new_transforms(trained)
            grown = num_gaussians + growth * min(number, last_growth) // max(last_growth, 1)
            trained, log_likelihood = self._reestimated(trained, grown, schedule.power)
            if self.on_iteration is not None:
                self.on_iteration(
                    Iteration(
                        number,
                        schedule.num_iterations,
                        log_likelihood,
                        trained.model.gmms.num_gaussians,
                        len(trained.failures),
                        num_retried,
                    )
                )
        if trained.transforms is not None:
            trained = self._with_unadapted(trained)
        return trained

    def _reestimated(
        self, trained: Trained, num_gaussians: int, power: float
    ) -> tuple[Trained, float]:
        model = trained.model
        parts = self._over_shares(
            gmm_passes.count_for_gmms, model, trained.transforms, of=trained.alignments
        )
        statistics = reduce(add, (part[0] for part in parts))
        counts = reduce(add, (part[1] for part in parts))
        gmms = update(model.gmms, statistics)
        if num_gaussians > gmms.num_gaussians:
            gmms = split(gmms, statistics.pdf_counts, num_gaussians, power)
        states = model.states.reestimated(counts)
        # Mixtures of unadapted features that there were before fit the new ones no more.
        model = replace(model, gmms=gmms, states=states, unadapted=None)
        mean = statistics.log_likelihood / max(statistics.num_frames, 1.0)
        return replace(trained, model=model), mean

    def _aligned_again(
        self, trained: Trained, schedule: Schedule, beam: float, scorer: Scorer | None = None
    ) -> tuple[Trained, int]:
        aligned = self._over_shares(
            gmm_passes.align_share,
            trained.model,
            trained.transforms,
            beam,
            schedule.retry_beam,
            schedule.acoustic_scale,
            scorer,
            each=self._lexicons,
        )
        alignments, failures = _gather(aligned)
        num_retried = sum(share.num_retried for share in aligned)
        return replace(trained, alignments=alignments, failures=failures), num_retried

    def _with_new_mllt(self, trained: Trained) -> Trained:
        model = trained.model
        statistics = reduce(
            add,
            self._over_shares(
                gmm_passes.count_for_mllt, model, trained.transforms, of=trained.alignments
            ),
        )
        rotation = estimate_mllt(statistics, model.gmms).matrix
        before = model.front_end.transform
        transform = rotation if before is None else rotation @ before
        front_end = replace(model.front_end, transform=transform.astype(np.float32))
        gmms = transform_means(model.gmms, rotation)
        rotated = replace(trained, model=replace(model, front_end=front_end, gmms=gmms))
        if trained.transforms is None:
            return rotated
        # It is of adapted features, but comes before the speakers' transforms.
        transforms = {
            speaker: rotate_affine(transform, rotation)
            for speaker, transform in trained.transforms.items()
        }
        return replace(rotated, transforms=transforms)

    def _with_new_transforms(self, trained: Trained) -> Trained:
        parts = self._over_shares(
            gmm_passes.estimate_transforms,
            trained.model,
            trained.transforms,
            of=trained.alignments,
        )
        start = dict(trained.transforms or {})
        return replace(trained, transforms=reduce(lambda a, b: a | b, parts, start))

    def _with_unadapted(self, trained: Trained) -> Trained:
        """Add the mixtures for features of speakers that there is no transform of."""
        parts = self._over_shares(
            gmm_passes.count_for_unadapted,
            trained.model,
            trained.transforms,
            of=trained.alignments,
        )
        unadapted = update(trained.model.gmms, reduce(add, parts))
        return replace(trained, model=replace(trained.model, unadapted=unadapted))

    @cached_property
    def _lexicons(self) -> list[Lexicon]:
        """For each share, its own words' pronunciations: the whole lexicon is much to send."""
        return [
            self.lexicon.restricted_to(
                {word for item in share.items for word in item.words or ()} & self.lexicon.words
            )
            for share in self.shares
        ]

    def _over_shares(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        of: Alignments | None = None,
        each: Sequence[Any] | None = None,
    ) -> list[Any]:
        """Call a function for each share; given alignments, with the share's part of them.

        Then shares without an alignment are left out: there is nothing to count in them.
        """
        if of is None:
            return over_shares(self.executor, function, self.shares, *arguments, each=each)
        parts = [(share, _part(of, share)) for share in self.shares]
        parts = [pair for pair in parts if pair[1]]
        if not parts:
            raise ValueError(
                f"none of the {len(of)} utterances that are aligned is in the shares: were other "
                "utterances aligned than those to train on?"
            )
        shares, each = zip(*parts, strict=True)
        return over_shares(self.executor, function, shares, *arguments, each=each)


def _gather(aligned: Sequence[AlignedShare]) -> tuple[Alignments, dict[str, str]]:
    """Return all alignments, and why other utterances have none."""
    failures = {key: why for share in aligned for key, why in share.failures.items()}
    alignments = {key: found for share in aligned for key, found in share.alignments.items()}
    if not aligned:
        raise ValueError("there are no utterances to align: a corpus has one at least")
    if not alignments:
        key, why = next(iter(failures.items()))
        raise ValueError(
            f"none of {len(failures)} utterances could be aligned to its words; the first is "
            f"{key}: {why}. Do the transcripts belong to these recordings?"
        )
    return alignments, failures


def _are_same(one: FrontEnd, other: FrontEnd) -> bool:
    arrays, others = one.to_arrays(), other.to_arrays()
    return arrays.keys() == others.keys() and all(
        np.array_equal(array, others[name]) for name, array in arrays.items()
    )


def _part(alignments: Alignments, share: Share) -> Alignments:
    return {item.key: alignments[item.key] for item in share.items if item.key in alignments}


def convert_alignment(
    alignment: NDArray[np.int32], before: HmmStates, tree: ContextTree, after: HmmStates
) -> NDArray[np.int32]:
    """Return an alignment in the states of another tree: the same phones, at the same frames."""
    spans = before.spans(alignment)
    phone = np.array([span.phone for span in spans], dtype=np.int32)
    left, right = np.append(np.int32(0), phone[:-1]), np.append(phone[1:], np.int32(0))
    of_frame = np.repeat(np.arange(len(spans)), [span.end - span.begin for span in spans])
    position = before.position[alignment]
    pdf = np.empty(len(alignment), dtype=np.int32)
    for place in range(int(position.max()) + 1):
        here = position == place
        has_place = np.unique(of_frame[here])
        pdfs = np.full(len(spans), -1, dtype=np.int32)
        pdfs[has_place] = tree.pdf(left[has_place], phone[has_place], right[has_place], place)
        pdf[here] = pdfs[of_frame[here]]
    keys = zip(phone[of_frame].tolist(), position.tolist(), pdf.tolist(), strict=True)
    return np.array([after.number[key] for key in keys], dtype=np.int32)
