"""The engine ray: each call is a task of a Ray cluster, one that exists or a local one."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any

from natgrad.parallel.call import WorkerLost, run_call
from natgrad.parallel.extras import needed_by
from natgrad.parallel.slots import SlotExecutor


def open_ray(
    num_workers: int,
    *,
    address: str | None = None,
    num_cpus: int = 1,
    runtime_env: Mapping[str, Any] | None = None,
) -> Executor:
    """Open tasks of Ray, at most `num_workers` at a time.

    If this process is connected to Ray already, that connection is used, and left open.

    Args:
        num_workers: how many calls run at the same time.
        address: of a cluster, as "auto" for the one of this machine or "10.0.0.1:6379"; None starts
            a cluster of this machine alone, which ends with the engine.
        num_cpus: of each call: as many as it has threads.
        runtime_env: what Ray prepares for the calls, in Ray's own terms.
    """
    with needed_by("ray", "ray"):
        import ray

    task = ray.remote(num_cpus=num_cpus, max_retries=0)(run_call)
    options: dict[str, Any] = {"address": address, "runtime_env": dict(runtime_env or {})}
    if address is None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options |= {"address": "local", "num_cpus": num_workers * num_cpus}
        options["include_dashboard"] = False
    CONNECTION.open(options)
    return SlotExecutor(num_workers, lambda: RayWorker(task), CONNECTION.close)


class Connection:
    """The one connection to Ray that a process can have: shared by its engines, closed by the last.

    One that somebody else has made is used, and left open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._options: dict[str, Any] = {}
        self._num_users = 0
        self._is_ours = False

    def open(self, options: dict[str, Any]) -> None:
        """Connect, or join in; raise ValueError if the connection that exists is another one."""
        import ray

        with self._lock:
            if not ray.is_initialized():
                ray.init(**options, configure_logging=False)
                self._options, self._is_ours, self._num_users = options, True, 0
            elif self._is_ours and options != self._options:
                raise ValueError(
                    f"this process is connected to Ray with {self._options}, and a process has one "
                    f"connection only: end that engine before you open one with {options}"
                )
            elif not self._is_ours:
                _check_that_they_hold(options, ray.get_runtime_context().gcs_address)
            self._num_users += 1

    def close(self) -> None:
        """Leave, and disconnect after the last."""
        import ray

        with self._lock:
            self._num_users -= 1
            if self._num_users == 0 and self._is_ours:
                ray.shutdown()
                self._is_ours = False


def _check_that_they_hold(options: dict[str, Any], address: str) -> None:
    if options["address"] not in ("local", "auto", address) or options["runtime_env"]:
        raise ValueError(
            f"this process is connected to Ray at {address} already: leave address and runtime_env "
            "of the engine ray out, or call ray.shutdown() first"
        )


CONNECTION = Connection()


class RayWorker:
    """The right to have one task at a time."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self._running: Any = None

    def run(self, call: bytes, name: str) -> bytes:
        """Run a packed call; raise WorkerLost if Ray loses it."""
        import ray

        self._running = self._task.options(name=name).remote(call)
        try:
            outcome: bytes = ray.get(self._running)
            return outcome
        except ray.exceptions.RayError as error:
            reason = str(error).partition("\n")[0]
            raise WorkerLost(f"Ray has lost {name}: {type(error).__name__}: {reason}") from error

    def is_alive(self) -> bool:
        """Return True: Ray replaces its own processes."""
        return True

    def kill(self) -> None:
        """End the task that runs, with its process."""
        import ray

        if self._running is not None:
            ray.cancel(self._running, force=True)

    def close(self) -> None:
        """Do nothing: the connection belongs to all workers together."""
