"""AN4: connected spelling and numbers, 0.7 hours; as in Kaldi's own recipe for it.

    natgrad recipe an4 --data AN4 --out exp/an4

There is no development set: each test speaker is recognised with the language-model weight that is
best for the other nine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from natgrad.recipes.recording_stages import check_set
from natgrad.recipes.speech_config import (
    ALIGN_MONOPHONES_AT,
    ContextModel,
    Decoding,
    DnnConfig,
    SpeechConfig,
    settings_grid,
)
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.train_config import CombinationConfig, NetworkShape, TrainingConfig
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.data.corpora import prepare_an4
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.gmm.training import Schedule
from natgrad.speech.graphs.grammar_fst import restricted_to
from natgrad.speech.lexicon.files import read_lexicon, write_lexicon
from natgrad.speech.lm.arpa import read_arpa, write_arpa

__all__ = ["an4_config", "an4_recipe"]

SAMPLE_RATE = 16000
# Words that the language model of the corpus has, and Kaldi's recipe leaves out of it.
LEFT_OUT = frozenset({"HALL", "LANE", "MEMORY", "TWELVTH", "WEAN"})

# Chosen by recognising each third of the training speakers with models of the others (LOG.md).
NUM_LEAVES, NUM_GAUSSIANS, LDA_DIM = 1800, 2000, 30
# Blocks of so few samples are fair samples of the corpus only if its utterances are scattered in
# short pieces: with those of the default, the objective went up and down from block to block.
PIECE_FRAMES = 20
LM_WEIGHTS = (6.0, 7.0, 8.0, 9.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 24.0, 28.0, 32.0)
WIDE = DecoderOptions(beam=13.0, max_active=7000, lattice_beam=8.0)


def an4_config() -> SpeechConfig:
    """Return the choices of the recipe."""
    schedule = Schedule(
        num_iterations=35, num_gaussians=NUM_GAUSSIANS, last_growth=25, align_at=(10, 20, 30)
    )
    return SpeechConfig(
        name="an4",
        tune="test",
        report="test",
        mfcc=MfccOptions(sample_rate=SAMPLE_RATE, use_energy=False),
        normalize_variance=True,
        monophone=Schedule(45, NUM_GAUSSIANS, 35, ALIGN_MONOPHONES_AT, first_beam=6.0),
        triphone=ContextModel(NUM_LEAVES, schedule),
        lda_mllt=ContextModel(NUM_LEAVES, replace(schedule, mllt_at=(2, 4, 6, 12))),
        lda_dim=LDA_DIM,
        sat=ContextModel(NUM_LEAVES, replace(schedule, fmllr_at=(2, 4, 6, 12))),
        decoding=Decoding(
            first=WIDE,
            next=(WIDE, WIDE),
            settings=settings_grid(LM_WEIGHTS, (-1.0, 0.0)),
        ),
        decoded=("mono", "tri", "lda", "sat"),
        dnn=DnnConfig(
            context=4,
            network=NetworkShape(hidden=((600, 120),) * 3, iterations_per_layer=2),
            training=TrainingConfig(
                num_epochs=1.3, num_jobs=2, initial_effective_lr=0.01, final_effective_lr=0.001
            ),
            combination=CombinationConfig(num_models=10),
            samples_per_job=20_000,
            validation_samples=10_000,
            train_subset_samples=10_000,
            piece_frames=PIECE_FRAMES,
            decoder=WIDE,
            other_speeds=(0.85, 0.9, 0.95, 1.05, 1.1, 1.15),
        ),
    )


def an4_recipe(source: str | Path) -> SpeechRecipe:
    """Return the recipe for a copy of the corpus."""
    source = Path(source).resolve()  # the same corpus, by whatever way it is named
    return SpeechRecipe(
        an4_config(),
        partial(prepare_data, source=source),
        partial(prepare_language, source=source),
        {"source": str(source)},
    )


def prepare_data(shop: Workshop, source: Path) -> Facts:
    """Write the data directories of the corpus, and look for what is wrong with them."""
    sets = prepare_an4(source, shop.files.data("."))
    words = read_lexicon(source / "etc" / "an4.dic").words
    problems = check_set(shop, "train", sets["train"], words, sets["test"])
    problems += check_set(shop, "test", sets["test"], words, None)
    return {
        "utterances": {name: len(data.utterances) for name, data in sets.items()},
        "problems": [str(problem) for problem in problems],
    }


def prepare_language(shop: Workshop, source: Path) -> Facts:
    """Write the dictionary and the language model of the corpus."""
    lexicon = read_lexicon(source / "etc" / "an4.dic")
    grammar = restricted_to(read_arpa(source / "etc" / "an4.ug.lm"), lexicon.words - LEFT_OUT)
    shop.files.lexicon.parent.mkdir(parents=True, exist_ok=True)
    write_lexicon(shop.files.lexicon, lexicon)
    write_arpa(grammar, shop.files.language_model)
    return {"words": len(lexicon.words), "ngrams": grammar.num_ngrams}
