"""What the engines on job managers do when jobs cannot run: they never wait for ever."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from natgrad.parallel.engines import WorkerLost
from natgrad.parallel.job_manager import GRIDENGINE, SLURM, JobManager
from tests.engines import tasks
from tests.engines.clusters import Cluster
from tests.engines.conftest import Opener, on_job_managers
from tests.engines.waiting import where


@on_job_managers
def test_job_that_is_refused_is_an_error_when_the_engine_is_opened(
    cluster: Cluster, open_this: Opener
) -> None:
    with pytest.raises(
        RuntimeError, match=rf"{cluster.name} refused a job(?s:.*)nowhere|partition"
    ):
        open_this(1, queue="nowhere")


@on_job_managers
def test_jobs_that_end_before_they_connect_are_an_error_with_what_they_wrote(
    open_this: Opener,
) -> None:
    with open_this(2, prologue=["echo no module of that name", "exit 1"]) as engine:
        future = engine.submit(tasks.double, 1)
        with pytest.raises(RuntimeError, match=r"(?s)none of them had a worker.*no module of that"):
            future.result()
        with pytest.raises(RuntimeError, match="none of them had a worker"):
            engine.submit(tasks.double, 1).result()


@on_job_managers
def test_worker_that_stands_still_is_lost_after_the_given_silence(
    open_this: Opener, tmp_path: Path
) -> None:
    with open_this(1, silence_seconds=8) as engine:
        future = engine.submit(tasks.hold, str(tmp_path / "1"))
        pid = where(tmp_path / "1")["pid"]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(WorkerLost, match=r"tasks\.hold"):
                future.result()
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert engine.submit(tasks.double, 1).result() == 2


@pytest.mark.parametrize(
    ("manager", "command"), [(SLURM, "sbatch"), (GRIDENGINE, "qsub")], ids=["slurm", "gridengine"]
)
def test_machine_that_cannot_submit_jobs_is_told_so(
    monkeypatch: pytest.MonkeyPatch, manager: JobManager, command: str
) -> None:
    monkeypatch.setenv("PATH", "")
    message = f"engine {manager.name} needs the command {command}, which is not in PATH"
    with pytest.raises(FileNotFoundError, match=message):
        manager.check()


def test_jobs_are_not_taken_for_ended_when_the_job_manager_does_not_answer() -> None:
    assert replace(SLURM, query=("false",)).list_live_jobs() is None


@on_job_managers
def test_opening_leaves_the_handling_of_ctrl_c_alone(open_this: Opener) -> None:
    before = signal.getsignal(signal.SIGINT)
    with open_this(1):
        assert signal.getsignal(signal.SIGINT) is before
