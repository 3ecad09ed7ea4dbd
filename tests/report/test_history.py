from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from natgrad.report import read_run, read_runs
from natgrad.report.history import NUMBERS
from tests.report.made_runs import FINAL_LAYERS, MadeRun


def write_events(path: Path, *events: dict[str, Any]) -> Path:
    """Write events; the numbers that each needs, and is not given, are 0."""
    path.mkdir()
    whole = [{**dict.fromkeys(NUMBERS.get(e["event"], ()), 0), **e} for e in events]
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in whole))
    return path


def start(time: float, resumed_from: int | None = None, **fields: Any) -> dict[str, Any]:
    return {"time": time, "event": "start", "resumed_from": resumed_from, **fields}


def test_a_whole_run_is_read(tmp_path: Path) -> None:
    run = read_run(MadeRun(num_iterations=12).write(tmp_path / "run"))
    assert (run.name, run.state(), run.torn, run.num_resumed) == ("run", "complete", False, 0)
    assert list(run.iterations) == list(range(1, 13))
    assert list(run.diagnostics) == list(range(13))
    assert run.config["training"]["method"] == "online"
    assert run.layer_names() == list(FINAL_LAYERS)


def test_of_an_iteration_said_twice_the_last_counts(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "run",
        start(0.0),
        {"time": 1.0, "event": "job", "iteration": 1, "job": 0, "objective": -3.0},
        {"time": 2.0, "event": "iteration", "iteration": 1, "objective": -3.0},
        {"time": 3.0, "event": "warning", "iteration": 1, "message": "again"},
        start(10.0, 0),
        {"time": 11.0, "event": "job", "iteration": 1, "job": 0, "objective": -2.0},
        {"time": 12.0, "event": "iteration", "iteration": 1, "objective": -2.0},
        {"time": 13.0, "event": "warning", "iteration": 1, "message": "again"},
    )
    run = read_run(path)
    assert [event["objective"] for event in run.iterations.values()] == [-2.0]
    assert [event["objective"] for event in run.jobs[1]] == [-2.0]
    assert (run.num_resumed, run.num_repeated, len(run.warnings)) == (1, 1, 1)


def test_retries_from_before_a_resumption_do_not_count(tmp_path: Path) -> None:
    def retry(time: float) -> dict[str, Any]:
        return {"time": time, "event": "retry", "iteration": 1, "job": 0, "attempt": 1}

    path = write_events(tmp_path / "run", start(0.0), retry(1.0), retry(2.0), start(5.0, 0))
    assert len(read_run(path).retries[1]) == 2
    with open(path / "events.jsonl", "a") as file:
        file.write(json.dumps(retry(6.0)) + "\n")
    assert [event["time"] for event in read_run(path).retries[1]] == [6.0]


def test_pauses_do_not_count_as_running(tmp_path: Path) -> None:
    path = write_events(
        tmp_path / "run",
        start(100.0),
        {"time": 110.0, "event": "iteration", "iteration": 1},
        start(1000.0, 1),
        {"time": 1005.0, "event": "iteration", "iteration": 2},
        start(5000.0, 2),
    )
    run = read_run(path)
    times = (100.0, 105.0, 110.0, 500.0, 1000.0, 1005.0, 5000.0, 5001.0)
    assert [run.running_seconds(t) for t in times] == [0, 5, 10, 10, 10, 15, 15, 16]


def test_a_torn_last_line_is_ignored_and_told(tmp_path: Path) -> None:
    path = MadeRun(num_iterations=4).write(tmp_path / "run")
    whole = read_run(path)
    content = (path / "events.jsonl").read_bytes()
    (path / "events.jsonl").write_bytes(content[:-20])
    torn = read_run(path)
    assert torn.torn
    assert torn.end is None
    assert torn.iterations == whole.iterations


