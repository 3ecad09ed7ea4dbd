"""Calls of a function in several processes, or in this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers:
    """Runs tasks, in order if there is one worker; results come in the order of the tasks."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self._pool = pool

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """[function(task) for task in tasks]; the first error ends it."""
        if self._pool is None:
            return [function(task) for task in tasks]
        futures = [self._pool.submit(function, task) for task in tasks]
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool as error:
            raise RuntimeError(
                "A process that builds examples died: it was killed (is memory short?), or it "
                "could not import the main script (which must start its work below "
                "`if __name__ == '__main__':`). With num_workers=1 none is needed."
            ) from error
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def workers(num_workers: int) -> Iterator[Workers]:
    """As many processes, for as long as the block lasts; for one worker, this process itself."""
    if num_workers == 1:
        yield Workers(None)
        return
    # Forking a process that has threads (torch has) may deadlock.
    with ProcessPoolExecutor(num_workers, mp_context=get_context("spawn")) as pool:
        yield Workers(pool)
