"""The outer loop on a model of one number, whose jobs do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import torch

from natgrad.parallel.engines import open_engine
from natgrad.parallel.job import Job, JobResult
from natgrad.parallel.outer import OuterLoop
from natgrad.parallel.plan import Iteration, make_plan
from natgrad.run.directory import RunDirectory
from natgrad.run.events import EventLog, read_events
from natgrad.run.model_file import Model, read_model, write_model


def result(job: Job, value: float, **fields: Any) -> JobResult:
    """Write a model that is one number, and say that all went well."""
    Path(job.result).parent.mkdir(parents=True, exist_ok=True)
    write_model(job.result, {"layer.w": torch.tensor([value])}, {"kind": "number"}, durable=False)
    usual = {"objective": -1.0, "samples": 100.0, "started": 0.0, "seconds": 1.0}
    return JobResult(**{**usual, "host": "here", "pid": 1, **fields})


def add_block(job: Job) -> JobResult:
    """Train: add (block + 1) times the learning rate."""
    before = read_model(job.model).tensors["layer.w"].item()
    return result(
        job, before + (job.block + 1) * job.learning_rate, samples=100.0 * (job.block + 1)
    )


def evaluate(path: str, options: dict[str, Any]) -> dict[str, Any]:
    return {"valid": {"objective": read_model(path).tensors["layer.w"].item()}}


def double(model: Model, change: Mapping[str, Any], seed: int) -> Model:
    tensors = {name: 2 * tensor for name, tensor in model.tensors.items()}
    return Model(tensors, {**model.description, **change})


class Loop:
    """An outer loop over a directory, and what can be asked of it afterwards."""

    def __init__(self, path: Path, plan: list[Iteration] | None = None, **fields: Any) -> None:
        self.run = RunDirectory(path)
        self.plan = plan or make_plan(4, 2, 2, 2, lambda progress: 0.5)
        self.fields = fields

    def train(self, **fields: Any) -> None:
        with self.run.drive(), open_engine("inline", 1) as inline:
            log = EventLog(self.run.events)
            if self.run.last_iteration() is None:
                write_model(self.run.model(0), {"layer.w": torch.tensor([1.0])}, {"kind": "number"})
            usual = {
                "engine": inline,
                "background": inline,
                "train": add_block,
                "evaluate": evaluate,
                "remodel": double,
                "options": {},
                "seed": 0,
                "emit": log.append,
            }
            OuterLoop(
                run=self.run, plan=self.plan, **{**usual, **self.fields, **fields}
            ).train_all()

    def value(self, number: int) -> float:
        return read_model(self.run.model(number)).tensors["layer.w"].item()

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in read_events(self.run.events) if event["event"] == kind]


class Forgetful(Executor):
    """An engine that loses the calls that it is told to lose."""

    def __init__(self, is_lost: Callable[[int], bool]) -> None:
        self.is_lost, self.num_calls = is_lost, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_calls += 1
        future: Future[Any] = Future()
        if self.is_lost(self.num_calls):
            future.set_exception(RuntimeError("the machine is gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future
