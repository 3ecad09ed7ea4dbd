"""What is measured: examples, and a run per variant and seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.many_jobs.report import report
from natgrad.recipes.reproduce.many_jobs.settings import ManyJobs
from natgrad.recipes.reproduce.many_jobs.variants import REPEATED, Variant, runs
from natgrad.recipes.reproduce.speech_runs import (
    DATA,
    EXAMPLES,
    measure_examples,
    measure_run,
)

__all__ = ["MANY_JOBS"]

EVERY = 16  # iterations between two evaluations
LONG_BLOCKS = "long-blocks"


def _measurements(settings: ManyJobs, data: Path | None) -> list[Measurement]:
    """Return two sets of the same examples, and all runs.

    One job has as many samples per iteration as all of many jobs have: it would be at a
    disadvantage if it had to learn the Fisher matrix anew after so few as each of them.
    """
    own, num_jobs = settings.examples, settings.num_jobs
    long = replace(own, samples_per_job=num_jobs * own.samples_per_job)
    return [
        measure_examples("librispeech", own, num_jobs, data),
        measure_examples("librispeech", long, 1, data, LONG_BLOCKS),
        *(_run(settings, variant, seed) for variant, seed in runs(settings)),
    ]


def _run(settings: ManyJobs, variant: Variant, seed: int) -> Measurement:
    own = variant.applied(settings)
    measured = measure_run(
        f"{variant.name}-seed-{seed}",
        seed,
        EVERY,
        LONG_BLOCKS if variant.is_alone else EXAMPLES,
        network=own.network(),
        training=own.training(variant.num_jobs(own), 1 if variant.is_ramped else None),
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
