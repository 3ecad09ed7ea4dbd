"""A training run that goes on by one outer iteration when it is asked to, and else stands still.

So that whole iterations of several runs can take turns in the rounds of a benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Semaphore, Thread
from types import TracebackType
from typing import Any

__all__ = ["RunInTurns"]

Train = Callable[[Callable[[dict[str, Any]], None]], object]


class _RunClosedError(Exception):
    """Ends a run that is not wanted any more."""


class RunInTurns:
    """Drives a run in a thread of its own, which waits between iterations.

    Args:
        train: runs all iterations, and calls what it is given with every event.
    """

    def __init__(self, train: Train) -> None:
        self._train = train
        self._go = Semaphore(0)
        self._rates: SimpleQueue[float | BaseException] = SimpleQueue()
        self._is_closed = False
        self._begun = 0.0
        self._thread = Thread(target=self._drive, daemon=True)
        self._thread.start()

    def samples_per_second(self) -> float:
        """Let the run do its next iteration, and return how many samples a second it trained on.

        The first one starts the workers too. Writing the mean of one iteration is part of the next.
        """
        self._go.release()
        rate = self._rates.get()
        if isinstance(rate, BaseException):
            self._rates.put(rate)  # for whoever asks again
            raise rate
        return rate

    def __enter__(self) -> RunInTurns:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_closed = True
        self._go.release()
        self._thread.join()

    def _drive(self) -> None:
        try:
            self._wait()
            self._train(self._on_event)
            end: BaseException = RuntimeError(
                "the run has no further iteration: plan one for every round"
            )
        except BaseException as error:
            end = error
        self._rates.put(end)  # is raised where an iteration is asked for

    def _on_event(self, event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            self._rates.put(event["samples"] / (time.perf_counter() - self._begun))
            self._wait()

    def _wait(self) -> None:
        self._go.acquire()
        if self._is_closed:
            raise _RunClosedError
        self._begun = time.perf_counter()
