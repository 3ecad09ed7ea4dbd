"""One job on several threads that share its parameters without any locks (appendix C.1).

Known as Hogwild. A thread may read parameters that another is changing, and of two changes to one
number at the same moment one may be lost: with small minibatches neither is noticed in the result.
But which thread takes which minibatch is chance, so only one thread gives the same bits each time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from natgrad.parallel.learner import Learner

__all__ = ["Totals", "learn_in_threads"]


class Totals(NamedTuple):
    """Of all minibatches that were learned."""

    objective: float = 0.0
    weight: float = 0.0
    num_minibatches: int = 0


def learn_in_threads(learner: Learner, num_threads: int) -> Totals:
    """Learn all of the learner's minibatches once, by it and by its replicas.

    The calling thread is one of them; alone, it is the plain loop. What is raised in any thread
    stops the others after the minibatch that they are at, and is raised here.

    The threads' own products should be computed by one thread each: `torch.set_num_threads(1)`,
    before, holds for them too.
    """
    if num_threads < 1:
        raise ValueError(f"learning needs one thread or more, but num_threads is {num_threads}")
    replicas = [learner.replica() for _ in range(num_threads - 1)]
    minibatches = _Handout(learner.minibatches())
    with ThreadPoolExecutor(max(1, num_threads - 1), "hogwild") as pool:
        try:
            others = [pool.submit(_learn, replica, minibatches) for replica in replicas]
            parts = [_learn(learner, minibatches), *(other.result() for other in others)]
        finally:
            minibatches.stop()  # interrupted, perhaps: leaving the pool waits for its threads
    return Totals(
        sum(part.objective for part in parts),
        sum(part.weight for part in parts),
        sum(part.num_minibatches for part in parts),
    )


def _learn(learner: Learner, minibatches: _Handout) -> Totals:
    totals = Totals()
    try:
        for minibatch in minibatches:
            objective, weight = learner.learn(minibatch)
            totals = Totals(
                totals.objective + objective, totals.weight + weight, totals.num_minibatches + 1
            )
    except BaseException:
        minibatches.stop()
        raise
    return totals


class _Handout:
    """Hands each minibatch to one of the threads that iterate over it, in order, until stopped."""

    def __init__(self, minibatches: Iterator[Any]) -> None:
        self._minibatches = minibatches
        self._lock = threading.Lock()
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    def __iter__(self) -> _Handout:
        return self

    def __next__(self) -> Any:
        with self._lock:
            if self._is_stopped:
                raise StopIteration
            return next(self._minibatches)
