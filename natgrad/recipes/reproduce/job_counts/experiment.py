"""What is measured: examples, a run per system, what iterations cost, and what runs took."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from natgrad.machine import num_cores
from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.job_counts.report import report_on
from natgrad.recipes.reproduce.job_counts.settings import METHODS, An4JobCounts, JobCounts, System
from natgrad.recipes.reproduce.speech_runs import (
    DATA,
    EXAMPLES,
    examples_of,
    measure_examples,
    measure_run,
)

__all__ = ["JOBS", "JOBS_AN4"]

TIMING = "timing"
CLOCK = "clock"


@dataclass(frozen=True)
class _Measured:
    """The measurements on one corpus."""

    recipe: str

    def __call__(self, settings: JobCounts, data: Path | None) -> list[Measurement]:
        listed = [measure_examples(self.recipe, settings.examples, settings.max_jobs, data)]
        for system in [*settings.systems, *settings.repetitions]:
            listed.append(_run(settings, system))
            if system == settings.reference:
                listed.append(_timing(settings))
        return [*listed, _clock(settings)]


def _run(settings: JobCounts, system: System) -> Measurement:
    return measure_run(
        system.name,
        system.seed,
        max(1, settings.max_jobs // system.num_jobs),
        network=settings.network(),
        training=settings.training(system.num_jobs),
        optimizer=settings.optimizer(system.method),
        combination=settings.combination(),
    )


def _timing(settings: JobCounts) -> Measurement:
    name = settings.reference.name

    def measure(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.job_counts.timing import measure_costs
        from natgrad.recipes.reproduce.training_run import run_directory

        model = run_directory(bench.beside(name)).final
        with bench.progress("rounds", settings.timing_rounds + 1) as update:
            return measure_costs(settings, examples_of(bench), model, bench.directory, update)

    own = {
        "rounds": settings.timing_rounds,
        "methods": list(METHODS),
        "num_jobs": settings.num_jobs,
    }
    return Measurement(TIMING, own, measure, needs=(EXAMPLES, name))


def _clock(settings: JobCounts) -> Measurement:
    cores = num_cores() or 1
    systems = [system for system in settings.systems if system.num_jobs <= cores]

    def measure(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.job_counts.clock import read_clock
        from natgrad.recipes.reproduce.training_run import run_directory

        runs = {system: run_directory(bench.beside(system.name)).events for system in systems}
        return read_clock(cores, runs)

    needs = tuple(system.name for system in systems)
    return Measurement(CLOCK, {"num_cores": cores}, measure, needs)


JOBS = Experiment(
    name="jobs",
    asks="How do SGD and NG-SGD learn, over epochs and over time, as more and more jobs share the "
    "samples (Figures 1 and 2)?",
    settings=JobCounts,
    measurements=_Measured("librispeech"),
    report=report_on("LibriSpeech"),
    data=DATA,
)
JOBS_AN4 = replace(
    JOBS,
    name="jobs-an4",
    settings=An4JobCounts,
    measurements=_Measured("an4"),
    report=report_on("AN4"),
)
