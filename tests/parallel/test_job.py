"""One job, on a learner that halves the distance to the mean of what it is shown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from natgrad.parallel.job import Job, job_settings, run_job
from natgrad.run.model_file import Model, read_model, write_model


class Halver:
    """Moves its one parameter half of the way to each number of its block."""

    def __init__(self, job: Job, model: Model, numbers: list[float]) -> None:
        self.parameter = model.tensors["w"].clone()
        self.job, self.numbers = job, numbers

    def tensors(self) -> dict[str, Tensor]:
        return {"w": self.parameter}

    def minibatches(self) -> Iterator[float]:
        order = torch.randperm(len(self.numbers))  # from the seed that the job sets
        yield from (self.numbers[index] for index in order)

    def learn(self, minibatch: float) -> tuple[float, float]:
        if math.isnan(minibatch):
            raise FloatingPointError("layer 'w' met a NaN")
        self.parameter.lerp_(torch.tensor([minibatch]), 0.5)
        return -2.0 * abs(minibatch), 2.0

    def replica(self) -> Halver:
        return self

    def state(self) -> dict[str, Tensor]:
        return {"learned": torch.tensor([float(len(self.numbers))])}

    def statistics(self) -> dict[str, Any]:
        return {"w": {"num_minibatches": len(self.numbers)}}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    write_model(tmp_path / "start", {"w": torch.tensor([1.0])}, {"kind": "halver"})
    return Job(
        iteration=3,
        index=1,
        model=str(tmp_path / "start"),
        result=str(tmp_path / "jobs" / "1"),
        block=5,
        learning_rate=0.1,
        seed=7,
    )


def run(job: Job, numbers: list[float]) -> Any:
    return run_job(job, lambda job, model: Halver(job, model, numbers))


def test_job_writes_its_parameters_and_says_what_it_did(job: Job) -> None:
    result = run(job, [2.0, 4.0])
    assert read_model(job.result).description == {"kind": "halver"}
    assert result.objective == -3.0
    assert result.samples == 4.0
    assert result.layers == {"w": {"num_minibatches": 2}}
    assert (result.error, result.diverged) == (None, None)


def test_job_run_twice_gives_the_same_bytes_and_leaves_no_trace(job: Job) -> None:
    numbers = [float(number) for number in range(50)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    run(job, numbers)
    first = Path(job.result).read_bytes()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    run(job, numbers)
    assert Path(job.result).read_bytes() == first
    run(replace(job, seed=8), numbers)
    assert Path(job.result).read_bytes() != first


def test_state_is_written_where_it_is_wanted_and_only_there(job: Job, tmp_path: Path) -> None:
    run(job, [2.0, 4.0])
    assert [path.name for path in Path(job.result).parent.iterdir()] == ["1"]
    path = str(tmp_path / "jobs" / "1.state")
    run(replace(job, state_result=path), [2.0, 4.0])
    assert read_model(path).tensors["learned"].item() == 2.0
    Path(path).unlink()
    assert run(replace(job, state_result=path), [math.inf]).diverged is not None
    assert not Path(path).exists()


def test_settings_are_put_back_after_an_error() -> None:
    threads = torch.get_num_threads()
    inside = []
    try:
        torch.set_num_threads(2)
        with suppress(ZeroDivisionError), job_settings(1):
            inside.append(torch.get_num_threads())
            raise ZeroDivisionError
        assert [*inside, torch.get_num_threads()] == [1, 2]
    finally:
        torch.set_num_threads(threads)


def test_job_that_diverges_says_so_and_writes_nothing(job: Job) -> None:
    result = run(job, [1.0, math.nan])
    assert result.diverged == "layer 'w' met a NaN"
    result = run(job, [1.0, math.inf])
    assert result.diverged == "its parameters are not finite: w"
    assert not Path(job.result).exists()


def test_error_is_returned_with_its_kind(job: Job) -> None:
    assert "holds no samples" in run(job, []).error
    result = run(replace(job, model="/nowhere/model"), [1.0])
    assert result.error == "ModelFileError: there is no model file /nowhere/model"
    result = run(replace(job, result="/proc/no/such/place"), [1.0])
    assert result.error.startswith("FileNotFoundError")
