"""What `benchmarks.convergence` found, in words and means: what docs/convergence.md has of it.

python -m benchmarks.convergence_report [FILE] [--plot docs/convergence.svg]
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.harness import RESULTS, USAGE, tell
from benchmarks.result_file import Results
from benchmarks.table import ResultsError
from benchmarks.text import format_rows

# Losses whose cost is told. Plain SGD reaches the first; the last is only for the best.
GOALS = (3.0, 2.0, 1.5)


@dataclass(frozen=True)
class Point:
    """Where a run stands: what it has cost, and its loss and accuracy on held-out data."""

    num_samples: int
    seconds: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Run:
    """One training."""

    name: str
    lr: float
    seed: int
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Comparison:
    """All that was measured. `tuning`: for each contender, the final loss of each lr tried."""

    facts: Mapping[str, Any]
    notes: Mapping[str, str]
    tuning: Mapping[str, Mapping[float, float]]
    runs: Sequence[Run]

    def of(self, name: str) -> list[Run]:
        """Return the runs of one contender."""
        return [run for run in self.runs if run.name == name]

    def to_fields(self) -> dict[str, Any]:
        """Return it for JSON, with a run's points as lists; infinity, which it lacks, is None."""
        return {
            "facts": dict(self.facts),
            "notes": dict(self.notes),
            "tuning": {
                name: [[lr, _or_null(loss)] for lr, loss in losses.items()]
                for name, losses in self.tuning.items()
            },
            "points": [field.name for field in fields_of(Point)],
            "runs": [
                {**vars(run), "points": [[_or_null(x) for x in astuple(p)] for p in run.points]}
                for run in self.runs
            ],
        }

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Comparison:
        """Return what `to_fields` was called for."""
        runs = []
        for run in fields["runs"]:
            points = [Point(n, s, _or_inf(loss), a) for n, s, loss, a in run["points"]]
            runs.append(Run(**{**run, "points": tuple(points)}))
        tuning = {
            name: {lr: _or_inf(loss) for lr, loss in losses}
            for name, losses in fields["tuning"].items()
        }
        return Comparison(fields["facts"], fields["notes"], tuning, tuple(runs))


def _or_null(value: float) -> float | None:
    return None if value == math.inf else value


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def cost_to_reach(run: Run, goal: float) -> tuple[float, float] | None:
    """Return the samples and the seconds until the loss was first at the goal, if it ever was.

    Between points, the loss is taken to fall linearly.
    """
    if run.points[0].loss <= goal:
        return 0.0, 0.0
    for before, after in itertools.pairwise(run.points):
        if after.loss <= goal:
            share = (before.loss - goal) / (before.loss - after.loss)
            samples = before.num_samples + share * (after.num_samples - before.num_samples)
            return samples, before.seconds + share * (after.seconds - before.seconds)
    return None


def format_report(comparison: Comparison) -> str:
    """Return the tables and the notes, as markdown."""
    facts = comparison.facts
    hidden = ", ".join(f"{units} -> {groups}" for units, groups in facts["hidden"])
    shares = ", ".join(f"{100 * share:.1f}%" for share in facts["mean_direction_shares"])
    seeds = sorted({run.seed for run in comparison.runs})
    parts = [
        f"{facts['num_train']} training samples, each seen once, in minibatches of "
        f"{facts['minibatch']}; {facts['num_held_out']} held out; {facts['num_classes']} classes; "
        f"p-norm hidden layers {hidden}. Condition number of the covariance of the inputs: "
        f"{facts['input_condition']:.0f}; after the transform of appendix C.6: "
        f"{facts['transformed_condition']:.0f}. Second moment of the hidden layers' outputs along "
        f"their mean, at the start: {shares}. "
        f"torch {facts['torch']}, pytorch_optimizer {facts['pytorch_optimizer']}, 1 thread, "
        f"{facts['machine']}.",
        f"At the best lr; means over {len(seeds)} seed(s); loss and accuracy on held-out data; "
        "(least - greatest) of the seeds.",
        format_comparison(comparison),
        "Samples and seconds until the held-out loss was first that low; '-': not in every run.",
        format_costs(comparison),
        "Final loss at each lr tried (another seed; the least is chosen):",
        format_tuning(comparison),
        "\n".join(f"- {name}: {note}." for name, note in comparison.notes.items()),
    ]
    return "\n\n".join(parts)


def format_comparison(comparison: Comparison) -> str:
    """Return a row per contender, best final loss first: where it ended and what that cost."""
    rows = []
    for name in by_final_loss(comparison):
        runs = comparison.of(name)
        ends = [run.points[-1] for run in runs]
        losses = [end.loss for end in ends]
        seconds = mean(end.seconds for end in ends)
        num_minibatches = mean(end.num_samples for end in ends) / comparison.facts["minibatch"]
        row = [
            name,
            f"{runs[0].lr:g}",
            f"{mean(losses):.3f} ({min(losses):.3f} - {max(losses):.3f})",
            f"{100 * mean(end.accuracy for end in ends):.1f}%",
            f"{1e3 * seconds / max(num_minibatches, 1):.1f}",
            f"{seconds:.1f}",
        ]
        rows.append(row)
    return format_rows(
        ["optimizer", "lr", "final loss", "accuracy", "ms/minibatch", "seconds"], rows
    )


def format_costs(comparison: Comparison) -> str:
    """Return a row per contender: the samples and the seconds that each goal took."""
    rows = []
    for name in by_final_loss(comparison):
        runs = comparison.of(name)
        row = [name]
        for goal in GOALS:
            costs = [cost for run in runs if (cost := cost_to_reach(run, goal))]
            if len(costs) < len(runs):
                row.append("-")
                continue
            samples, seconds = (mean(kind) for kind in zip(*costs, strict=True))
            row.append(f"{samples / 1000:.1f}k, {seconds:.1f} s")
        rows.append(row)
    return format_rows(["optimizer", *(f"to loss {goal:g}" for goal in GOALS)], rows)


def format_tuning(comparison: Comparison) -> str:
    """Return a row per contender with all its grid, the chosen lr in bold."""
    rows = []
    for name in by_final_loss(comparison):
        losses = comparison.tuning[name]
        best = min(losses, key=losses.__getitem__)
        cells = [f"{lr:g}: {loss:.3f}" for lr, loss in losses.items()]
        marked = [f"**{c}**" if lr == best else c for lr, c in zip(losses, cells, strict=True)]
        rows.append([name, ", ".join(marked)])
    return format_rows(["optimizer", "lr: final loss"], rows)


def by_final_loss(comparison: Comparison) -> list[str]:
    """Return the contenders' names, the one with the least mean final loss first."""
    return sorted(
        comparison.tuning, key=lambda name: mean(run.points[-1].loss for run in comparison.of(name))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.convergence_report", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("file", nargs="?", type=Path, default=RESULTS / "convergence.json")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it, too: .svg, .png")
    options = parser.parse_args(arguments)
    try:
        results = Results.read(options.file)
        if results.benchmark != "convergence":
            raise ResultsError(f"{options.file} is of {results.benchmark}, not of convergence")
        comparison = _comparison_of(results, options.file)
        print(format_report(comparison))
        if options.plot:
            from benchmarks.convergence_plot import plot

            plot(comparison, options.plot)
    except (OSError, ValueError) as error:  # also of the plot's place, and of its format
        tell(str(error))
        return USAGE
    return 0


def _comparison_of(results: Results, file: Path) -> Comparison:
    try:
        return Comparison.from_fields(results.details)
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(
            f"{file} has no curves that could be told ({error!r}): run  natgrad bench convergence"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
