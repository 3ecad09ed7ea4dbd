"""Models of every kind, of a language of a few words, in a second."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import replace

from natgrad.speech.corpus import Share
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.training import GmmTrainer, Schedule
from natgrad.speech.trained import Trained
from tests.speech.toy_language import LEXICON, PHONES, TOPOLOGY

DELTAS = FrontEnd(num_deltas=1)
SHORT = Schedule(num_iterations=4, num_gaussians=30, last_growth=3, align_at=(2, 3))
NUM_LEAVES = 30


def train_all(shares: list[Share], executor: Executor) -> list[Trained]:
    """Train a model of each kind, each from the one before."""
    trainer = GmmTrainer(shares, LEXICON, executor)
    mono = trainer.flat_start(PHONES, TOPOLOGY, DELTAS, SHORT)
    schedule = replace(SHORT, num_gaussians=50)
    tri = trainer.train_context(mono, DELTAS, NUM_LEAVES, schedule)
    front_end = trainer.estimate_lda(tri, 1, 1, 6)
    lda = trainer.train_context(tri, front_end, NUM_LEAVES, replace(schedule, mllt_at=(2,)))
    adapted = trainer.adapt(lda, schedule)
    with_transforms = replace(schedule, fmllr_at=(3,))
    sat = trainer.train_context(adapted, adapted.model.front_end, NUM_LEAVES, with_transforms)
    return [mono, tri, lda, sat]
