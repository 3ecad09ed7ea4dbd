"""Stages that train GMM-HMMs: monophones, triphones, LDA + MLLT, speaker-adaptive training."""

from __future__ import annotations

from collections.abc import Callable

from natgrad.recipes.speech_config import ContextModel
from natgrad.recipes.workshop import NUM_SHARES, Workshop
from natgrad.run.stages import Facts
from natgrad.speech.corpus import Corpus
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.training import GmmTrainer, Iteration
from natgrad.speech.trained import Trained

__all__ = ["train_lda", "train_mono", "train_sat", "train_tri"]

DELTAS = FrontEnd(num_deltas=2)


def train_mono(shop: Workshop) -> Facts:
    """Train monophones from a flat start on the shortest utterances; align all with them."""
    config = shop.config
    corpus = shop.corpus("train")
    shortest = sorted(corpus.items, key=lambda item: (item.num_frames, item.key))
    some = corpus.subset([item.key for item in shortest[: config.monophone_utterances]])
    phones = shop.lexicon.phone_set(config.marks_position)
    with shop.progress("monophones", config.monophone.num_iterations) as update:
        trainer = _trainer(shop, some, update)
        trained = trainer.flat_start(phones, config.topology, DELTAS, config.monophone)
    return _keep(shop, "mono", _trainer(shop, corpus).align(trained, config.monophone))


def train_tri(shop: Workshop) -> Facts:
    """Train triphones on the alignments of the monophones."""
    start = Trained.read(shop.files.gmm("mono"))
    return _train(shop, "tri", start, DELTAS, shop.config.triphone)


def train_lda(shop: Workshop) -> Facts:
    """Train triphones on spliced frames, projected by LDA and MLLT."""
    config = shop.config
    start = Trained.read(shop.files.gmm("tri"))
    trainer = _trainer(shop, shop.corpus("train"))
    front_end = trainer.estimate_lda(start, config.lda_context, config.lda_context, config.lda_dim)
    return _train(shop, "lda", start, front_end, config.lda_mllt)


def train_sat(shop: Workshop) -> Facts:
    """Train triphones on features that each speaker's own transform was applied to."""
    trainer = _trainer(shop, shop.corpus("train"))
    start = trainer.adapt(Trained.read(shop.files.gmm("lda")), shop.config.sat.schedule)
    return _train(shop, "sat", start, start.model.front_end, shop.config.sat)


def _train(
    shop: Workshop, name: str, start: Trained, front_end: FrontEnd, model: ContextModel
) -> Facts:
    with shop.progress(name, model.schedule.num_iterations) as update:
        trainer = _trainer(shop, shop.corpus("train"), update)
        trained = trainer.train_context(start, front_end, model.num_leaves, model.schedule)
    return _keep(shop, name, trained)


def _trainer(
    shop: Workshop, corpus: Corpus, update: Callable[[int], object] | None = None
) -> GmmTrainer:
    def count(iteration: Iteration) -> None:
        if update is not None:
            update(1)

    return GmmTrainer(corpus.shares(NUM_SHARES), shop.lexicon, shop.workers, count)


def _keep(shop: Workshop, name: str, trained: Trained) -> Facts:
    trained.write(shop.files.gmm(name))
    return {
        "pdfs": trained.model.gmms.num_pdfs,
        "gaussians": trained.model.gmms.num_gaussians,
        "failures": dict(trained.failures),
    }
