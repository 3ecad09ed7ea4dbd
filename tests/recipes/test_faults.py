"""Whatever is killed, and whenever: the final model has the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from natgrad.atomic import StorageError
from natgrad.parallel.engines import open_engine
from natgrad.parallel.outer import RunFailedError
from natgrad.recipes.train import train
from natgrad.run.config import to_mapping
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events
from natgrad.run.model_file import read_model
from tests.recipes.small_run import small_config, small_examples

NUM_JOB_KILLS = 44
NUM_DRIVER_KILLS = 8

DRIVER = """
import json, signal, sys
from natgrad.recipes.train import TrainConfig, train
from natgrad.run.config import from_mapping
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background jobs
train(from_mapping(TrainConfig, json.loads(sys.argv[1])))
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("faults") / "examples"
    small_examples(directory, num_vectors=12_000)
    return directory


@pytest.fixture(scope="module")
def undisturbed(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    run = tmp_path_factory.mktemp("undisturbed")
    return train(small_config(run, examples)).read_bytes()


def command(run: Path, examples: Path, **tables: dict[str, Any]) -> list[str]:
    engine = {"name": "local", "max_attempts": 1000}
    config = small_config(run, examples, engine=engine, **tables)
    return [sys.executable, "-c", DRIVER, json.dumps(to_mapping(config))]


def start_driver(run: Path, examples: Path, **tables: dict[str, Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(run, examples, **tables), stderr=subprocess.DEVNULL)


def children_of(pid: int) -> Iterator[int]:
    """The processes that a process has started; `ps` itself is not among them."""
    ps = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    for line in ps.stdout.splitlines():
        child, parent = map(int, line.split())
        if parent == pid:
            yield child


def test_final_model_is_the_same_after_many_kills(
    examples: Path, undisturbed: bytes, tmp_path: Path
) -> None:
    """Workers (of jobs and of diagnostics) and the driver are killed at random instants."""
    instants = random.Random(5)
    num_job_kills = num_driver_kills = 0
    driver = start_driver(tmp_path, examples)
    while driver.poll() is None:
        time.sleep(instants.uniform(0.05, 0.9))
        if num_driver_kills < NUM_DRIVER_KILLS and instants.random() < 0.2:
            driver.kill()
            num_driver_kills += driver.wait() == -signal.SIGKILL
            driver = start_driver(tmp_path, examples)
        elif num_job_kills < NUM_JOB_KILLS:
            workers = list(children_of(driver.pid))
            if workers:
                os.kill(instants.choice(workers), signal.SIGKILL)
                num_job_kills += 1
    assert driver.returncode == 0
    assert num_job_kills + num_driver_kills >= 50
    assert (tmp_path / "final.safetensors").read_bytes() == undisturbed
    events = read_events(tmp_path / "events.jsonl")
    assert any(event["event"] == "retry" for event in events)
    assert {path.name for path in tmp_path.rglob("*.part")} == set()


def test_final_model_with_momentum_and_kept_factors_is_the_same_after_kills_of_the_driver(
    examples: Path, tmp_path: Path
) -> None:
    outer = {"momentum": 0.5, "job_lr_power": 0.5, "fisher": "kept"}
    training = {"num_epochs": 1}
    config = small_config(tmp_path / "whole", examples, outer=outer, training=training)
    undisturbed = train(config).read_bytes()
    run = RunDirectory(tmp_path / "run")
    instants = random.Random(7)
    kills_after = [0, 2, 3, 7, 11]  # iterations; a layer is grown before the third
    driver = start_driver(run.path, examples, outer=outer, training=training)
    while driver.poll() is None:
        if kills_after and (run.last_iteration() or 0) >= kills_after[0]:
            time.sleep(instants.uniform(0.0, 0.1))
            driver.kill()
            if driver.wait() == -signal.SIGKILL:
                kills_after.pop(0)
            driver = start_driver(run.path, examples, outer=outer, training=training)
        time.sleep(0.005)
    assert driver.returncode == 0
    assert kills_after == []
    assert run.final.read_bytes() == undisturbed


class Twice(Executor):
    """An engine that runs every call twice, and gives the result of either.

    As when a scheduler takes a node for dead and starts its job again elsewhere.
    """

    def __init__(self, engine: Executor) -> None:
        self.engine = engine

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        copies = [self.engine.submit(fn, *args, **kwargs) for _ in range(2)]
        wait(copies, return_when=FIRST_COMPLETED)
        return next(copy for copy in copies if copy.done())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.engine.shutdown(wait, cancel_futures=cancel_futures)


@pytest.mark.parametrize("outer", [{}, {"momentum": 0.5, "fisher": "kept"}], ids=["mean", "outer"])
def test_job_that_runs_twice_does_no_harm(
    examples: Path, outer: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = train(small_config(tmp_path / "once", examples, outer=outer))

    def open_twice(name: str, num_workers: int, **options: Any) -> Executor:
        return Twice(open_engine("local", 3))

    monkeypatch.setattr("natgrad.recipes.train.open_engine", open_twice)
    twice = train(small_config(tmp_path / "twice", examples, outer=outer))
    assert twice.read_bytes() == once.read_bytes()


def test_workers_end_with_a_killed_driver(examples: Path, tmp_path: Path) -> None:
    with start_driver(tmp_path, examples) as driver:
        workers: list[int] = []
        while len(workers) < 3:
            time.sleep(0.05)
            workers = list(children_of(driver.pid))
        driver.kill()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline, "a worker outlives its driver"
        time.sleep(0.05)


def test_second_driver_in_a_run_directory_refuses_to_start(examples: Path, tmp_path: Path) -> None:
    with RunDirectory(tmp_path).drive():
        second = subprocess.run(
            command(tmp_path, examples), capture_output=True, text=True, check=False
        )
    assert second.returncode != 0
    assert f"is in use by process {os.getpid()} on " in second.stderr


def test_driver_that_is_interrupted_says_so_in_the_events(examples: Path, tmp_path: Path) -> None:
    with start_driver(tmp_path, examples) as driver:
        while not (tmp_path / "models" / "0002.safetensors").exists():
            time.sleep(0.05)
        driver.send_signal(signal.SIGINT)
    last = read_events(tmp_path / "events.jsonl")[-1]
    assert (last["event"], last["status"], last["message"]) == (
        "end",
        "failed",
        "KeyboardInterrupt",
    )


def test_run_whose_disk_was_full_goes_on_when_there_is_room(
    examples: Path, undisturbed: bytes, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"

    def fill(event: dict[str, Any]) -> None:
        if event["event"] == "iteration" and event["iteration"] == 3:
            with suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))

    config = small_config(small_disk / "run", examples)
    with pytest.raises(StorageError, match=r"0003\.safetensors: No space left on device.*again"):
        train(config, on_event=fill)
    run = RunDirectory(small_disk / "run")
    assert run.last_iteration() == 2
    assert read_model(run.model(2))
    ballast.unlink()
    assert train(config).read_bytes() == undisturbed


def test_job_without_room_for_its_parameters_ends_the_run_with_a_clear_error(
    examples: Path, small_disk: Path
) -> None:
    shape = {"hidden": [[2000, 200]], "initial_num_hidden": 1}
    config = small_config(small_disk / "run", examples, network=shape)
    with pytest.raises((RunFailedError, StorageError), match="No space left on device"):
        train(config)
