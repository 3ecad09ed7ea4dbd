"""The promises of every engine, in one list."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from concurrent.futures import Executor, as_completed, wait
from pathlib import Path

import pytest

from natgrad.parallel.engines import WorkerLost
from tests.engines import tasks
from tests.engines.clusters import Cluster
from tests.engines.conftest import on_all, on_clusters, outside
from tests.engines.waiting import release, where

# -- results and exceptions --------------------------------------------------------------------


@on_all
def test_each_future_has_the_result_of_its_own_call(engine: Executor) -> None:
    futures = [engine.submit(tasks.double, number) for number in range(200)]
    assert [future.result() for future in reversed(futures)] == [2 * n for n in range(199, -1, -1)]


@on_all
def test_futures_are_those_that_the_standard_library_waits_for(engine: Executor) -> None:
    futures = [engine.submit(tasks.double, number) for number in range(6)]
    assert wait(futures).not_done == set()
    assert sorted(future.result() for future in as_completed(futures)) == [0, 2, 4, 6, 8, 10]
    assert list(engine.map(tasks.double, range(3))) == [0, 2, 4]


@on_all
def test_large_argument_and_result_arrive_unchanged(engine: Executor) -> None:
    content = os.urandom(1 << 16) * (20 << 4)  # 20 MiB
    assert engine.submit(tasks.echo, content).result() == content


@on_all
def test_exception_of_a_call_comes_back_and_the_engine_works_on(engine: Executor) -> None:
    future = engine.submit(tasks.fail, "what failed")
    with pytest.raises(KeyError, match="what failed"):
        future.result()
    assert engine.submit(tasks.double, 4).result() == 8


@outside
def test_exception_shows_where_in_the_worker_it_was_raised(engine: Executor) -> None:
    error = engine.submit(tasks.fail, "what failed").exception()
    assert error is not None
    assert "raise KeyError(message)" in str(error.__cause__)


@outside
def test_exception_that_cannot_travel_still_tells_its_message(engine: Executor) -> None:
    with pytest.raises(RuntimeError, match="AwkwardError: salt and pepper"):
        engine.submit(tasks.fail_awkwardly).result()


@outside
def test_result_that_cannot_travel_is_an_error_and_not_a_lost_worker(engine: Executor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        engine.submit(tasks.return_a_lock).result()


@outside
def test_argument_that_cannot_travel_is_refused_when_submitted(engine: Executor) -> None:
    with pytest.raises(pickle.PicklingError, match=r"tasks\.double .* cannot be sent"):
        engine.submit(tasks.double, threading.Lock())  # type: ignore[arg-type]


@outside
def test_call_that_exits_ends_neither_the_worker_nor_the_engine(engine: Executor) -> None:
    with pytest.raises(SystemExit):
        engine.submit(tasks.leave).result()
    assert engine.submit(tasks.double, 1).result() == 2


@outside
def test_workers_have_one_thread_for_linear_algebra(engine: Executor) -> None:
    assert engine.submit(tasks.num_torch_threads).result() == 1


@outside
def test_cancelled_call_does_not_run(engine: Executor, tmp_path: Path) -> None:
    running = [engine.submit(tasks.hold, str(tmp_path / str(number))) for number in range(2)]
    queued = engine.submit(tasks.hold, str(tmp_path / "queued"))
    assert queued.cancel()
    for number in range(2):
        release(tmp_path / str(number))
    wait(running)
    assert engine.submit(tasks.double, 1).result() == 2
    assert not (tmp_path / "queued").exists()


# -- lost workers ------------------------------------------------------------------------------


@outside
def test_killed_worker_costs_only_the_call_that_it_ran(engine: Executor, tmp_path: Path) -> None:
    doomed, other = (engine.submit(tasks.hold, str(tmp_path / name)) for name in ("1", "2"))
    where(tmp_path / "2")
    os.kill(where(tmp_path / "1")["pid"], signal.SIGKILL)
    with pytest.raises(WorkerLost, match=r"tasks\.hold"):
        doomed.result()
    assert not other.done()
    release(tmp_path / "2")
    assert other.result() == str(tmp_path / "2")
    check_that_two_calls_run_at_once(engine, tmp_path)


@on_clusters
def test_deleted_job_is_replaced(cluster: Cluster, engine: Executor, tmp_path: Path) -> None:
    doomed, other = (engine.submit(tasks.hold, str(tmp_path / name)) for name in ("1", "2"))
    where(tmp_path / "2")
    cluster.kill_job(where(tmp_path / "1"))
    with pytest.raises(WorkerLost, match=r"tasks\.hold"):
        doomed.result()
    release(tmp_path / "2")
    assert other.result() == str(tmp_path / "2")
    check_that_two_calls_run_at_once(engine, tmp_path)


@on_clusters
def test_dead_node_costs_only_the_calls_that_it_ran(
    cluster: Cluster, engine: Executor, tmp_path: Path
) -> None:
    futures = [engine.submit(tasks.hold, str(tmp_path / name)) for name in ("1", "2")]
    told = where(tmp_path / "1")
    where(tmp_path / "2")
    cluster.kill_node(told)
    with pytest.raises(WorkerLost, match=r"tasks\.hold"):
        futures[0].result()
    cluster.restore_node(told)
    release(tmp_path / "2")
    wait(futures)
    check_that_two_calls_run_at_once(engine, tmp_path)


def check_that_two_calls_run_at_once(engine: Executor, directory: Path) -> None:
    futures = [engine.submit(tasks.hold, str(directory / name)) for name in ("3", "4")]
    pids = {where(directory / name)["pid"] for name in ("3", "4")}
    for name in ("3", "4"):
        release(directory / name)
    assert [future.result() for future in futures] == [str(directory / "3"), str(directory / "4")]
    assert len(pids) == 2
