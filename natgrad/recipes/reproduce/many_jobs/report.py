"""What is told of many jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from natgrad.recipes.reproduce.across_seeds import AcrossSeeds, across, markdown_table, percent
from natgrad.recipes.reproduce.experiment import Figure, Found, Line, Report
from natgrad.recipes.reproduce.many_jobs.settings import ManyJobs
from natgrad.recipes.reproduce.many_jobs.variants import (
    CHOSEN,
    ONE_JOB,
    PLAIN,
    REPEATED,
    VARIANTS,
    Variant,
)

__all__ = ["report"]

LAST, MEAN = "last", "final"  # what `follow_training` tells of: the last model, and a mean
FROM_EPOCH = 0.1  # what is before would leave no room for the rest


@dataclass(frozen=True)
class _Results:
    settings: ManyJobs
    found: Mapping[str, Found]

    def runs(self, variant: Variant) -> list[Found]:
        """Return what a variant has found, from all of its seeds."""
        seeds = self.settings.seeds if variant in REPEATED else self.settings.seeds[:1]
        return [self.found[f"{variant.name}-seed-{seed}"] for seed in seeds]

    def has_diverged(self, variant: Variant) -> bool:
        return any(run.get("diverged") is not None for run in self.runs(variant))

    def reached(self, variant: Variant, key: str, model: str = LAST) -> AcrossSeeds:
        return across(run[model][key] for run in self.runs(variant))

    def below(
        self, variant: Variant, key: str = "train_objective", model: str = LAST
    ) -> AcrossSeeds:
        """Return by what part an objective is below that of one job from the same seed."""
        pairs = zip(self.runs(ONE_JOB), self.runs(variant), strict=False)
        return across(
            (one[model][key] - other[model][key]) / abs(one[model][key]) for one, other in pairs
        )


def report(settings: ManyJobs, found: Mapping[str, Found]) -> Report:
    """Tell whether the goal was met, and what each part gives."""
    results = _Results(settings, found)
    return Report(
        f"{settings.num_jobs} jobs against one",
        _answer(results),
        [
            _objective_figure(results),
            "## All that was measured\n\n" + _table(results),
            "## Do the jobs agree?\n\n" + _agreement(results),
            _cosine_figure(results),
            "## The runs\n\n" + _setting(results),
        ],
    )


# -- in words ------------------------------------------------------------------------------------


def _answer(results: _Results) -> str:
    s = results.settings
    plain, chosen = results.below(PLAIN), results.below(CHOSEN)
    return f"""\
{_verdict(s.goal, plain, chosen)}. The goal is a training objective at most {_share(s.goal)} below
that of one job, with {s.num_jobs} jobs and equal samples. Below one job's (negative: above it), the
mean and in brackets the range of {len(s.seeds)} seeds, each against one job from the same seed:

- plain averaging: {plain.text(_share)}; held out {_held_out(results, PLAIN)}
- {CHOSEN.title}: {chosen.text(_share)}; held out {_held_out(results, CHOSEN)}

One job reaches {_objective_of(results, ONE_JOB)}, plain averaging {_objective_of(results, PLAIN)},
{CHOSEN.title} {_objective_of(results, CHOSEN)}. These are the models of the last iteration. The
mean of the last models (as many of {s.combination().num_models} as are best on the training subset)
reaches {_objective_of(results, ONE_JOB, MEAN)} with one job, and with {s.num_jobs} is below that by
{_below_by_mean(results, PLAIN)} and {_below_by_mean(results, CHOSEN)}.
"""


def _below_by_mean(results: _Results, variant: Variant) -> str:
    return results.below(variant, model=MEAN).text(_share)


def _verdict(goal: float, plain: AcrossSeeds, chosen: AcrossSeeds) -> str:
    if chosen.mean > goal:
        return "**Not here**"
    if plain.mean <= goal:
        return "**They can, also by plain averaging**"
    if chosen.high > goal:
        return "**Yes, in the mean, but not from every seed**"
    return "**Yes**, from every seed"


def _objective_of(results: _Results, variant: Variant, model: str = LAST) -> str:
    return results.reached(variant, "train_objective", model).text(_objective)


def _held_out(results: _Results, variant: Variant) -> str:
    return results.below(variant, "valid_objective").text(_share)


def _agreement(results: _Results) -> str:
    return f"""\
