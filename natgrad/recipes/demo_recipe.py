"""The whole speech recipe on synthesised voices: nothing to fetch, and a few minutes.

    natgrad recipe demo --out demo

Training, tuning and reported utterances are of different speakers and of different sentences. Words
are pronounced as espeak-ng says each of them alone, in one dialect; the speakers have eight, and in
sentences they say many words in another way, so the dictionary is often a bit wrong. The language
model is estimated from further sentences of the same grammar. Noise of 0 to 20 dB below the speech
makes it hard enough that every system has errors.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import soundfile

from natgrad.recipes.demo_speech import REPORT_VOICES, TRAINING_VOICES, TUNING_VOICES, spoken
from natgrad.recipes.recording_stages import check_set
from natgrad.recipes.sentences import draw_sentences, vocabulary, words_of
from natgrad.recipes.speech_config import (
    ContextModel,
    Decoding,
    DnnConfig,
    SpeechConfig,
    settings_grid,
)
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.synthesis import pronounce
from natgrad.recipes.train_config import CombinationConfig, NetworkShape, TrainingConfig
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.gmm.training import Schedule
from natgrad.speech.lexicon.files import write_lexicon
from natgrad.speech.lexicon.lexicon import Lexicon, Pronunciation
from natgrad.speech.lm.arpa import write_arpa
from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate

__all__ = ["DemoSize", "demo_config", "demo_recipe"]

SAMPLE_RATE = 16000  # of the features; espeak-ng's recordings have 22050 and are resampled
DIALECT = "en"
UTTERANCES_PER_TASK = 10
# Blocks of so few samples are fair ones only if utterances are scattered over them in short pieces.
PIECE_FRAMES = 10
LM_WEIGHTS = (5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 18.0, 21.0, 25.0)
VOICES = {"train": TRAINING_VOICES, "tune": TUNING_VOICES, "report": REPORT_VOICES}


@dataclass(frozen=True)
class DemoSize:
    """How many utterances each set has, and how many sentences the language model is made of."""

    train: int = 480
    tune: int = 40
    report: int = 120
    text: int = 1000


def demo_config() -> SpeechConfig:
    """Return the choices of the recipe."""
    schedule = Schedule(num_iterations=15, num_gaussians=4000, last_growth=10, align_at=(5, 10))
    decoder = DecoderOptions(beam=12.0, max_active=3000, lattice_beam=6.0)
    return SpeechConfig(
        name="demo",
        tune="tune",
        report="report",
        mfcc=MfccOptions(sample_rate=SAMPLE_RATE, use_energy=False),
        monophone=Schedule(16, 600, 12, (2, 3, 4, 5, 6, 8, 10, 12, 14), first_beam=6.0),
        triphone=ContextModel(600, schedule),
        lda_mllt=ContextModel(600, replace(schedule, mllt_at=(2, 4, 6))),
        sat=ContextModel(600, replace(schedule, fmllr_at=(2, 4, 6))),
        decoding=Decoding(
            first=decoder,
            next=(decoder,),
            settings=settings_grid(LM_WEIGHTS, (-0.5, 0.0, 0.5)),
        ),
        decoded=("mono", "tri", "lda", "sat"),
        dnn=DnnConfig(
            context=4,
            network=NetworkShape(hidden=((400, 80), (400, 80)), iterations_per_layer=1),
            training=TrainingConfig(
                num_epochs=5.0, num_jobs=4, initial_effective_lr=0.02, final_effective_lr=0.001
            ),
            combination=CombinationConfig(num_models=5),
            samples_per_job=10_000,
            validation_samples=5_000,
            train_subset_samples=5_000,
            piece_frames=PIECE_FRAMES,
            decoder=decoder,
        ),
        monophone_utterances=320,
    )


def demo_recipe(size: DemoSize | None = None, config: SpeechConfig | None = None) -> SpeechRecipe:
    """Return the recipe, of this size and with these choices."""
    size = size or DemoSize()
    return SpeechRecipe(
        config or demo_config(),
        partial(prepare_data, size=size),
        partial(prepare_language, size=size),
        asdict(size),
    )


# -- recordings ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What one voice is to say, and where the recording goes."""

    key: str
    voice: str
    text: str
    path: Path


