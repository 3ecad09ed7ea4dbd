from __future__ import annotations

from pathlib import Path

import pytest

from natgrad.report import read_run
from natgrad.report.layers import limited_shares, relative_changes, spectra
from natgrad.report.timing import iteration_timings, waiting_share
from tests.report.made_runs import FINAL_LAYERS, MadeRun
from tests.report.test_history import start, write_events


def test_stragglers_retries_and_left_out_jobs_are_found(tmp_path: Path) -> None:
    run = read_run(MadeRun(num_iterations=24, num_jobs=(3, 3)).write(tmp_path / "run"))
    kinds = {
        (timing.iteration, bar.job): bar.kind
        for timing in iteration_timings(run)
        for bar in timing.bars
        if bar.kind != "usual"
    }
    slow = {(i, 1): "slow" for i in (3, 11, 19)}
    left_out = {(i, 1): "left-out" for i in (5, 14, 23)}
    assert kinds == slow | left_out
    again = [(t.iteration, b.job) for t in iteration_timings(run) for b in t.bars if b.attempt > 1]
    assert again == [(i, 0) for i in (2, 8, 14, 20)]
    assert all(len(t.losses) == (t.iteration in (2, 8, 14, 20)) for t in iteration_timings(run))


def test_an_iteration_under_way_has_no_end(tmp_path: Path) -> None:
    run = read_run(MadeRun(num_iterations=24, stop_after=6).write(tmp_path / "run"))
    timings = iteration_timings(run)
    assert timings[-1].iteration == 6
    assert timings[-1].end is None
    assert timings[-2].end == pytest.approx(timings[-1].begin, abs=1.0)


def test_waiting_is_what_is_left_of_the_places_time(tmp_path: Path) -> None:
    def job(number: int, seconds: float) -> dict[str, object]:
        return {"time": 10.0, "event": "job", "iteration": 1, "job": number, "seconds": seconds}

    done = {"time": 10.0, "event": "iteration", "iteration": 1, "seconds": 10.0}
    run = read_run(write_events(tmp_path / "run", start(0.0), job(0, 9.0), job(1, 6.0), done))
    assert waiting_share(run) == pytest.approx(1 - 15 / 20)
    assert waiting_share(read_run(write_events(tmp_path / "new", start(0.0)))) is None


def test_layers_tell_their_shares_changes_and_spectra(tmp_path: Path) -> None:
    run = read_run(MadeRun(num_iterations=12).write(tmp_path / "run"))
    shares = limited_shares(run)
    assert list(shares) == list(FINAL_LAYERS)
    assert min(shares["hidden.2.linear"]) == 6  # as it was grown
    jobs = [job["layers"]["output"] for job in run.jobs[3]]
    expected = sum(j["num_limited"] for j in jobs) / sum(j["num_minibatches"] for j in jobs)
    assert shares["output"][3] == expected
    assert relative_changes(run)["hidden.0.linear"][12] == pytest.approx(0.03)
    assert len(spectra(run, "removed_in")["output"][12]) == 20
    assert len(spectra(run, "removed_out")["output"][12]) == 80


def test_spectra_are_means_over_the_jobs_that_are_used_and_whole(tmp_path: Path) -> None:
    def job(number: int, accepted: bool, removed: list[float | None]) -> dict[str, object]:
        layers = {"output": {"num_minibatches": 1, "num_limited": 0, "removed_in": removed}}
        fields = {"iteration": 1, "job": number, "accepted": accepted, "layers": layers}
        return {"time": 1.0, "event": "job", **fields}

    path = write_events(
        tmp_path / "run",
        job(0, True, [0.8, 0.4]),
        job(1, True, [0.6, 0.2]),
        job(2, True, [0.9]),
        job(3, False, [0.0, 0.0]),
        job(4, True, [None, 0.3]),  # not finite
    )
    assert spectra(read_run(path), "removed_in") == {"output": {1: pytest.approx([0.7, 0.3])}}
    assert spectra(read_run(path), "removed_out") == {}


def test_layers_that_never_change_are_left_out(tmp_path: Path) -> None:
    change = {"input_transform": 0.0, "output": 0.1, "hidden.0.linear": None}
    event = {"time": 1.0, "event": "iteration", "iteration": 1, "change": change}
    run = read_run(write_events(tmp_path / "run", event))
    assert relative_changes(run) == {"output": {1: 0.1}}
