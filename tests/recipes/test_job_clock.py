"""Time: what the clock told of runs, what is simulated, and which is which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.reproduce.experiment import Measurement
from natgrad.recipes.reproduce.job_counts import experiment
from natgrad.recipes.reproduce.job_counts.clock import elapsed, had_workers, read_clock
from natgrad.recipes.reproduce.job_counts.experiment import JOBS
from natgrad.recipes.reproduce.job_counts.figures import figures
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import JobCounts, System
from natgrad.run.events import EventLog
from tests.recipes.made_up_jobs import made_up_results

Event = dict[str, Any]


def start(time: float) -> Event:
    return {"time": time, "event": "start"}


def end(iteration: int, time: float) -> Event:
    return {"time": time, "event": "iteration", "iteration": iteration}


def job(pid: int, host: str = "here") -> Event:
    return {"time": 0.0, "event": "job", "host": host, "pid": pid}


# -- the clock of a run --------------------------------------------------------------------------


def test_everything_counts_from_the_start_of_the_run_to_each_iterations_end() -> None:
    events = [start(100.0), job(7), end(1, 108.0), job(7), end(2, 110.5), end(3, 113.0)]
    assert elapsed(events) == [(1, 8.0), (2, 10.5), (3, 13.0)]


def test_time_between_stop_and_resumption_does_not_count() -> None:
    events = [start(100.0), end(1, 105.0), start(1000.0), end(2, 1004.0), end(3, 1005.0)]
    assert elapsed(events) == [(1, 5.0), (2, 9.0), (3, 10.0)]


def test_iteration_that_was_done_twice_counts_once() -> None:
    """One that was told, but whose model was not in place when the run was killed."""
    events = [
        start(100.0),
        end(1, 105.0),
        end(2, 107.0),
        start(200.0),
        end(2, 206.0),
        end(3, 209.0),
    ]
    assert elapsed(events) == [(1, 5.0), (2, 11.0), (3, 14.0)]


def test_several_iterations_that_were_done_twice_count_once() -> None:
    first = [start(100.0), end(1, 105.0), end(2, 107.0), end(3, 109.0)]
    again = [start(200.0), end(2, 206.0), end(3, 209.0)]
    assert elapsed([*first, *again]) == [(1, 5.0), (2, 11.0), (3, 14.0)]


def test_starts_without_an_iteration_count_nothing() -> None:
    """Neither those that were killed soon, nor one that only combined models."""
    killed = [start(100.0), start(200.0), start(300.0)]
    events = [*killed, end(1, 304.0), start(400.0), end(2, 401.0), start(500.0)]
    assert elapsed(events) == [(1, 4.0), (2, 5.0)]


# -- the runs that have a clock ------------------------------------------------------------------


def test_a_run_had_cores_if_there_was_a_worker_for_each_job_whenever_it_went_on() -> None:
    both, one = [start(0.0), job(1), job(2), job(1)], [start(0.0), job(3), job(3)]
    assert had_workers(both, 2)
    assert had_workers([*both, start(0.0), *both], 2)
    assert had_workers([start(0.0), job(1, "here"), job(1, "there")], 2)
    assert not had_workers(one, 2)
    assert not had_workers([*both, *one], 2)  # resumed on a machine with fewer


def write_run(file: Path, num_workers: int) -> Path:
    times = iter([10.0, *[11.0] * num_workers, 12.0])
    log = EventLog(file, clock=lambda: next(times))
    log.append("start")
    for pid in range(num_workers):
        log.append("job", host="here", pid=pid)
    log.append("iteration", iteration=1)
    return file


def test_runs_with_as_many_jobs_have_one_clock(tmp_path: Path) -> None:
    """If one of them was not run on as many cores, all are simulated."""
    workers = {
        System("none", 1, 1): 1, System("online", 1, 1): 1,
        System("none", 2, 1): 2, System("online", 2, 1): 1,
    }  # fmt: skip
    runs = {system: write_run(tmp_path / system.name, n) for system, n in workers.items()}
    assert read_clock(2, runs) == {
        "num_cores": 2,
        "seconds": {"sgd-1-seed-1": [(1, 2.0)], "online-1-seed-1": [(1, 2.0)]},
    }


def test_events_that_are_gone_are_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"remove measurements/online-1-seed-1\.json, and it will"):
        read_clock(1, {System("online", 1, 1): tmp_path / "events.jsonl"})


def clock_on(num_cores: int | None, monkeypatch: pytest.MonkeyPatch) -> Measurement:
    monkeypatch.setattr(experiment, "num_cores", lambda: num_cores)
    return JOBS.measurements(JobCounts(), Path("exp"))[-1]


def test_only_runs_with_no_more_jobs_than_cores_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = clock_on(2, monkeypatch)
    assert (two.name, two.settings) == ("clock", {"num_cores": 2})
    one_job = {"sgd-1-seed-1", "simple-1-seed-1", "online-1-seed-1"}
    assert set(two.needs) == {*one_job, "sgd-2-seed-1", "online-2-seed-1"}
    for unknown_or_one in (None, 1):
        one = clock_on(unknown_or_one, monkeypatch)
        assert (set(one.needs), one.settings) == (one_job, {"num_cores": 1})


# -- what is told of time ------------------------------------------------------------------------


@pytest.fixture
def results() -> JobCountResults:
    return made_up_results()


def test_minutes_are_measured_where_there_is_a_clock_and_otherwise_simulated(
    results: JobCountResults,
) -> None:
    two, four = System("online", 2, 1), System("online", 4, 1)
    assert (results.is_measured(two), results.is_measured(four)) == (True, False)
    assert results.minutes(two, 8) == pytest.approx((5.0 + 2.0 * 8) / 60)
    assert results.simulated_minutes(two, 8) == pytest.approx(8 * (1.5 + 0.2) / 60)
    assert results.minutes(four, 8) == pytest.approx(8 * (1.5 + 0.4) / 60)
    assert results.minutes(two, 0) == results.minutes(four, 0) == 0.0


def test_lines_over_time_are_of_these_minutes(results: JobCountResults) -> None:
    _, time, _ = figures(results)
    ends = {line.name: line.points[-1] for line in time.lines if line.is_named}
    assert ends["online NG-SGD, 4 jobs"] == pytest.approx((4 * 1.9 / 60, -2.2))
    assert ends["SGD, 2 jobs"] == pytest.approx((21 / 60, -4.5))


@pytest.mark.parametrize(
    ("measured", "told"),
    [
        ((1, 2), "with 1 and 2 jobs measured by the clock, with more simulated"),
        ((1,), "with 1 job measured by the clock, with more simulated"),
        ((2,), "with 2 jobs measured by the clock, with 1 and 4 simulated"),
        ((1, 2, 4), "measured by the clock"),
        ((), "simulated"),
    ],
)
def test_caption_tells_which_times_are_measured(measured: tuple[int, ...], told: str) -> None:
    _, time, _ = figures(made_up_results(measured))
    assert time.caption.startswith(f"Training objective against time, {told}; from 0.2 epochs on:")


def test_report_has_simulated_beside_measured_minutes(results: JobCountResults) -> None:
    (section,) = _sections_on_time(results)
    assert "on a machine with 2 cores: with 1 and 2 jobs measured" in section
    assert "| online NG-SGD | 1.50 (1.50 to 1.50) | 1.50 |" in section
    assert "| online NG-SGD, 1 job | 0.43 | 0.62 | 1.45 |" in section
    assert "| SGD, 2 jobs | 0.16 | 0.35 | 2.19 |" in section
    assert "4 jobs |" not in section


def test_report_without_a_clock_says_so() -> None:
    (section,) = _sections_on_time(made_up_results(measured=()))
    assert "No run had a core for each of its jobs" in section


def _sections_on_time(results: JobCountResults) -> list[str]:
    body = JOBS.report(results.settings, results.found).body
    return [part for part in body if isinstance(part, str) and part.startswith("## Time")]