def draw_sets(size: DemoSize) -> dict[str, list[str]]:
    """Return the sentences of each set, no two sets with one in common."""
    report = draw_sentences(size.report, "report")
    tune = draw_sentences(size.tune, "tune", report)
    return {
        "train": draw_sentences(size.train, "train", [*report, *tune]),
        "tune": tune,
        "report": report,
    }


def prepare_data(shop: Workshop, size: DemoSize) -> Facts:
    """Let the voices speak, and write recordings and data directories."""
    tasks = {
        name: _assign(name, sentences, shop.files.data(name) / "wav")
        for name, sentences in draw_sets(size).items()
    }
    _record_all(shop, [task for of_set in tasks.values() for task in of_set])
    sets = {name: _directory(of_set) for name, of_set in tasks.items()}
    for name, data in sets.items():
        data.write(shop.files.data(name))
    words = vocabulary()
    problems = check_set(shop, "train", sets["train"], words, None)
    for name in ("tune", "report"):
        problems += check_set(shop, name, sets[name], words, sets["train"])
    return {
        "utterances": {name: len(data) for name, data in sets.items()},
        "problems": [str(problem) for problem in problems],
    }


def _assign(name: str, sentences: list[str], directory: Path) -> list[Task]:
    """Let a set's voices take turns."""
    tasks = []
    for number, text in enumerate(sentences):
        voice = VOICES[name][number % len(VOICES[name])]
        key = f"{voice}-{number:04d}"
        tasks.append(Task(key, voice, text, directory / f"{key}.wav"))
    return tasks


def _record_all(shop: Workshop, tasks: list[Task]) -> None:
    for directory in {task.path.parent for task in tasks}:
        directory.mkdir(parents=True, exist_ok=True)
    pieces = [
        tasks[first : first + UTTERANCES_PER_TASK]
        for first in range(0, len(tasks), UTTERANCES_PER_TASK)
    ]
    with shop.progress("voices", len(tasks)) as update:
        for piece, future in [(piece, shop.workers.submit(record, piece)) for piece in pieces]:
            future.result()
            update(len(piece))


def record(tasks: list[Task]) -> None:
    """Speak, and write what was said as 16-bit WAV files."""
    for task in tasks:
        said = spoken(task.text, task.voice, Random(task.key))
        soundfile.write(
            task.path, np.clip(said.samples, -1.0, 1.0), said.sample_rate, subtype="PCM_16"
        )


def _directory(tasks: list[Task]) -> DataDirectory:
    return DataDirectory.of(
        Utterance(task.key, task.voice, task.path, text=words_of(task.text)) for task in tasks
    )


# -- words ---------------------------------------------------------------------------------------


def prepare_language(shop: Workshop, size: DemoSize) -> Facts:
    """Write the dictionary, and a trigram model of sentences that are in neither test set."""
    words = vocabulary()
    ways = zip(words, pronounce([word.lower() for word in words], DIALECT), strict=True)
    lexicon = Lexicon([Pronunciation(word, sounds) for word, sounds in ways])
    sets = draw_sets(size)
    text = draw_sentences(size.text, "text", [*sets["tune"], *sets["report"]])
    grammar = estimate(
        [" ".join(words_of(sentence)) for sentence in text],
        words,
        unknown=None,
        discounts=SMALL_TEXT_DISCOUNTS,
    )
    shop.files.lexicon.parent.mkdir(parents=True, exist_ok=True)
    write_lexicon(shop.files.lexicon, lexicon)
    write_arpa(grammar, shop.files.language_model)
    return {"words": len(words), "sounds": len(lexicon.sounds), "ngrams": grammar.num_ngrams}
