"""An executor that tells of each call that is done, for a progress bar."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

__all__ = ["CountedCalls"]

P = ParamSpec("P")
T = TypeVar("T")


class CountedCalls(Executor):
    """Hands calls on to an executor, and tells how much is done when one has ended.

    >>> from natgrad.parallel.engines import open_engine
    >>> with open_engine("inline", 1) as engine:
    ...     calls = CountedCalls(engine, lambda number: print(number, "more"), weigh=len)
    ...     calls.submit(sorted, "word").result()
    4 more
    ['d', 'o', 'r', 'w']

    Args:
        executor: runs the calls.
        on_done: called with how much more is done; perhaps in another thread.
        weigh: takes the arguments of a call, and says how much it does; by default 1.
    """

    def __init__(
        self,
        executor: Executor,
        on_done: Callable[[int], object],
        weigh: Callable[..., int] = lambda *arguments: 1,
    ) -> None:
        self._executor = executor
        self._on_done = on_done
        self._weigh = weigh

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; see Executor."""
        amount = self._weigh(*args)
        future = self._executor.submit(fn, *args, **kwargs)
        future.add_done_callback(lambda _: self._on_done(amount))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the executor down; see Executor."""
        self._executor.shutdown(wait=wait, cancel_futures=cancel_futures)
