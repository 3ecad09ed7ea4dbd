"""Plain against natural-gradient SGD with 1 and 4 jobs, on speech that is made on the spot.

    natgrad demo

A p-norm network learns to tell the phones of synthesised speech, frame by frame. All four runs see
the same blocks and begin with the same network.

Learning rates were chosen by the objective on the held-out voices, one seed, in steps of a factor
of two. Plain SGD has the best of 8 with 1 job (0.00125 to 0.16) and of 8 with 4 (0.000625 to 0.08).
NG-SGD has the best of 4 with 1 job, the lowest that was tried; with 4 jobs, 0.0025 to 0.02 were
alike, and it has the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from natgrad.data import Examples, build, open_examples
from natgrad.data.examples import INDEX
from natgrad.recipes.demo_speech import HELD_OUT_VOICES, PHONES, TRAINING_VOICES, sources
from natgrad.recipes.network_job import evaluate_model
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
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events

__all__ = ["Result", "build_examples", "conclusion", "format_table", "main"]

CONTEXT = 5
HIDDEN = ((400, 80), (400, 80))
SAMPLES_PER_BLOCK = 10_000
TRAIN_SUBSET_SAMPLES = 10_000
LR_DECAY = 10.0
FRAMES_PER_MINUTE = 6000
# Segments are scattered over blocks in pieces. By default these are long, as is good for the disk;
# but a block of so few samples would then be about a few dozen sentences, and no fair sample.
PIECE_FRAMES = 10
TITLES = {"none": "plain SGD", "online": "online NG-SGD"}


@dataclass(frozen=True)
class Run:
    """One of the runs that are compared."""

    name: str
    method: Literal["none", "online"]
    num_jobs: int
    initial_effective_lr: float


# With the averaging of jobs plain SGD wants a lower rate: at 0.005, it ended worse by another 0.08.
RUNS = (
    Run("sgd-1-job", "none", 1, 0.005),
    Run("sgd-4-jobs", "none", 4, 0.00125),
    Run("ng-sgd-1-job", "online", 1, 0.005),
    Run("ng-sgd-4-jobs", "online", 4, 0.005),
)


@dataclass(frozen=True)
class Result:
    """What a run's final model reached, and the time that its outer iterations took.

    Objectives are mean log-probabilities of the right phone, accuracies the share of frames.
    """

    run: Run
    train_objective: float
    valid_objective: float
    valid_accuracy: float
    seconds: float


def main(
    directory: str | Path,
    *,
    num_utterances: int = 700,
    num_held_out: int = 90,
    num_epochs: float = 4.0,
    engine: EngineConfig | None = None,
    follow: Callable[[str], Callable[[dict[str, Any]], None]] | None = None,
    say: Callable[[str], None] = print,
) -> list[Path]:
    """Make the speech, train the four runs, print a table, and return the runs' directories.

    Called again, it goes on where it ended.

    Args:
        directory: for everything; made if need be.
        num_utterances, num_held_out: of training voices, and of held-out ones for validation.
        num_epochs: of each run.
        engine: where jobs run; None means processes on this machine.
        follow: given a run's name, returns what is then called with each of its events.
        say: what to do with a piece of text.
    """
    directory = Path(directory)
    say(f"Making speech: {num_utterances} utterances of {len(TRAINING_VOICES)} voices ...")
    examples = build_examples(directory, num_utterances, num_held_out)
    say(describe(examples, num_held_out))
    results = []
    for run in RUNS:
        say(f"\n{run.name} ...")
        config = configure(run, directory, examples, num_epochs, engine or EngineConfig())
        train(config, None if follow is None else follow(run.name))
        results.append(read_result(run, config))
    say(f"\n{format_table(results)}\n\n{conclusion(results)}")
    return [directory / run.name for run in RUNS]


def build_examples(directory: Path, num_utterances: int, num_held_out: int) -> Examples:
    """Return the examples of so many utterances, which are made in the directory if need be."""
    place = directory / f"spoken-{num_utterances}-{num_held_out}"
    if not (place / INDEX).exists():
        build(
            place,
            sources(num_utterances, seed=0),
            num_classes=len(PHONES),
            left_context=CONTEXT,
            right_context=CONTEXT,
            num_jobs=max(run.num_jobs for run in RUNS),
            samples_per_job=SAMPLES_PER_BLOCK,
            validation_sources=sources(num_held_out, 0, HELD_OUT_VOICES),
            train_subset_samples=TRAIN_SUBSET_SAMPLES,
            piece_frames=PIECE_FRAMES,
            num_workers=min(2, os.cpu_count() or 1),
        )
    return open_examples(place)


def configure(
    run: Run, directory: Path, examples: Examples, num_epochs: float, engine: EngineConfig
) -> TrainConfig:
    """Return a run's configuration."""
    return TrainConfig(
        run=RunConfig(str(directory / run.name)),
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


def describe(examples: Examples, num_held_out: int) -> str:
    """Return what the runs are trained on, and what is trained."""
    assert examples.validation is not None
    hidden = ", ".join(f"{units} -> {groups}" for units, groups in HIDDEN)
    minutes = examples.num_samples / FRAMES_PER_MINUTE
    return (
        f"{examples.num_samples} frames to train on ({minutes:.0f} minutes), and "
        f"{examples.validation.num_samples} to validate ({num_held_out} utterances by "
        f"{len(HELD_OUT_VOICES)} other voices).\n"
        f"A p-norm network of {examples.input_dim} inputs ({CONTEXT} + 1 + {CONTEXT} frames of "
        f"{examples.feature_dim} cepstra), hidden layers {hidden}, tells {len(PHONES)} phones."
    )


def format_table(results: Sequence[Result]) -> str:
    """Return a row per run.

    >>> print(format_table([Result(RUNS[0], -0.75, -1.25, 0.6875, 20.04)]))
    method         jobs      lr   train objective   valid objective   valid accuracy   seconds
    plain SGD         1   0.005           -0.7500           -1.2500            68.8%      20.0
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
    """Return what more jobs cost each method: how far the objective on held-out voices fell.

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
