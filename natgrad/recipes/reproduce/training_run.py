"""One training run, and what is kept of it: how far it came, and its final model."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from natgrad.data import open_examples
from natgrad.recipes.kept_examples import differing_examples
from natgrad.recipes.network_job import evaluate_model
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.train import ADDED, FREE_TABLES, train
from natgrad.recipes.train_config import DataConfig, RunConfig, TrainConfig
from natgrad.run.config import to_mapping
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events

__all__ = ["follow_training", "reached", "run_directory"]

RUN = "run"


def run_directory(measurement: Path) -> RunDirectory:
    """Return the run in a measurement's directory."""
    return RunDirectory(measurement / RUN)


def follow_training(
    bench: Bench, examples: Path, seed: int, diagnostics_every: int, **tables: Any
) -> Found:
    """Train, or go on with it, in the measurement's directory; return what happened.

    `tables` are those of `TrainConfig` beside run and data. What is returned:

    curve: per evaluated model, its iteration, epochs, and objective and accuracy on both sets
    last: the same of the last iteration's model
    final: objective and accuracy of the final model, after combination
    cosines: [iteration, mean cosine of the jobs' steps]
    num_iterations, num_left_out: outer iterations, and jobs whose models were of no use
    limited: in which share of their minibatches layers would have changed by more than max-change
    """
    run = run_directory(bench.directory)
    config = TrainConfig(
        run=RunConfig(str(run.path), seed, diagnostics_every=diagnostics_every),
        data=DataConfig(str(examples)),
        **tables,
    )
    is_other = run.differences(to_mapping(config), FREE_TABLES, ADDED)
    if is_other or differing_examples(run, open_examples(examples)):
        shutil.rmtree(run.path)  # what other settings, or examples, have left
    final = train(config, bench.on_event)
    events = read_events(run.events)
    iterations = {event["iteration"]: event for event in events if event["event"] == "iteration"}
    evaluations = {event["iteration"]: event for event in events if event["event"] == "diagnostics"}
    curve = [
        {"iteration": number, "epoch": _epoch(iterations, number), **reached(event)}
        for number, event in sorted(evaluations.items())
    ]
    return {
        "num_iterations": len(iterations),
        "num_left_out": sum(len(event["left_out"]) for event in iterations.values()),
        "curve": curve,
        "last": curve[-1],
        "final": reached(evaluate_model(str(final), {"examples": config.data.examples})),
        "cosines": [
            [number, event["cosine"]]
            for number, event in sorted(iterations.items())
            if event.get("cosine") is not None
        ],
        "limited": _limited(events),
    }


def _limited(events: Iterable[Mapping[str, Any]]) -> float:
    layers = [
        layer for event in events if event["event"] == "job" for layer in event["layers"].values()
    ]
    num_minibatches = sum(layer["num_minibatches"] for layer in layers)
    return float(sum(layer["num_limited"] for layer in layers) / num_minibatches)


def _epoch(iterations: Mapping[int, Mapping[str, Any]], number: int) -> float:
    return float(iterations[number]["epoch"]) if number else 0.0


def reached(diagnostics: Mapping[str, Any]) -> dict[str, float]:
    """Return objective and accuracy on both sets, from what `evaluate_model` returns."""
    return {
        f"{where}_{what}": diagnostics[where][what]
        for where in ("train", "valid")
        for what in ("objective", "accuracy")
    }