The mean over pairs of jobs of the cosine between their steps. With {results.settings.num_jobs} jobs
whose steps have a cosine c, their mean is sqrt((1 + {results.settings.num_jobs - 1} c) /
{results.settings.num_jobs}) times as long as they are: at c = 0 most of what each job does is
noise, and averages away.
"""


# -- in numbers ----------------------------------------------------------------------------------


def _table(results: _Results) -> str:
    s = results.settings
    rows = [_row(results, variant) for variant in (*REPEATED, *VARIANTS)]
    head = [
        "", "effective learning rate", "that of a job", "iterations", "training", "below one job",
        "held out", "frames right", "mean of the last, training", "held out", "limited",
        "models left out",
    ]  # fmt: skip
    chosen = CHOSEN.outer
    return f"""\
Log-probabilities per frame of the last iteration's models, then of the mean of the last.
*{CHOSEN.title.capitalize()}* means
momentum {chosen.momentum:g} in Nesterov's form with the outer learning rate
{chosen.learning_rate:g}, jobs whose learning rate is N^{chosen.job_lr_power:g} times the effective
one (the power; 1 in plain averaging), and factors of the Fisher matrix that are {chosen.fisher}
from one iteration to the next; where a row says more, that is different. *Jobs ramped*: their
number rises from 1 to {s.num_jobs} over the run. *Limited*: in which share of their minibatches
layers would have changed by more than max-change allows (appendix C.3). Learning rates are those at
the beginning; they fall to {s.final_effective_lr / s.initial_effective_lr:g} of it.

The first {len(REPEATED)} rows are from {len(s.seeds)} seeds, the others from the first alone.

{markdown_table(head, rows)}
"""


def _row(results: _Results, variant: Variant) -> list[str]:
    own, runs = variant.applied(results.settings), results.runs(variant)
    power, num_jobs = variant.outer.job_lr_power, variant.num_jobs(own)
    first = f"{own.initial_effective_lr:g}"
    of_a_job = first if variant.is_ramped else f"{own.initial_effective_lr * num_jobs**power:.3g}"
    if results.has_diverged(variant):
        reached = ["diverged", *[""] * 6]
    else:
        reached = [
            _objective_of(results, variant),
            "" if variant == ONE_JOB else results.below(variant).text(_share),
            results.reached(variant, "valid_objective").text(_objective),
            results.reached(variant, "valid_accuracy").text(_share),
            _objective_of(results, variant, MEAN),
            results.reached(variant, "valid_objective", MEAN).text(_objective),
            across(run["limited"] for run in runs).text(percent),
        ]
    iterations, left_out = str(runs[0]["num_iterations"]), sum(r["num_left_out"] for r in runs)
    return [variant.title, first, of_a_job, iterations, *reached, str(left_out)]


def _objective_figure(results: _Results) -> Figure:
    lines = []
    for variant in REPEATED:
        curve = results.runs(variant)[0]["curve"]
        points = [(p["epoch"], p["train_objective"]) for p in curve if p["epoch"] >= FROM_EPOCH]
        lines.append(Line(variant.title, points))
    return Figure(
        "epochs",
        f"Training objective against epochs, from {FROM_EPOCH:g} epochs on, with one job and with "
        f"{results.settings.num_jobs}",
        "epochs",
        "log-probability per frame",
        lines,
    )


def _cosine_figure(results: _Results) -> Figure:
    return Figure(
        "cosines",
        "Mean cosine between the steps of two jobs, by outer iteration",
        "outer iterations",
        "mean cosine",
        [
            Line(variant.title, [tuple(pair) for pair in results.runs(variant)[0]["cosines"]])
            for variant in (PLAIN, CHOSEN)
        ],
    )


def _setting(results: _Results) -> str:
    s, examples = results.settings, results.found["examples"]
    return f"""\
LibriSpeech's train-clean-5: {examples["samples"]} samples in {examples["blocks"]} blocks,
K = {s.examples.samples_per_job}, and for one job in blocks of {s.num_jobs} times as many, so that
its iterations have the samples of those of {s.num_jobs}; {examples["classes"]} classes
({s.examples.classes}); p-norm layers {s.layers}, all from the
start; online NG-SGD with the paper's options, in minibatches of {s.minibatch_size}; epochs:
{s.num_epochs:g}.
Objectives are measured on {s.examples.train_subset_samples} samples of the training data and
{s.examples.validation_samples} held-out frames, the same from all seeds.

The setting was searched for with one seed, the first of these: [LOG.md](../../LOG.md) has all that
was tried. Momentum, power and factors were chosen there for {s.num_jobs} jobs; the initial learning
rate is the best of three for one job.

Blocks are much shorter than the paper's 400 000 samples, as momentum needs iterations: with mu it
acts over 1 / (1 - mu) of them.
"""


def _objective(value: float) -> str:
    return f"{value:.3f}"


def _share(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f} %"  # + 0.0: no minus before a zero
