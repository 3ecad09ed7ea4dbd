"""The promises of every engine about its end."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from natgrad.parallel.engines import WorkerLost
from tests.engines import tasks
from tests.engines.clusters import Cluster
from tests.engines.conftest import Opener, on_all, outside
from tests.engines.waiting import is_running, release, wait_until_gone, where


@on_all
def test_nothing_can_be_submitted_after_shutdown(open_this: Opener) -> None:
    engine = open_this(1)
    future = engine.submit(tasks.double, 3)
    engine.shutdown()
    assert future.result() == 6
    with pytest.raises(RuntimeError, match="after its shutdown"):
        engine.submit(tasks.double, 1)
    engine.shutdown()


@outside
def test_shutdown_ends_all_processes_and_cancels_what_is_queued(
    open_this: Opener, tmp_path: Path
) -> None:
    with open_this() as engine:
        running = [engine.submit(tasks.hold, str(tmp_path / name)) for name in ("1", "2")]
        queued = [engine.submit(tasks.double, number) for number in range(5)]
        pids = [where(tmp_path / name)["pid"] for name in ("1", "2")]
        engine.shutdown(wait=False, cancel_futures=True)
        assert all(future.cancelled() for future in queued)
        for name in ("1", "2"):
            release(tmp_path / name)
    assert [future.result() for future in running] == [str(tmp_path / "1"), str(tmp_path / "2")]
    wait_until_gone(pids)


@outside
def test_exception_that_leaves_the_with_block_ends_what_is_running(
    open_this: Opener, tmp_path: Path
) -> None:
    def interrupted() -> None:
        with open_this() as engine:
            futures.append(engine.submit(tasks.hold, str(tmp_path / "1")))
            pids.append(where(tmp_path / "1")["pid"])
            raise KeyboardInterrupt

    futures: list[Future[str]] = []
    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(WorkerLost):
        futures[0].result()
    wait_until_gone(pids)


DRIVER = """
import sys, time
from natgrad.parallel.engines import open_engine
from tests.engines import tasks
engine = open_engine(sys.argv[1], 2, **eval(sys.argv[2]))
futures = [engine.submit(tasks.hold, place) for place in sys.argv[3:]]
time.sleep(600)
"""


@outside
def test_workers_end_when_the_driver_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    places = [tmp_path / "1", tmp_path / "2"]
    command = [sys.executable, "-c", DRIVER, cluster.name, repr(cluster.options), *map(str, places)]
    driver = subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    )
    try:
        pids = [where(place)["pid"] for place in places]
        assert all(map(is_running, pids))
    finally:
        driver.kill()
        driver.wait()
    wait_until_gone(pids)
