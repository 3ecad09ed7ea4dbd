"""What is measured: examples, and a run per variant and seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.many_jobs.report import report
from natgrad.recipes.reproduce.many_jobs.settings import ManyJobs
from natgrad.recipes.reproduce.many_jobs.variants import REPEATED, Variant, runs
from natgrad.recipes.reproduce.speech_runs import DATA, measure_examples, measure_run

__all__ = ["MANY_JOBS"]

BLOCKS_APART = 128  # models are evaluated after so many blocks of samples, whoever had them


def _measurements(settings: ManyJobs, data: Path | None) -> list[Measurement]:
    examples = measure_examples("librispeech", settings.examples, settings.num_jobs, data)
    return [examples, *(_run(settings, variant, seed) for variant, seed in runs(settings))]


def _run(settings: ManyJobs, variant: Variant, seed: int) -> Measurement:
    own, num_jobs = variant.applied(settings), variant.num_jobs(settings)
    measured = measure_run(
        f"{variant.name}-seed-{seed}",
        seed,
        max(1, BLOCKS_APART // num_jobs),
        network=own.network(),
        training=own.training(num_jobs, 1 if variant.is_ramped else None),
        outer=variant.outer,
        combination=own.combination(),
    )
    if variant in REPEATED:
        return measured  # that it diverges is an error

    def run(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.divergence import found_or_diverged

        return found_or_diverged(bench, measured.run)

    return replace(measured, run=run)


MANY_JOBS = Experiment(
    name="many-jobs",
    asks="Can many jobs reach what one job reaches, with equal samples, where plain averaging "
    "does not?",
    settings=ManyJobs,
    measurements=_measurements,
    report=report,
    data=DATA,
)
