"""When jobs ran, which of them were slow, lost or left out, and how long workers waited."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from natgrad.report.history import Event, RunHistory
from natgrad.report.scale import format_duration, format_value

__all__ = ["Bar", "IterationTiming", "Loss", "iteration_timings", "waiting_share"]

SLOW_RATIO = 1.5  # a job is a straggler if it took so much longer than its iteration's median


@dataclass(frozen=True)
class Bar:
    """One job: from when to when (in seconds of running) it was at work, and what became of it."""

    job: int
    begin: float
    end: float
    kind: str  # "usual", "slow" or "left-out"
    attempt: int
    hover: str


@dataclass(frozen=True)
class Loss:
    """An attempt at a job that was lost, and when that was noticed."""

    job: int
    time: float
    hover: str


@dataclass(frozen=True)
class IterationTiming:
    """An outer iteration: its jobs, and the averaging after them; `end` is None while it runs."""

    iteration: int
    begin: float
    end: float | None
    average_seconds: float
    bars: list[Bar]
    losses: list[Loss]

    @property
    def median_seconds(self) -> float:
        """The median time of its jobs."""
        return statistics.median(bar.end - bar.begin for bar in self.bars)

    @property
    def slowest_seconds(self) -> float:
        """The time of its slowest job."""
        return max(bar.end - bar.begin for bar in self.bars)


def iteration_timings(run: RunHistory) -> list[IterationTiming]:
    """Return the iterations that have had any job, the one under way too."""
    return [_timing(run, iteration, jobs) for iteration, jobs in run.jobs.items() if jobs]


def waiting_share(run: RunHistory) -> float | None:
    """Return which part of the jobs' places was idle in complete iterations, averaging included."""
    busy = places = 0.0
    for iteration, event in run.iterations.items():
        jobs = run.jobs.get(iteration, [])
        busy += sum(job["seconds"] for job in jobs)
        places += event["seconds"] * len(jobs)
    return max(0.0, 1 - busy / places) if places else None


def _timing(run: RunHistory, iteration: int, jobs: list[Event]) -> IterationTiming:
    event = run.iterations.get(iteration)
    usual = statistics.median_low(job["seconds"] for job in jobs)
    if event is None:
        begin, end = min(job["started"] for job in jobs), None
    else:
        begin, end = event["time"] - event["seconds"], run.running_seconds(event["time"])
    return IterationTiming(
        iteration,
        run.running_seconds(begin),
        end,
        float(event.get("average_seconds") or 0.0) if event else 0.0,
        [_bar(run, job, usual) for job in jobs],
        [_loss(run, retry) for retry in run.retries.get(iteration, [])],
    )


def _bar(run: RunHistory, job: Event, usual: float) -> Bar:
    begin = run.running_seconds(job["started"])
    notes = [
        f"iteration {job['iteration']}, job {job['job']} on {job.get('host')}: "
        f"{format_duration(job['seconds'])}, objective {format_value(job.get('objective'))}"
    ]
    kind = "usual"
    if job["seconds"] > SLOW_RATIO * usual:
        kind = "slow"
        notes.append(f"{job['seconds'] / usual:.1f} times as long as usual in this iteration")
    if not job.get("accepted", True):
        kind = "left-out"
        notes.append(f"left out: {job.get('reason')}")
    attempt = int(job.get("attempt") or 1)
    if attempt > 1:
        notes.append(f"attempt {attempt}")
    return Bar(job["job"], begin, begin + job["seconds"], kind, attempt, "; ".join(notes))


def _loss(run: RunHistory, retry: Event) -> Loss:
    hover = (
        f"iteration {retry['iteration']}, job {retry['job']}: attempt {retry.get('attempt')} "
        f"was lost: {retry.get('reason')}"
    )
    return Loss(retry["job"], run.running_seconds(retry["time"]), hover)
