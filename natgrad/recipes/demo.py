"""Plain against natural-gradient SGD with 1 and 4 jobs, on the speech of the demo's recipe.

    natgrad demo --out demo

A p-norm network learns to tell the states of triphones, frame by frame, from the alignments that
the recipe made. All four runs see the same blocks and begin with the same network.

Each has the learning rate that was best for it, by the objective on the held-out utterances, with
one seed, in steps of a factor of two: for plain SGD from 0.005 (4 jobs: 0.0025) to 0.08, for NG-SGD
from 0.0025 to 0.04.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from natgrad.data import Examples, open_examples
from natgrad.recipes.demo_recipe import demo_recipe
from natgrad.recipes.kept_examples import differing_examples
from natgrad.recipes.network_job import evaluate_model
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.train import (
    CombinationConfig,
    DataConfig,
    EngineConfig,
    NetworkShape,
    OptimizerConfig,
    RunConfig,
    TrainConfig,
    TrainingConfig,
    train,
)
from natgrad.recipes.workshop import Progress
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events

__all__ = ["RUNS", "Result", "Run", "conclusion", "format_table", "main"]

EXAMPLES_STAGE = "dnn-examples"
HIDDEN = ((400, 80), (400, 80))
NUM_EPOCHS = 3.0
LR_DECAY = 10.0
FRAMES_PER_MINUTE = 6000
TITLES = {"none": "plain SGD", "online": "online NG-SGD"}


@dataclass(frozen=True)
class Run:
    """One of the runs that are compared."""

    name: str
    method: Literal["none", "online"]
    num_jobs: int
    initial_effective_lr: float


RUNS = (
    Run("sgd-1-job", "none", 1, 0.04),
    Run("sgd-4-jobs", "none", 4, 0.02),
    Run("ng-sgd-1-job", "online", 1, 0.02),
    Run("ng-sgd-4-jobs", "online", 4, 0.02),
)


@dataclass(frozen=True)
class Result:
    """What a run's final model reached, and the time that its outer iterations took.

    Objectives are mean log-probabilities of the right state, accuracies the share of frames.
    """

    run: Run
    train_objective: float
    valid_objective: float
    valid_accuracy: float
    seconds: float


def main(
    directory: str | Path,
    *,
    recipe: SpeechRecipe | None = None,
    num_epochs: float = NUM_EPOCHS,
    engine: EngineConfig | None = None,
    progress: Progress | None = None,
    on_stage: Callable[[dict[str, Any]], None] | None = None,
    follow: Callable[[str], Callable[[dict[str, Any]], None]] | None = None,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Train the four runs, print a table, and return the runs' directories.

    Called again, it goes on where it ended.

    Args:
        directory: of the recipe, whose stages up to the examples are done first if need be.
        recipe: the one to take the examples of; None means the demo's.
        num_epochs: of each run.
        engine: where jobs run; None means processes on this machine.
        progress: makes progress bars for the stages of the recipe; None means none.
        on_stage: called with the events of these stages.
        follow: given a run's name, returns what is then called with each of its events.
        say: what to do with a piece of text.
    """
    directory = Path(directory)
    engine = engine or EngineConfig()
    recipe = recipe or demo_recipe()
    recipe.run(
        directory,
        engine,
        progress or _no_progress,
        last=EXAMPLES_STAGE,
        on_event=on_stage,
    )
    examples = open_examples(SpeechFiles(directory).dnn().examples)
    say(describe(examples))
    results = []
    for run in RUNS:
        say(f"\n{run.name} ...")
        config = configure(run, directory, examples, num_epochs, engine)
        if differing_examples(RunDirectory(config.run.directory), examples):
            shutil.rmtree(config.run.directory)  # the recipe has made others since
        train(config, None if follow is None else follow(run.name))
        results.append(read_result(run, config))
    say(f"\n{format_table(results)}\n\n{conclusion(results)}")
    return [run_directory(directory, run) for run in RUNS]


@contextmanager
def _no_progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    yield lambda amount: None


