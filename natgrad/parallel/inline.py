"""The inline engine: no other process, no thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(Executor):
    """Runs each call in this process, when it is submitted."""

    def __init__(self) -> None:
        self._is_shut_down = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call, and return a future that is done."""
        if self._is_shut_down:
            raise RuntimeError("cannot submit to an engine after its shutdown")
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # Ctrl-C is no result of the call: it goes up
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls."""
        self._is_shut_down = True


def open_inline(num_workers: int) -> Executor:
    """Open the engine that runs each call when it is submitted, whatever `num_workers` is."""
    return InlineExecutor()
