"""An executor for calls that may be made again: those whose worker is lost are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from natgrad.parallel.call import WorkerLost

__all__ = ["Resubmitting"]

P = ParamSpec("P")
T = TypeVar("T")


class Resubmitting(Executor):
    """Hands calls on to an engine, and again if a worker is lost, up to `max_attempts` times.

    >>> from natgrad.parallel.engines import open_engine
    >>> with open_engine("inline", 1) as engine:
    ...     Resubmitting(engine).submit(pow, 2, 5).result()
    32
    """

    def __init__(self, engine: Executor, max_attempts: int = 20) -> None:
        self._engine = engine
        self._max_attempts = max_attempts

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Submit a call; see Executor."""
        result: Future[T] = Future()
        result.set_running_or_notify_cancel()

        def attempt(number: int) -> None:
            def finish(future: Future[T]) -> None:
                try:
                    result.set_result(future.result())
                except WorkerLost as error:
                    if number < self._max_attempts:
                        attempt_again(number + 1, error)
                    else:
                        result.set_exception(error)
                except BaseException as error:  # also CancelledError, of an engine that is stopped
                    result.set_exception(error)

            self._engine.submit(fn, *args, **kwargs).add_done_callback(finish)

        def attempt_again(number: int, lost: WorkerLost) -> None:
            try:
                attempt(number)
            except RuntimeError:  # the engine takes no more calls: this one stays lost
                result.set_exception(lost)

        attempt(1)
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the engine down; see Executor."""
        self._engine.shutdown(wait=wait, cancel_futures=cancel_futures)
