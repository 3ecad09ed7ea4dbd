"""The one executor behind every engine that leaves this process: N slots, each with its worker.

An engine says how a worker is opened, and what it is: a process, a task of Ray, a task of a job
manager. Queueing, cancelling, shutdown and the replacement of lost workers are the same for all.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar

from natgrad.parallel.call import WorkerLost, name_of, pack_call, unpack_outcome

P = ParamSpec("P")
T = TypeVar("T")

# How often an idle slot looks whether its worker still lives.
LOOK_SECONDS = 0.5


class Worker(Protocol):
    """What a slot needs of a worker. All but `kill` are called by the slot's own thread."""

    def run(self, call: bytes, name: str) -> bytes:
        """Run a packed call and return its packed outcome; raise WorkerLost if that is lost."""

    def is_alive(self) -> bool:
        """Return whether it can run a call; if not, another one is opened."""

    def kill(self) -> None:
        """End at once, with the call that runs: its `run` raises WorkerLost."""

    def close(self) -> None:
        """Give everything back that the worker holds."""


@dataclass
class _Task:
    future: Future[Any]
    call: bytes
    name: str


Tasks = queue.SimpleQueue[_Task | None]  # None tells one slot to end


class _Slot:
    """A thread of this process that keeps one worker, replaces it when it is gone, and feeds it."""

    def __init__(self, tasks: Tasks, open_worker: Callable[[], Worker]) -> None:
        self._tasks = tasks
        self._open_worker = open_worker
        self._worker: Worker | None = None
        self._is_stopping = False

    def kill(self) -> None:
        """End the worker at once, with what it is running, and run nothing more."""
        self._is_stopping = True
        worker = self._worker
        if worker is not None:
            worker.kill()

    def serve(self) -> None:
        """Run tasks until there is a None."""
        with contextlib.suppress(Exception):  # tried again, and reported, when there is a task
            self._worker = self._open_worker()
        while self._serve_one():
            pass
        self._drop_worker()

    def _serve_one(self) -> bool:
        try:
            task = self._tasks.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            if not self._has_live_worker():
                self._drop_worker()
            return True
        if task is None:
            return False
        if task.future.set_running_or_notify_cancel():
            self._run(task)
        return True

    def _run(self, task: _Task) -> None:
        try:
            if not self._has_live_worker():
                self._drop_worker()
                self._worker = self._open_worker()
            assert self._worker is not None
            if self._is_stopping:  # looked at after the worker is known to `kill`
                raise WorkerLost(f"the engine was stopped before it ran {task.name}")
            result = unpack_outcome(self._worker.run(task.call, task.name))
        except BaseException as error:
            task.future.set_exception(error)
        else:
            task.future.set_result(result)

    def _has_live_worker(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


class SlotExecutor(Executor):
    """Runs calls on `num_workers` workers; a lost worker costs only the call that it was running.

    Functions and arguments are pickled; functions must be importable from a module, not defined in
    the main script. If a call's worker is lost, `result()` of its future raises WorkerLost, and the
    worker is replaced. Leaving the `with` block waits for all calls; but if an exception leaves it,
    the running ones are ended and the queued ones cancelled.

    Args:
        num_workers: the number of workers.
        open_worker: opens one; called at once for each, from different threads.
        close: is called after the last worker was closed.
    """

    def __init__(
        self,
        num_workers: int,
        open_worker: Callable[[], Worker],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._tasks: Tasks = queue.SimpleQueue()
        self._slots = [_Slot(self._tasks, open_worker) for _ in range(num_workers)]
        self._lock = threading.Lock()
        self._is_shut_down = False
        # Daemons, so that the end of the interpreter does not wait for calls that nobody reads.
        # They do not know this object: when it is collected, they finish what is queued and end.
        weakref.finalize(self, _put_ends, self._tasks, num_workers).atexit = False
        self._thread = threading.Thread(
            target=_serve_all, args=(self._slots, close), name="natgrad-engine", daemon=True
        )
        self._thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call and return its future; raise PicklingError if it cannot be sent."""
        task = _Task(Future(), pack_call(fn, args, kwargs), name_of(fn))
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot submit to an engine after its shutdown")
            self._tasks.put(task)
        return task.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, finish (or cancel) the queued ones, and end the workers."""
        with self._lock:
            if cancel_futures:
                self._cancel_queued()
            if not self._is_shut_down:
                _put_ends(self._tasks, len(self._slots))
            self._is_shut_down = True
        if wait:
            self._thread.join()

    def _cancel_queued(self) -> None:
        num_ends = 0
        with contextlib.suppress(queue.Empty):
            while True:
                task = self._tasks.get_nowait()
                if task is None:
                    num_ends += 1
                else:
                    task.future.cancel()
                    task.future.set_running_or_notify_cancel()
        _put_ends(self._tasks, num_ends)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            for slot in self._slots:
                slot.kill()
        self.shutdown()
        return None


def _put_ends(tasks: Tasks, count: int) -> None:
    for _ in range(count):
        tasks.put(None)


def _serve_all(slots: list[_Slot], close: Callable[[], None]) -> None:
    threads = [
        threading.Thread(target=slot.serve, name="natgrad-slot", daemon=True) for slot in slots
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    close()
