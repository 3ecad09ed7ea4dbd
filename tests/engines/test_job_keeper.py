"""What the keeper of jobs promises about its end, with a cluster that submits as slowly as we want.

That it replaces lost jobs is tested on real job managers: test_contract.py, test_job_managers.py.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from natgrad.parallel import job_keeper
from natgrad.parallel.job_keeper import JobKeeper
from natgrad.parallel.job_manager import JobManager


class SlowCluster:
    """As much of a cluster of dask-jobqueue as the keeper uses; no worker ever connects to it."""

    def __init__(self) -> None:
        self.scheduler = SimpleNamespace(workers={})
        self.worker_spec: dict[str, None] = {}
        self.workers: dict[str, Any] = {}
        self.is_submitting = threading.Event()
        self.may_submit = threading.Event()
        self.may_submit.set()
        self.num_submitted = 0

    def sync(self, step: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Any:
        return asyncio.run(step(*arguments))

    def new_worker_spec(self) -> dict[str, None]:
        return {f"worker-{len(self.worker_spec)}": None}

    def __await__(self) -> Generator[None, None, None]:
        self.is_submitting.set()
        self.may_submit.wait()
        self.num_submitted += 1
        return
        yield


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> SlowCluster:
    monkeypatch.setattr(job_keeper, "FIRST_LOOK_SECONDS", 0.01)
    return SlowCluster()


def started(cluster: SlowCluster, tmp_path: Path) -> JobKeeper:
    manager = JobManager("echo", "true", ("echo",), lambda _printed: set())
    keeper = JobKeeper(cluster, manager, num_jobs=1, logs=tmp_path)
    keeper.start()
    return keeper


def test_stopping_waits_for_what_is_being_submitted(cluster: SlowCluster, tmp_path: Path) -> None:
    keeper = started(cluster, tmp_path)
    cluster.is_submitting.clear()
    cluster.may_submit.clear()
    assert cluster.is_submitting.wait(60)
    stopping = threading.Thread(target=keeper.stop)
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    cluster.may_submit.set()
    stopping.join(60)
    assert not stopping.is_alive()


def test_nothing_is_submitted_after_stopping(cluster: SlowCluster, tmp_path: Path) -> None:
    keeper = started(cluster, tmp_path)
    keeper.stop()
    num_submitted = cluster.num_submitted
    cluster.is_submitting.clear()
    assert not cluster.is_submitting.wait(0.3)
    assert cluster.num_submitted == num_submitted >= 1
