"""What is measured after the runs: the words that their final models recognise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.job_counts.experiment import JOBS, JOBS_AN4
from natgrad.recipes.reproduce.job_counts.settings import An4JobCounts, JobCounts, System
from natgrad.recipes.reproduce.job_counts.word_report import report_words
from natgrad.recipes.reproduce.speech_runs import EXAMPLES, examples_of

__all__ = ["WORDS", "WORDS_AN4"]


@dataclass(frozen=True)
class _Recognised:
    """The measurements on one corpus."""

    recipe: str

    def __call__(self, settings: JobCounts, data: Path | None) -> list[Measurement]:
        reference = settings.reference.name
        return [_words(self.recipe, data, system, reference) for system in settings.systems]


def _words(recipe: str, data: Path | None, system: System, reference: str) -> Measurement:
    is_reference = system.name == reference
    others = () if is_reference else (f"words-{reference}",)

    def recognise(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.finished_recipe import find_recipe
        from natgrad.recipes.reproduce.job_counts.words import recognise_words
        from natgrad.recipes.reproduce.training_run import run_directory

        assert data is not None, "the experiment says that it needs data"
        return recognise_words(
            find_recipe(data, recipe),
            bench,
            run_directory(bench.beside(system.name)).final,
            examples_of(bench),
            None if is_reference else bench.beside(*others),
        )

    needs = (EXAMPLES, system.name, *others)
    return Measurement(f"words-{system.name}", {"recipe": recipe}, recognise, needs)


WORDS = Experiment(
    name="words",
    asks="How many words do the models of SGD and NG-SGD get wrong, as more and more jobs share "
    "the samples (Table 2)?",
    settings=JobCounts,
    measurements=_Recognised("librispeech"),
    report=report_words("LibriSpeech", JOBS.name),
    data=JOBS.data,
    after=JOBS,
)
WORDS_AN4 = replace(
    WORDS,
    name="words-an4",
    settings=An4JobCounts,
    measurements=_Recognised("an4"),
    report=report_words("AN4", JOBS_AN4.name),
    after=JOBS_AN4,
)
