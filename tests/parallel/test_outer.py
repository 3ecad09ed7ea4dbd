"""The outer loop on a model of one number, whose jobs do as they are told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from natgrad.parallel.job import Job, JobResult
from natgrad.parallel.outer import RunFailedError
from natgrad.parallel.plan import Iteration, make_plan
from natgrad.run.model_file import read_model
from tests.parallel.number_loop import Forgetful, Loop, add_block, result


def test_mean_is_weighted_by_samples(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.train()
    # Blocks 0 and 1, with learning rate 1: 1 + 1 of 100 samples, and 1 + 2 of 200.
    assert loop.value(1) == pytest.approx((2 * 100 + 3 * 200) / 300)
    first = loop.events("iteration")[0]
    assert first["samples"] == 300
    assert first["chosen"] == "average"
    assert first["change"] == {"layer": pytest.approx(5 / 3)}
    assert [event["epoch"] for event in loop.events("iteration")] == [0.5, 1.0, 1.5, 2.0]


def test_every_model_is_evaluated(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.train()
    assert [event["iteration"] for event in loop.events("diagnostics")] == [0, 1, 2, 3, 4]
    for event in loop.events("diagnostics"):
        assert event["valid"]["objective"] == loop.value(event["iteration"])


def test_fresh_iteration_takes_the_best_job(tmp_path: Path) -> None:
    plan = [Iteration(1, (0, 1, 2), 1.0, 0.5, 1.5, is_fresh=True)]

    def train(job: Job) -> JobResult:
        return result(job, float(job.index), objective=[-3.0, -2.0, -2.5][job.index])

    loop = Loop(tmp_path, plan, train=train)
    loop.train()
    assert loop.value(1) == 1.0
    assert loop.events("iteration")[0]["chosen"] == "best of 3"


def test_structure_changes_before_its_iteration(tmp_path: Path) -> None:
    plan = make_plan(2, 2, 2, 2, lambda progress: 0.5)
    plan[1] = Iteration(**{**vars(plan[1]), "remodel": {"change": "double"}})
    loop = Loop(tmp_path, plan)
    loop.train()
    mean_step = (1 * 100 + 2 * 200) / 300
    assert loop.value(2) == pytest.approx(2 * (1 + mean_step) + mean_step)
    assert read_model(loop.run.model(2)).description == {"kind": "number", "change": "double"}
    assert [(e["iteration"], e["change"]) for e in loop.events("remodel")] == [(2, "double")]


@pytest.mark.parametrize(
    "bad", [{"objective": math.nan}, {"objective": -50.0}, {"diverged": "parameters not finite"}]
)
def test_bad_job_is_left_out_with_a_warning(tmp_path: Path, bad: dict[str, Any]) -> None:
    def train(job: Job) -> JobResult:
        return result(job, 7.0, **bad) if job.index == 0 else result(job, 3.0)

    loop = Loop(tmp_path, train=train)
    loop.train()
    assert loop.value(4) == 3.0
    assert loop.events("iteration")[0]["left_out"] == [0]
    assert "job 0 of iteration 1 is left out: " in loop.events("warning")[0]["message"]
    assert [event["accepted"] for event in loop.events("job")][:2] == [False, True]


def test_run_stops_when_no_job_is_left_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    def train(job: Job) -> JobResult:
        if job.iteration == 3:
            return result(job, math.nan, diverged=f"job {job.index} went astray")
        return add_block(job)

    loop = Loop(tmp_path, train=train)
    with pytest.raises(RunFailedError, match=r"iteration 3 failed.*went astray.*iteration 2 is in"):
        loop.train()
    assert loop.run.last_iteration() == 2
    before = loop.value(2)
    loop.train(train=add_block)  # someone has seen to it
    assert loop.run.last_iteration() == 4
    assert loop.value(2) == before


def test_error_of_a_job_ends_the_run_and_is_not_tried_again(tmp_path: Path) -> None:
    seen = []

    def train(job: Job) -> JobResult:
        seen.append(job.index)
        return result(job, 0.0, error="BlockError: 0.block is truncated")

    with pytest.raises(RunFailedError, match=r"job . of iteration 1 .* 0\.block is truncated"):
        Loop(tmp_path, train=train).train()
    assert sorted(seen) == [0, 1]


def test_lost_jobs_are_run_again_with_the_same_result(tmp_path: Path) -> None:
    loop, other = Loop(tmp_path / "a"), Loop(tmp_path / "b")
    loop.train()
    other.train(engine=Forgetful(lambda number: number % 3 != 0))
    assert other.value(4) == loop.value(4)
    retries = other.events("retry")
    assert len(retries) == 16
    assert retries[0]["reason"] == "RuntimeError: the machine is gone"
    assert max(event["attempt"] for event in other.events("job")) > 1


def test_job_that_is_always_lost_ends_the_run(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    with pytest.raises(RunFailedError, match=r"job . of iteration 1 was lost 3 times.*is gone"):
        loop.train(engine=Forgetful(lambda number: True), max_attempts=3)


@pytest.mark.parametrize(("num_lost", "expected"), [(2, [0, 1, 2, 3, 4]), (6, [2, 3, 4])])
def test_evaluation_that_is_lost_is_tried_thrice_and_then_warned_of(
    tmp_path: Path, num_lost: int, expected: list[int]
) -> None:
    loop = Loop(tmp_path)
    loop.train(background=Forgetful(lambda number: number <= num_lost))
    assert sorted(event["iteration"] for event in loop.events("diagnostics")) == expected
    messages = [event["message"] for event in loop.events("warning")]
    assert messages == [
        f"the model of iteration {number} was not evaluated: the machine is gone"
        for number in range(5)
        if number not in expected
    ]


def test_evaluation_that_is_not_finite_is_warned_of_and_ends_nothing(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.train(evaluate=lambda path, options: {"train": None, "valid": {"objective": math.nan}})
    assert loop.events("diagnostics") == []
    messages = [event["message"] for event in loop.events("warning")]
    assert len(messages) == 5
    assert "iteration 4 has values that are not finite on the data valid" in messages[-1]


def test_resumed_run_evaluates_what_the_last_one_did_not(tmp_path: Path) -> None:
    def train(job: Job) -> JobResult:
        return result(job, 0.0, error="enough") if job.iteration == 4 else add_block(job)

    loop = Loop(tmp_path)
    with pytest.raises(RunFailedError, match="enough"):
        loop.train(train=train, evaluate=None)
    loop.train(evaluated=frozenset({0, 2}), keep=frozenset())
    assert [event["iteration"] for event in loop.events("diagnostics")] == [1, 3, 4]


def test_only_the_models_that_are_wanted_are_kept(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.train(keep=frozenset({2}))
    assert sorted(file.name for file in loop.run.model(0).parent.iterdir()) == [
        "0002.safetensors",
        "0004.safetensors",
    ]
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize("stop_at", range(1, 9))
def test_run_that_is_cut_off_goes_on_to_the_same_bits(tmp_path: Path, stop_at: int) -> None:
    """Whatever job was running: `Cut` stands for the driver's end."""

    class Cut(BaseException):
        pass

    calls = []

    def train(job: Job) -> JobResult:
        calls.append(job)
        if len(calls) == stop_at:
            raise Cut
        return add_block(job)

    whole, cut = Loop(tmp_path / "whole"), Loop(tmp_path / "cut")
    whole.train()
    with pytest.raises(Cut):
        cut.train(train=train, engine=Forgetful(lambda number: False))
    assert cut.run.last_iteration() == (stop_at - 1) // 2
    cut.train()
    assert cut.run.model(4).read_bytes() == whole.run.model(4).read_bytes()


def test_jobs_have_seeds_of_their_own(tmp_path: Path) -> None:
    seeds = []

    def train(job: Job) -> JobResult:
        seeds.append(job.seed)
        return add_block(job)

    Loop(tmp_path, train=train).train()
    assert len(set(seeds)) == len(seeds) == 8
