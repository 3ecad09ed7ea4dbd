"""What only the local engine promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from natgrad.parallel.engines import WorkerLost, open_engine
from tests.engines import tasks
from tests.engines.waiting import is_running, wait_until, where

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[Executor]:
    with open_engine("local", 1, nice=3) as opened:
        yield opened


def children() -> set[int]:
    """The processes that this one has started, and not reaped."""
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(pid) for file in found for pid in file.read_text().split()}


def test_workers_are_as_nice_as_asked(engine: Executor) -> None:
    assert engine.submit(tasks.niceness).result() == os.nice(0) + 3


def test_lost_worker_is_named_with_its_signal_and_its_call(
    engine: Executor, tmp_path: Path
) -> None:
    future = engine.submit(tasks.hold, str(tmp_path / "1"))
    pid = where(tmp_path / "1")["pid"]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(
        WorkerLost, match=rf"{pid} was ended by signal 9 .* in tests.engines.tasks.hold"
    ) as lost:
        future.result()
    assert (lost.value.pid, lost.value.signal) == (pid, signal.SIGKILL)
    assert pid not in children()


def test_worker_that_dies_idle_costs_no_call(engine: Executor) -> None:
    pid = engine.submit(os.getpid).result()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in children(), "the dead worker is reaped")
    assert engine.submit(os.getpid).result() != pid


def test_worker_that_dies_is_missed_even_if_its_child_holds_the_connection(
    engine: Executor, tmp_path: Path
) -> None:
    future = engine.submit(tasks.leave_child_behind_and_hold, str(tmp_path / "1"))
    os.kill(where(tmp_path / "1")["pid"], signal.SIGKILL)
    with pytest.raises(WorkerLost):
        future.result()


SCRIPT = """
import sys
from natgrad.parallel.engines import open_engine
from tests.engines import tasks

print("the script runs")

def mine():
    pass

with open_engine("local", 2) as engine:
    engine.submit(tasks.say, "a worker speaks").result()
    print(engine.submit(tasks.double, 21).result())
    try:
        engine.submit(mine)
    except Exception as error:
        print(error)
forgotten = open_engine("local", 1).submit(tasks.hold, sys.argv[1])
while not forgotten.running():
    pass
"""


def test_script_without_a_main_guard_works_and_ends_without_a_shutdown(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-u", "-W", "error", script, tmp_path / "1"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[:3] == ["the script runs", "a worker speaks", "42"]
    assert "mine is defined in the main script" in done.stdout
    assert "move it to a module" in done.stdout
    assert done.stdout.count("the script runs") == 1
    assert done.stderr == ""


def test_engine_that_is_dropped_finishes_its_calls_and_ends_its_workers() -> None:
    before = children()
    engine = open_engine("local", 1)
    future = engine.submit(os.getpid)
    del engine
    pid = future.result()
    wait_until(lambda: not is_running(pid), "the worker of the dropped engine has ended")
    wait_until(lambda: children() <= before, "it is reaped")