def test_state_tells_a_running_process_from_one_that_is_gone(tmp_path: Path) -> None:
    def state(name: str, *more: dict[str, Any], **fields: Any) -> str:
        return read_run(write_events(tmp_path / name, start(0.0, **fields), *more)).state()

    here = socket.gethostname()
    assert state("running", host=here, pid=os.getpid()) == "running"
    assert state("gone", host=here, pid=2**22 + 1) == "stopped"
    assert state("elsewhere", host="another-machine", pid=os.getpid()) == "unfinished"
    failed = {"time": 1.0, "event": "end", "status": "failed", "message": "disk"}
    assert state("failed", failed, host=here, pid=os.getpid()) == "failed"
    by_hand = {"time": 1.0, "event": "end", "status": "failed", "message": "KeyboardInterrupt"}
    assert state("by hand", by_hand, host=here, pid=os.getpid()) == "interrupted"
    again = start(2.0, 1, host=here, pid=os.getpid())
    assert state("resumed after it", failed, again) == "running"


def test_a_run_without_any_event_is_read(tmp_path: Path) -> None:
    run = read_run(write_events(tmp_path / "run"))
    assert (run.iterations, run.state(), run.config) == ({}, "unfinished", {})


def test_agreement_of_jobs_is_by_iteration_and_by_layer(tmp_path: Path) -> None:
    def iteration(number: int, **fields: Any) -> dict[str, Any]:
        return {"time": 1.0, "event": "iteration", "iteration": number, **fields}

    path = write_events(
        tmp_path / "run",
        iteration(1),  # one job
        iteration(2, cosine=0.5, layer_cosines={"a": 0.4, "b": None}),
        iteration(3, cosine=None, layer_cosines={"a": None, "c": 0.1}),
    )
    run = read_run(path)
    assert run.cosines() == {2: 0.5}
    assert run.layer_cosines() == {"a": {2: 0.4}, "c": {3: 0.1}}


def test_runs_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    paths = [MadeRun(num_iterations=2).write(tmp_path / name / "run") for name in ("a", "b")]
    assert [run.name for run in read_runs(paths)] == ["a/run", "b/run"]
    with pytest.raises(ValueError, match="given twice"):
        read_runs([paths[0], paths[0] / ".." / "run"])


def test_what_is_not_a_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing is not a directory"):
        read_run(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match=r"has no events\.jsonl"):
        read_run(tmp_path)
    (tmp_path / "events.jsonl").write_text('{"time": 1}\n')
    with pytest.raises(ValueError, match=r"line 1 of .*events\.jsonl is not an event"):
        read_run(tmp_path)
    (tmp_path / "events.jsonl").write_text("")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        read_run(tmp_path)


def test_a_recipe_is_refused_with_the_runs_that_are_in_it(tmp_path: Path) -> None:
    stage = {"time": 1.0, "event": "stage", "name": "dnn", "number": 1, "num_stages": 1}
    recipe = write_events(tmp_path / "recipe", stage)
    with pytest.raises(ValueError, match=r"give the directory of one$"):
        read_run(recipe)
    run = MadeRun(num_iterations=2).write(recipe / "dnn" / "run")
    with pytest.raises(ValueError, match=f"not of a training run.* in it there are {run}$"):
        read_run(recipe)


@pytest.mark.parametrize("found", [None, "many"])
def test_an_event_without_a_number_that_it_needs_is_refused_by_its_line(
    tmp_path: Path, found: str | None
) -> None:
    event = {"time": 1.0, "event": "iteration", "iteration": 1, "samples": found}
    path = write_events(tmp_path / "run", start(0.0), event)
    with pytest.raises(
        ValueError, match=r'line 2 of .*events\.jsonl: expected a number as "samples"'
    ):
        read_run(path, "a name")


def test_a_run_has_the_name_that_it_is_given(tmp_path: Path) -> None:
    path = MadeRun(num_iterations=2).write(tmp_path / "run")
    assert read_run(path, "a name").name == "a name"
