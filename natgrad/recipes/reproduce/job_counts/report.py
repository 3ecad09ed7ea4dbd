"""What is told of the numbers of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from natgrad.recipes.reproduce.across_seeds import markdown_table, percent
from natgrad.recipes.reproduce.experiment import Found, Report
from natgrad.recipes.reproduce.job_counts.figures import figures
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import METHODS, JobCounts, System
from natgrad.recipes.reproduce.job_counts.time_report import tell_times

__all__ = ["report_on"]


def report_on(corpus: str) -> Callable[[JobCounts, Mapping[str, Found]], Report]:
    """Return what makes the report on one corpus."""

    def report(settings: JobCounts, found: Mapping[str, Found]) -> Report:
        results = JobCountResults(settings, found)
        epochs, time, held_out = figures(results)
        return Report(
            f"SGD and NG-SGD with 1 to {settings.max_jobs} jobs, on {corpus}",
            _answer(results),
            [
                epochs,
                time,
                "## Objectives\n\n" + _objectives(results),
                held_out,
                "## Time\n\n" + tell_times(results),
                "## The runs\n\n" + _runs(results),
            ],
        )

    return report


def _answer(results: JobCountResults) -> str:
    s = results.settings
    one, many = s.reference, System("online", max(s.online_jobs), s.seed)
    sgd, most_sgd = (System("none", n, s.seed) for n in (min(s.sgd_jobs), max(s.sgd_jobs)))
    as_many = System("online", max(s.sgd_jobs), s.seed)
    return f"""\
Training objective, log-probability per frame, after {s.num_epochs:g} epochs with (1) and more jobs:

{_objective_rows(results)}

From {min(s.sgd_jobs)} to {max(s.sgd_jobs)} jobs SGD loses {_lost(results, sgd, most_sgd)}; online
NG-SGD loses {_lost(results, one, as_many)} to as many, and
{_lost(results, one, many)} to {many.num_jobs}. Chance moves an objective by about
{_chance(results)}.
"""


def _objective_rows(results: JobCountResults) -> str:
    rows: dict[str, list[str]] = {}
    for system in results.in_order():
        reached = f"{results.last(system, 'train_objective'):.3f} ({system.num_jobs})"
        rows.setdefault(METHODS[system.method], []).append(reached)
    return "\n".join(f"- {title}: {'; '.join(reached)}" for title, reached in rows.items())


def _lost(results: JobCountResults, first: System, second: System) -> str:
    one, other = (results.last(system, "train_objective") for system in (first, second))
    return f"{one - other:.3f} ({100 * (one - other) / abs(one):.1f} %)"


def _chance(results: JobCountResults) -> str:
    ranges = []
    for n in results.settings.repeated_jobs:
        found = results.of_all_seeds(n, "train_objective")
        far = max(found) - min(found)
        ranges.append(f"{far:.3f} (the range of {len(found)} seeds with {n} jobs)")
    return ", ".join(ranges) or "an amount that was not measured (there is one seed)"


def _objectives(results: JobCountResults) -> str:
    rows = []
    for system in results.in_order():
        last = [results.last(system, key) for key in _COLUMNS]
        objective, accuracy, valid_objective, valid_accuracy = last
        rows.append(
            [
                system.title,
                f"{objective:.3f}",
                f"{100 * accuracy:.1f}",
                f"{valid_objective:.3f}",
                f"{100 * valid_accuracy:.1f}",
                _lost(results, results.settings.reference, system),
            ]
        )
    head = [
        "",
        "training",
        "frames right, %",
        "held out",
        "frames right, %",
        "below one job of online NG-SGD",
    ]
    seeds = "\n".join(
        f"- {n} jobs, training, seeds {', '.join(map(str, results.seeds))}: "
        + ", ".join(f"{value:.3f}" for value in results.of_all_seeds(n, "train_objective"))
        for n in results.settings.repeated_jobs
    )
    examples = results.settings.examples
    return (
        "Of the last iteration's models, before they are combined: on "
        f"{examples.train_subset_samples} samples of the training data, and on whole utterances of "
        f"{examples.validation_samples} frames that nothing was trained on.\n\n"
        f"{markdown_table(head, rows)}\n\nOnline NG-SGD from other seeds:\n\n{seeds}"
    )


_COLUMNS = ("train_objective", "train_accuracy", "valid_objective", "valid_accuracy")


def _runs(results: JobCountResults) -> str:
    s, examples = results.settings, results.found["examples"]
    rows = [
        [
            system.title,
            str(system.seed),
            str(results.found[system.name]["num_iterations"]),
            " to ".join(
                f"{system.num_jobs * rate:g}"
                for rate in (s.initial_effective_lr, s.final_effective_lr)
            ),
            percent(results.found[system.name]["limited"]),
            str(results.found[system.name]["num_left_out"]),
        ]
        for system in [*results.in_order(), *s.repetitions]
    ]
    head = ["", "seed", "outer iterations", "learning rate of a job", "limited", "models left out"]
    return f"""\
p-norm layers {s.layers}, all from the start; {examples["classes"]} classes
({s.examples.classes}, on its speaker-adapted features, +-4 frames);
{examples["samples"]} samples in {examples["blocks"]} blocks, K = {s.examples.samples_per_job};
minibatches of {s.minibatch_size}. Equal samples and equal effective learning rates,
{s.initial_effective_lr:g} to {s.final_effective_lr:g}, for all: they were tuned for none, and what
wants others is at a disadvantage. *Limited*: in which share of their minibatches layers would have
changed by more than max-change allows (appendix C.3); there the learning rate is less in effect, so
that rates are only as equal as this is rare.

{markdown_table(head, rows)}
"""
