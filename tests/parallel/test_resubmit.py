from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from typing import Any

import pytest

from natgrad.parallel.engines import WorkerLost, open_engine
from natgrad.parallel.resubmit import Resubmitting
from tests.engines import tasks
from tests.engines.waiting import release, wait_until, where

PATIENCE_SECONDS = 120.0


class Counting(Executor):
    """Hands calls on, and counts them."""

    def __init__(self, engine: Executor) -> None:
        self.engine = engine
        self.num_calls = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.num_calls += 1
        return self.engine.submit(fn, *args, **kwargs)


@pytest.fixture(scope="module")
def local() -> Iterator[Executor]:
    with open_engine("local", 1) as engine:
        yield engine


@pytest.fixture
def engine(local: Executor) -> Counting:
    return Counting(local)


def test_call_whose_worker_is_killed_is_made_again(engine: Counting, tmp_path: Path) -> None:
    place = tmp_path / "1"
    future = Resubmitting(engine).submit(tasks.hold, str(place))
    first = where(place)["pid"]
    place.unlink()
    os.kill(first, signal.SIGKILL)
    second = where(place)["pid"]
    assert second != first
    assert not future.done()
    release(place)
    assert future.result(PATIENCE_SECONDS) == str(place)
    assert engine.num_calls == 2


def test_other_calls_come_to_their_ends_while_one_is_lost(engine: Counting, tmp_path: Path) -> None:
    executor = Resubmitting(engine)
    place = tmp_path / "1"
    held = executor.submit(tasks.hold, str(place))
    others = [executor.submit(tasks.double, number) for number in range(5)]
    os.kill(where(place)["pid"], signal.SIGKILL)
    release(place)
    assert [future.result(PATIENCE_SECONDS) for future in others] == [0, 2, 4, 6, 8]
    assert held.result(PATIENCE_SECONDS) == str(place)
    assert engine.num_calls == 7


def test_call_that_always_loses_its_worker_fails_after_the_attempts(engine: Counting) -> None:
    executor = Resubmitting(engine, max_attempts=3)
    future = executor.submit(signal.raise_signal, signal.SIGKILL)
    with pytest.raises(WorkerLost, match="was ended by signal 9"):
        future.result(PATIENCE_SECONDS)
    assert engine.num_calls == 3
    assert executor.submit(tasks.double, 4).result(PATIENCE_SECONDS) == 8


def test_call_that_fails_by_itself_is_not_made_again(engine: Counting) -> None:
    future = Resubmitting(engine).submit(tasks.fail, "the reason")
    with pytest.raises(KeyError, match="the reason"):
        future.result(PATIENCE_SECONDS)
    assert engine.num_calls == 1


def test_call_that_cannot_be_sent_is_refused_at_once(engine: Counting) -> None:
    with pytest.raises(Exception, match="cannot be sent"):
        Resubmitting(engine).submit(tasks.double, lambda: 1)  # type: ignore[arg-type]


def test_call_that_is_lost_while_the_engine_shuts_down_has_an_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_engine("local", 1) as engine:
        future = Resubmitting(engine).submit(tasks.hold, str(tmp_path / "1"))
        pid = where(tmp_path / "1")["pid"]
        engine.shutdown(wait=False)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            future.result(PATIENCE_SECONDS)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_calls_of_an_engine_that_is_left_by_an_exception_have_an_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    futures: list[Future[Any]] = []

    def interrupted() -> None:
        with open_engine("local", 1) as engine:
            executor = Resubmitting(engine)
            futures.append(executor.submit(tasks.hold, str(tmp_path / "1")))
            futures.append(executor.submit(tasks.double, 1))
            wait_until((tmp_path / "1").exists, "the first call runs")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(WorkerLost):
        futures[0].result(PATIENCE_SECONDS)
    with pytest.raises(CancelledError):
        futures[1].result(PATIENCE_SECONDS)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
