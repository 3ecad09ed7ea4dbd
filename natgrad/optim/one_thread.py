"""Small decompositions are computed by one thread, however many torch has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute with one thread within it.

    MKL's threads wait for each other so often in a decomposition of some hundred rows that it takes
    longer with two than with one: up to six times as long (LOG.md). To switch costs less than a
    microsecond. Other threads that compute already keep their number; one that only begins within
    these microseconds would begin with one.

    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    """
    num_threads = torch.get_num_threads()
    if num_threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