def run_directory(directory: Path, run: Run) -> Path:
    """Return where a run is."""
    return directory / "compared" / run.name


def configure(
    run: Run, directory: Path, examples: Examples, num_epochs: float, engine: EngineConfig
) -> TrainConfig:
    """Return a run's configuration."""
    return TrainConfig(
        run=RunConfig(str(run_directory(directory, run))),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(hidden=HIDDEN, initial_num_hidden=None),
        training=TrainingConfig(
            num_epochs=num_epochs,
            num_jobs=run.num_jobs,
            initial_effective_lr=run.initial_effective_lr,
            final_effective_lr=run.initial_effective_lr / LR_DECAY,
        ),
        optimizer=OptimizerConfig(method=run.method),
        # What the methods themselves reach is compared.
        combination=CombinationConfig(method="last"),
        engine=engine,
    )


def read_result(run: Run, config: TrainConfig) -> Result:
    """Return what a complete run has reached."""
    directory = RunDirectory(config.run.directory)
    reached = evaluate_model(str(directory.final), {"examples": config.data.examples})
    iterations = {
        event["iteration"]: event["seconds"]  # of those begun again after a crash, the last counts
        for event in read_events(directory.events)
        if event["event"] == "iteration"
    }
    return Result(
        run,
        reached["train"]["objective"],
        reached["valid"]["objective"],
        reached["valid"]["accuracy"],
        sum(iterations.values()),
    )


# -- text ----------------------------------------------------------------------------------------


def describe(examples: Examples) -> str:
    """Return what the runs are trained on, and what is trained."""
    assert examples.validation is not None, "the recipe's examples have it"
    hidden = ", ".join(f"{units} -> {groups}" for units, groups in HIDDEN)
    minutes = examples.num_samples / FRAMES_PER_MINUTE
    return (
        f"{examples.num_samples} frames to train on ({minutes:.0f} minutes), and "
        f"{examples.validation.num_samples} of other utterances to validate.\n"
        f"A p-norm network of {examples.input_dim} inputs ({examples.feature_dim} for each of "
        f"{examples.input_dim // examples.feature_dim} frames), hidden layers {hidden}, tells "
        f"{examples.num_classes} states of triphones."
    )


def format_table(results: Sequence[Result]) -> str:
    """Return a row per run.

    >>> print(format_table([Result(RUNS[0], -0.75, -1.25, 0.6875, 20.04)]))
    method         jobs      lr   train objective   valid objective   valid accuracy   seconds
    plain SGD         1    0.04           -0.7500           -1.2500            68.8%      20.0
    """
    head = ("method", "jobs", "lr", "train objective", "valid objective", "valid accuracy")
    lines = ["{:<13}{:>6}{:>8}{:>18}{:>18}{:>17}{:>10}".format(*head, "seconds")]
    for result in results:
        run = result.run
        lines.append(
            f"{TITLES[run.method]:<13}{run.num_jobs:>6}{run.initial_effective_lr:>8g}"
            f"{result.train_objective:>18.4f}{result.valid_objective:>18.4f}"
            f"{100 * result.valid_accuracy:>16.1f}%{result.seconds:>10.1f}"
        )
    return "\n".join(lines)


def conclusion(results: Sequence[Result]) -> str:
    """Return what more jobs cost each method: how far the objective on held-out utterances fell.

    >>> one, four = Result(RUNS[0], -0.7, -1.0, 0.7, 20.0), Result(RUNS[1], -0.9, -1.3, 0.6, 10.0)
    >>> print(conclusion([one, four]))
    From 1 to 4 jobs, plain SGD went from a valid objective of -1.0000 to -1.3000 (-0.3000).
    """
    sentences = []
    for method, title in TITLES.items():
        mine = [result for result in results if result.run.method == method]
        for one, many in pairwise(mine):
            before, after = one.valid_objective, many.valid_objective
            sentences.append(
                f"From {one.run.num_jobs} to {many.run.num_jobs} jobs, {title} went from a valid "
                f"objective of {before:.4f} to {after:.4f} ({after - before:+.4f})."
            )
    return "\n".join(sentences)
