"""What an outer iteration costs: one job on one core, and the mean of N models.

By these, the time of runs with more jobs than there are cores is what it would be with a core for
each job: iterations times (a job + averaging), as in the paper. Where cores are enough, clock.py
tells what runs took, and these how far the simulation is from it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from natgrad.parallel.average import average_files
from natgrad.parallel.job import Job, job_settings
from natgrad.recipes.network_job import train_job
from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.reproduce.job_counts.settings import METHODS, JobCounts, Method
from natgrad.run.model_file import read_model, write_model

__all__ = ["IterationCost", "measure_costs"]


class IterationCost(NamedTuple):
    """Median seconds of a processor, and the least and the most of all rounds."""

    median: float
    least: float
    most: float


def measure_costs(
    settings: JobCounts, examples: Path, model: Path, place: Path, on_round: Callable[[int], object]
) -> Found:
    """Time jobs of all methods and averaging of all numbers of models, in turns.

    Seconds are those of the processor, which is all that a job on a core of its own would take.
    """
    numbers = settings.num_jobs
    tasks: dict[str, Callable[[], object]] = {}
    for method in METHODS:
        tasks[method] = _Task(settings, method, examples, model, place)
    for number in numbers:
        tasks[f"average-{number}"] = _Averaging(model, number, place)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    with job_settings(settings.seed):
        for _ in range(settings.timing_rounds + 1):
            for name, task in tasks.items():
                began = time.process_time()
                task()
                seconds[name].append(time.process_time() - began)
            on_round(1)
    costs = {name: _cost(found[1:]) for name, found in seconds.items()}  # the first warms up
    return {
        "job": {method: costs[method]._asdict() for method in METHODS},
        "averaging": {str(number): costs[f"average-{number}"]._asdict() for number in numbers},
    }


@dataclass(frozen=True)
class _Task:
    settings: JobCounts
    method: Method
    examples: Path
    model: Path
    place: Path

    def __call__(self) -> None:
        options = {
            "examples": str(self.examples),
            "minibatch_size": self.settings.minibatch_size,
            "optimizer": asdict(self.settings.optimizer(self.method)),
            "native_kernels": False,
        }
        result = train_job(
            Job(
                iteration=1,
                index=0,
                model=str(self.model),
                result=str(self.place / "job.safetensors"),
                block=0,
                learning_rate=self.settings.final_effective_lr,
                seed=self.settings.seed,
                options=options,
            )
        )
        if result.error or result.diverged:
            raise RuntimeError(f"a job to be timed has failed: {result.error or result.diverged}")


@dataclass(frozen=True)
class _Averaging:
    model: Path
    number: int
    place: Path

    def __call__(self) -> None:
        mean = average_files([str(self.model)] * self.number, [1.0] * self.number)
        write_model(self.place / "mean.safetensors", mean, read_model(self.model).description)


def _cost(seconds: Iterable[float]) -> IterationCost:
    found = sorted(seconds)
    return IterationCost(statistics.median(found), found[0], found[-1])
