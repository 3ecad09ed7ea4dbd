"""One job: SGD on one block, beginning with the parameters that all jobs of its iteration share.

A job is a pure function of its description: run again, here or on another machine, it gives the
same bits. It reads a model file, writes another, and returns a small result. It may begin with what
an optimizer has learned in an earlier job, and leave to a later one what its own has: in files too,
which are part of its description.
"""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from natgrad.parallel.hogwild import learn_in_threads
from natgrad.parallel.learner import Learner
from natgrad.run.model_file import Model, read_model, write_model

__all__ = ["Job", "JobResult", "job_settings", "run_job"]


@dataclass(frozen=True)
class Job:
    """Everything that decides what a job does; JSON can hold it.

    model: the file of the parameters to begin with
    result: the file to write
    block: which of the blocks to train on
    options: what the recipe's learner needs beside these
    state: the file of an optimizer's state to begin with; None means that it learns anew
    state_result: the file to write the optimizer's state to; None means that nobody wants it
    renewed: tensors of the model that were changed, with its structure, since `state` was learned:
        what was learned of them is of no use
    """

    iteration: int
    index: int
    model: str
    result: str
    block: int
    learning_rate: float
    seed: int
    num_threads: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    state: str | None = None
    state_result: str | None = None
    renewed: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobResult:
    """What a job says when it is over; its parameters are in the file it was told to write.

    objective: mean over the samples, as each was met in training; NaN if there is none
    diverged: why the job's parameters are of no use, or None
    error: what kept the job from being done, and would keep it again, or None
    layers: the learner's statistics
    """

    objective: float
    samples: float
    started: float
    seconds: float
    host: str
    pid: int
    diverged: str | None = None
    error: str | None = None
    layers: dict[str, Any] = field(default_factory=dict)


class Outcome(NamedTuple):
    """The part of a result that is about the training."""

    objective: float = math.nan
    samples: float = 0.0
    diverged: str | None = None
    error: str | None = None
    layers: dict[str, Any] = {}  # noqa: RUF012, never written


def run_job(job: Job, make_learner: Callable[[Job, Model], Learner]) -> JobResult:
    """Train on the job's block and write the parameters; errors are returned, not raised.

    So an exception out of an engine means that the engine has lost the job, and that it is worth
    another try elsewhere, whereas an error in the result would come back.
    """
    started, clock = time.time(), time.perf_counter()
    with job_settings(job.seed):
        try:
            outcome = _train(job, make_learner)
        except FloatingPointError as error:
            outcome = Outcome(diverged=str(error))
        except Exception as error:
            outcome = Outcome(error=f"{type(error).__name__}: {error}")
    return JobResult(
        **outcome._asdict(),
        started=started,
        seconds=time.perf_counter() - clock,
        host=socket.gethostname(),
        pid=os.getpid(),
    )


def _train(job: Job, make_learner: Callable[[Job, Model], Learner]) -> Outcome:
    model = read_model(job.model)
    learner = make_learner(job, model)
    objective, samples, _ = learn_in_threads(learner, job.num_threads)
    layers = learner.statistics()
    if not samples > 0:
        raise ValueError(f"block {job.block} holds no samples, or only ones of weight zero")
    tensors = learner.tensors()
    bad = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
    if bad:
        diverged = f"its parameters are not finite: {', '.join(bad)}"
        return Outcome(math.nan, samples, diverged, layers=layers)
    Path(job.result).parent.mkdir(parents=True, exist_ok=True)
    # Not durable: if the machine fails before the average is on the disk, the job is run again.
    write_model(job.result, tensors, model.description, durable=False)
    if job.state_result is not None:  # durable: it is kept as it is, by another name
        write_model(job.state_result, learner.state(), {})
    return Outcome(objective / samples, samples, layers=layers)


@contextmanager
def job_settings(seed: int) -> Iterator[None]:
    """Fix what results depend on, and put it back for the process that goes on after the job.

    Products are computed by one thread, also when several threads share the parameters: sums have
    the same order then on every machine.
    """
    before, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_rng_state(state)
