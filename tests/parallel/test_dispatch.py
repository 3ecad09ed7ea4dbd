"""The jobs of one outer iteration, by an engine that does each when it is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from natgrad.parallel.dispatch import RunFailedError, run_jobs
from natgrad.parallel.inline import InlineExecutor
from natgrad.parallel.job import Job, JobResult

JOBS = [
    Job(iteration=3, index=index, model="", result="", block=index, learning_rate=0.1, seed=index)
    for index in range(10)
]


def result_of(job: Job, error: str | None = None) -> JobResult:
    return JobResult(-1.0 * job.index, 100.0, 0.0, 1.0, "here", 1, error=error)


class LostAtFirst:
    """Jobs of odd index get lost, the first so many times."""

    def __init__(self, times: int) -> None:
        self.left = {job.index: times * (job.index % 2) for job in JOBS}

    def __call__(self, job: Job) -> JobResult:
        if self.left[job.index] > 0:
            self.left[job.index] -= 1
            raise ConnectionError("the worker is gone")
        return result_of(job)


def test_lost_jobs_are_submitted_again_and_told_of_in_the_order_of_the_jobs() -> None:
    events: list[tuple[str, dict[str, Any]]] = []

    def emit(name: str, **facts: Any) -> None:
        events.append((name, facts))

    results, attempts = run_jobs(InlineExecutor(), LostAtFirst(2), JOBS, 3, emit)
    assert results == [result_of(job) for job in JOBS]
    assert attempts == [1, 3] * 5
    assert {name for name, _ in events} == {"retry"}
    told = [(facts["attempt"], facts["job"]) for _, facts in events]
    assert told == [(attempt, index) for attempt in (2, 3) for index in (1, 3, 5, 7, 9)]
    assert events[0][1]["reason"] == "ConnectionError: the worker is gone"


def test_job_that_is_lost_too_often_ends_the_run_with_its_name_and_what_to_do() -> None:
    with pytest.raises(RunFailedError, match=r"^job 1 of iteration 3 was lost 3 times, .* is gone"):
        run_jobs(InlineExecutor(), LostAtFirst(3), JOBS, 3, lambda *_, **__: None)


def test_of_jobs_that_cannot_be_done_the_first_is_told_of_and_none_is_tried_again() -> None:
    tried: list[int] = []

    def train(job: Job) -> JobResult:
        tried.append(job.index)
        return result_of(job, error="no compiler" if job.index >= 4 else None)

    with pytest.raises(RunFailedError, match=r"^job 4 of iteration 3 .* on here: no compiler$"):
        run_jobs(InlineExecutor(), train, JOBS, 3, lambda *_, **__: None)
    assert tried == [job.index for job in JOBS]
