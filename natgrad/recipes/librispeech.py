"""LibriSpeech: read books, at 8 kHz; trained on all of train-*, 5.3 hours in train-clean-5.

    natgrad recipe librispeech --data LIBRISPEECH --out exp/librispeech

The CMU dictionary is looked for beside the corpus, as ../cmudict/cmudict.txt. The language model is
a trigram of the text that comes with the corpus. Speakers of dev-clean are divided in two: those
whose errors the settings are chosen by, and those whose errors are reported.
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
from natgrad.speech.data.corpora import prepare_librispeech
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.gmm.training import Schedule
from natgrad.speech.lexicon.files import read_cmudict, write_lexicon
from natgrad.speech.lexicon.grapheme_to_phoneme import train_g2p
from natgrad.speech.lexicon.pronounce import pronounce
from natgrad.speech.lm.arpa import write_arpa
from natgrad.speech.lm.kneser_ney import estimate
from natgrad.speech.lm.numbered_text import number_text
from natgrad.speech.lm.perplexity import perplexity
from natgrad.speech.lm.pruning import prune

__all__ = ["librispeech_config", "librispeech_recipe"]

SAMPLE_RATE = 8000
NUM_WORDS, NUM_NGRAMS = 40_000, 1_000_000  # of the language model
NARROW = DecoderOptions(beam=11.0, max_active=3000, lattice_beam=5.0)
WIDE = DecoderOptions(beam=13.0, max_active=5000, lattice_beam=7.0)


def librispeech_config() -> SpeechConfig:
    """Return the choices of the recipe."""
    schedule = Schedule(
        num_iterations=35, num_gaussians=15_000, last_growth=25, align_at=(10, 20, 30)
    )
    return SpeechConfig(
        name="librispeech",
        tune="tune",
        report="report",
        mfcc=MfccOptions(sample_rate=SAMPLE_RATE, use_energy=False),
        monophone=Schedule(40, 1000, 30, ALIGN_MONOPHONES_AT, first_beam=6.0),
        monophone_utterances=500,
        triphone=ContextModel(2000, replace(schedule, num_gaussians=10_000)),
        lda_mllt=ContextModel(2500, replace(schedule, mllt_at=(2, 4, 6, 12))),
        sat=ContextModel(2500, replace(schedule, fmllr_at=(2, 4, 6, 12))),
        decoding=Decoding(
            first=NARROW,
            next=(WIDE,),
            settings=settings_grid(tuple(map(float, range(7, 20))), (-0.5, 0.0, 0.5, 1.0)),
        ),
        decoded=("sat",),
        dnn=DnnConfig(
            context=4,
            network=NetworkShape(hidden=((1000, 200),) * 3, iterations_per_layer=2),
            training=TrainingConfig(
                num_epochs=2.5, num_jobs=2, initial_effective_lr=0.01, final_effective_lr=0.001
            ),
            combination=CombinationConfig(num_models=10),
            samples_per_job=60_000,
            validation_samples=20_000,
            train_subset_samples=20_000,
            piece_frames=None,
            decoder=WIDE,
            other_speeds=(0.9, 1.1),
        ),
    )


def librispeech_recipe(source: str | Path, dictionary: str | Path | None = None) -> SpeechRecipe:
    """Return the recipe for a copy of the corpus.

    Args:
        source: the corpus, with lm/text.txt.xz beside the sets.
        dictionary: the CMU dictionary; by default ../cmudict/cmudict.txt, seen from the corpus.
    """
    source = Path(source).resolve()  # the same corpus, by whatever way it is named
    beside = source.parent / "cmudict" / "cmudict.txt"
    dictionary = beside if dictionary is None else Path(dictionary).absolute()
    return SpeechRecipe(
        librispeech_config(),
        partial(prepare_data, source=source),
        partial(prepare_language, source=source, dictionary=dictionary),
        {
            "source": str(source),
            "dictionary": str(dictionary),
            "num_words": NUM_WORDS,
            "num_ngrams": NUM_NGRAMS,
        },
    )


def prepare_data(shop: Workshop, source: Path) -> Facts:
    """Write the data directories of the corpus, and look for what is wrong with them."""
    sets = prepare_librispeech(source, shop.files.data("."))
    others = {"train": None, "tune_all": sets["train"], "report_all": sets["train"]}
    problems = [
        problem
        for name, other in others.items()
        for problem in check_set(shop, name, sets[name], None, other)
    ]
    return {
        "utterances": {name: len(data.utterances) for name, data in sets.items()},
        "problems": [str(problem) for problem in problems],
    }


def prepare_language(shop: Workshop, source: Path, dictionary: Path) -> Facts:
    """Write the lexicon and the language model.

    Words of the language model are the most frequent of the text. Those that the dictionary lacks,
    and those of the training transcripts, are pronounced by other spellings, by their parts, or by
    a model of letters and sounds that is learned from the dictionary.
    """
    path = source / "lm" / "text.txt.xz"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: the language model is estimated from it")
    text = number_text(path)
    frequent = text.most_frequent(NUM_WORDS)
    said = {w for u in shop.data("train").utterances.values() for w in u.text or ()}
    model = train_g2p(read_cmudict(dictionary, stress=True))
    lexicon, report = pronounce(said.union(frequent), read_cmudict(dictionary), model)
    words = [word for word in frequent if word in lexicon]
    grammar = prune(estimate(text, words, order=3, unknown=None), num_ngrams=NUM_NGRAMS, text=text)
    shop.files.lexicon.parent.mkdir(parents=True, exist_ok=True)
    write_lexicon(shop.files.lexicon, lexicon)
    write_arpa(grammar, shop.files.language_model)
    tuning = [" ".join(u.text or ()) for u in shop.data(shop.config.tune).utterances.values()]
    on_tuning = perplexity(grammar, tuning)
    return {
        "words": len(words),
        "ngrams": grammar.num_ngrams,
        "pronunciations": str(report).splitlines(),
        "perplexity": round(on_tuning.value, 1),
        "out_of_vocabulary": round(on_tuning.unknown_rate, 4),
    }
