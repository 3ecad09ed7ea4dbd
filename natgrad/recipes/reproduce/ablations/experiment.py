"""What is measured: examples, a run per change and seed, and other ends of the baseline's runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from natgrad.recipes.reproduce.ablations.report import report
from natgrad.recipes.reproduce.ablations.settings import Ablations
from natgrad.recipes.reproduce.ablations.variants import BASELINE, Variant, trained_variants
from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.speech_runs import (
    DATA,
    EXAMPLES,
    examples_of,
    measure_examples,
    measure_run,
)

__all__ = ["ABLATIONS"]

COMBINATIONS = "combinations"
AT_THE_ENDS = 1_000_000  # iterations apart: models are evaluated before the first, after the last


def _measurements(settings: Ablations, data: Path | None) -> list[Measurement]:
    listed = [measure_examples("librispeech", settings.examples, settings.num_jobs, data)]
    for seed in settings.seeds:
        listed.append(_run(settings, None, seed))
        listed.append(_combinations(settings, seed))
    for variant in trained_variants(settings):
        listed += [_run(settings, variant, seed) for seed in settings.seeds]
    return listed


def _run(settings: Ablations, variant: Variant | None, seed: int) -> Measurement:
    name, tables = BASELINE, settings.tables()
    if variant is not None:
        name, tables = variant.name, variant.apply(tables)
    measured = measure_run(f"{name}-seed-{seed}", seed, AT_THE_ENDS, **tables)

    def run(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.ablations.runs import train_baseline, train_variant

        follow = train_baseline if variant is None else train_variant
        return follow(bench, measured.run)

    return replace(measured, run=run)


def _combinations(settings: Ablations, seed: int) -> Measurement:
    baseline = f"{BASELINE}-seed-{seed}"

    def combine(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.ablations.runs import combine_again

        run = bench.beside(baseline)
        return combine_again(bench, examples_of(bench), run, settings.num_models)

    name = f"{COMBINATIONS}-seed-{seed}"
    return Measurement(name, {}, combine, needs=(EXAMPLES, baseline))


ABLATIONS = Experiment(
    name="ablations",
    asks="What is each of the paper's options worth, changed by itself?",
    settings=Ablations,
    measurements=_measurements,
    report=report,
    data=DATA,
)
