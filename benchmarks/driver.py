"""The driver of a long run of tiny jobs: its memory, and its own time per iteration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, Table
from natgrad.data import Segment, build, segments_of_vectors
from natgrad.recipes.train import (
    CombinationConfig,
    DataConfig,
    EngineConfig,
    NetworkShape,
    RunConfig,
    TrainConfig,
    TrainingConfig,
    train,
)
from natgrad.run.events import read_events

__all__ = ["measure_driver"]

NUM_WORKERS = 2
SAMPLES_PER_JOB = 64


def measure_driver(num_iterations: int, num_jobs: int, directory: Path) -> list[Table]:
    """Compare the first tenth of a run with the last: it should hold its memory and its time."""
    examples = build(
        directory / "examples",
        [partial(tiny_vectors, SAMPLES_PER_JOB * num_jobs)],
        num_classes=3,
        num_jobs=num_jobs,
        samples_per_job=SAMPLES_PER_JOB,
        validation_samples=SAMPLES_PER_JOB,
        train_subset_samples=SAMPLES_PER_JOB,
    )
    megabytes: list[float] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            megabytes.append(resident_megabytes())

    config = TrainConfig(
        run=RunConfig(str(directory / "run")),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(hidden=((8, 4),), initial_num_hidden=None),
        training=TrainingConfig(num_epochs=num_iterations, num_jobs=num_jobs),
        engine=EngineConfig(num_workers=NUM_WORKERS),
        combination=CombinationConfig(method="last"),
    )
    train(config, on_event)
    own = own_milliseconds(read_events(directory / "run" / "events.jsonl"))
    title = f"the driver of {num_iterations} iterations of {num_jobs} tiny jobs"
    return [
        first_and_last(f"{title}, after an iteration", "MB of memory", megabytes),
        first_and_last(f"{title}, beside its jobs", "ms an iteration", own),
    ]


def tiny_vectors(num_vectors: int) -> Iterator[Segment]:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, num_vectors)
    return segments_of_vectors(random.normal(size=(num_vectors, 4)).astype(np.float32), labels)


def resident_megabytes() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def own_milliseconds(events: Sequence[dict[str, Any]]) -> list[float]:
    """Return the time of each iteration but the first, less that of its jobs on the workers."""
    in_jobs: dict[int, float] = {}
    for event in events:
        if event["event"] == "job":
            in_jobs[event["iteration"]] = in_jobs.get(event["iteration"], 0.0) + event["seconds"]
    ends = [event["time"] for event in events if event["event"] == "iteration"]
    return [
        1e3 * (end - begin - in_jobs[number] / NUM_WORKERS)
        for number, (begin, end) in enumerate(pairwise(ends), start=2)
    ]


def first_and_last(title: str, unit: str, values: Sequence[float]) -> Table:
    tenth = max(1, len(values) // 10)
    rows = (
        Row("first tenth", tuple(values[:tenth])),
        Row("last tenth", tuple(values[-tenth:])),
    )
    return Table(title, unit, rows, references=("first tenth",))
