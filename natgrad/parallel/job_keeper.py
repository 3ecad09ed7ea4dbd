"""Keeps a number of a job manager's jobs submitted, whatever happens to them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from natgrad.parallel.job_manager import JobManager

# While workers are missing, their jobs are looked at after so many seconds: longer and longer.
FIRST_LOOK_SECONDS = 5.0
LAST_LOOK_SECONDS = 60.0
# So many jobs may end with no worker being connected: then something is wrong with all of them.
MAX_FRUITLESS_JOBS = 3
NUM_LOG_LINES = 10


class JobKeeper:
    """Submits jobs by a cluster of dask-jobqueue, and submits new ones for those that have ended.

    dask-jobqueue by itself forgets a job that was lost after its worker had connected, and does not
    see it when a job ends before that. A run must neither wait for ever, nor go on with fewer
    workers and say nothing.
    """

    def __init__(self, cluster: Any, manager: JobManager, num_jobs: int, logs: Path) -> None:
        self._cluster = cluster
        self._manager = manager
        self._num_jobs = num_jobs
        self._logs = logs
        self._num_fruitless = 0
        self._is_stopping = threading.Event()
        self._replacing = threading.Lock()
        self.problem: str | None = None  # why no worker will come any more

    def start(self) -> None:
        """Submit all jobs, and watch them from now on; raise RuntimeError if one is refused."""
        self._cluster.sync(self._submit_missing)
        threading.Thread(target=self._watch, name="natgrad-jobs", daemon=True).start()

    def stop(self) -> None:
        """Submit no more: what is being submitted now, is when this returns."""
        self._is_stopping.set()
        with self._replacing:  # else a job might be left, of a cluster that is closed
            pass

    def _watch(self) -> None:
        pause = FIRST_LOOK_SECONDS
        while self.problem is None and not self._is_stopping.wait(pause):
            if not self._missing():
                pause, self._num_fruitless = FIRST_LOOK_SECONDS, 0
                continue
            pause = min(2 * pause, LAST_LOOK_SECONDS)
            live = self._manager.list_live_jobs()
            with self._replacing:
                if live is not None and not self._is_stopping.is_set():
                    self._replace_ended(live)

    def _connected(self) -> set[str]:
        return {worker.name for worker in list(self._cluster.scheduler.workers.values())}

    def _missing(self) -> set[str]:
        return set(self._cluster.worker_spec) - self._connected()

    def _replace_ended(self, live: set[str]) -> None:
        ended = self._cluster.sync(self._remove_ended, live)
        self._num_fruitless = 0 if self._connected() else self._num_fruitless + len(ended)
        try:
            self._cluster.sync(self._submit_missing)
            refusal = ""
        except RuntimeError as error:
            refusal = str(error)
        if self._num_fruitless >= MAX_FRUITLESS_JOBS:
            self.problem = (
                f"{self._num_fruitless} jobs of {self._manager.name} ended, one after the other, "
                f"and none of them had a worker that reached this process: see {self._logs}. "
                f"{refusal or self._end_of_log(ended)}"
            )

    async def _remove_ended(self, live: set[str]) -> list[str | None]:
        jobs = self._cluster.workers
        names = [name for name in self._missing() if name in jobs]
        ended = [jobs.pop(name) for name in names if jobs[name].job_id not in live]
        for job in ended:
            await job.close()  # one in an error state is still in the queue
        return [job.job_id for job in ended]

    async def _submit_missing(self) -> None:
        while len(self._cluster.worker_spec) < self._num_jobs:
            self._cluster.worker_spec.update(self._cluster.new_worker_spec())
        try:
            await self._cluster
        except RuntimeError as error:
            refused = [job for job in self._cluster.workers.values() if job.job_id is None]
            for job in refused:
                job.status = type(job.status).failed  # else closing the cluster fails as well
            raise RuntimeError(f"{self._manager.name} refused a job: {error}") from error

    def _end_of_log(self, job_ids: list[str | None]) -> str:
        for job_id in job_ids:
            for file in sorted(self._logs.glob(f"*[!0-9]{job_id}*")):
                lines = file.read_text(errors="replace").splitlines()[-NUM_LOG_LINES:]
                if lines:
                    return "\n".join([f"The last lines of {file.name}:", *lines])
        return "They wrote nothing."
