"""One call at a time on a worker that is a job of a job manager, reached by Dask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from natgrad.parallel.call import WorkerLost, run_call

LOOK_SECONDS = 0.1
# After how long it is asked whether the worker is still there, while an outcome is on its way.
FETCH_SECONDS = 60.0


class ConnectedWorkers:
    """Which workers are connected, and which of them are free.

    Dask itself would give two calls to one worker, if only one is there yet: the second would wait
    behind the first when others have come, and be lost with it.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._taken: set[str] = set()

    def take(self) -> str | None:
        """Take a free worker and return its address; None if there is none."""
        with self._lock:
            connected = list(self._scheduler.workers.values())
            free = [w.address for w in connected if w.status.name == "running"]
            address = next((each for each in free if each not in self._taken), None)
            if address is not None:
                self._taken.add(address)
            return address

    def give_back(self, address: str) -> None:
        """Make a worker free again."""
        with self._lock:
            self._taken.discard(address)

    def has(self, address: str) -> bool:
        """Return whether a worker is connected."""
        return address in self._scheduler.workers


class BatchWorker:
    """The right to run one call at a time, on whichever worker is free.

    Args:
        client: of Dask.
        connected: the workers.
        problem: returns why no worker will come any more, or None.
    """

    def __init__(
        self, client: Any, connected: ConnectedWorkers, problem: Callable[[], str | None]
    ) -> None:
        self._client = client
        self._connected = connected
        self._problem = problem
        self._is_killed = threading.Event()

    def run(self, call: bytes, name: str) -> bytes:
        """Run a packed call; raise WorkerLost if its worker is lost."""
        while (address := self._connected.take()) is None:
            if self._is_killed.wait(LOOK_SECONDS):
                raise WorkerLost(f"the engine was stopped before it ran {name}")
            if (problem := self._problem()) is not None:
                raise RuntimeError(problem)
        try:
            return self._run_at(address, call, name)
        finally:
            self._connected.give_back(address)

    def _run_at(self, address: str, call: bytes, name: str) -> bytes:
        from distributed import KilledWorker

        lost = f"the worker at {address} was lost while it ran {name}"
        future = self._client.submit(run_call, call, workers=[address], pure=False)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(LOOK_SECONDS):
                if self._is_killed.is_set():
                    raise WorkerLost(f"the engine was stopped while it ran {name}")
                if not self._connected.has(address):
                    raise WorkerLost(lost)
            return self._fetch(future, address)
        except (KilledWorker, CancelledError, TimeoutError) as error:
            raise WorkerLost(lost) from error
        finally:
            future.cancel()

    def _fetch(self, future: Any, address: str) -> bytes:
        while True:
            try:
                outcome: bytes = future.result(timeout=FETCH_SECONDS)
                return outcome
            except TimeoutError:
                if not self._connected.has(address):
                    raise

    def is_alive(self) -> bool:
        """Return True: jobs that end are replaced by their keeper."""
        return True

    def kill(self) -> None:
        """Give up the call that runs; the job is deleted when the engine is closed."""
        self._is_killed.set()

    def close(self) -> None:
        """Do nothing: the jobs belong to all workers together."""
