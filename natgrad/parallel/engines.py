"""Where jobs run: names of engines, and the `concurrent.futures.Executor` behind each.

Nothing else in natgrad knows where a job runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from natgrad.parallel.batch import open_gridengine, open_slurm
from natgrad.parallel.call import WorkerLost
from natgrad.parallel.inline import open_inline
from natgrad.parallel.local import open_local
from natgrad.parallel.ray_tasks import open_ray

__all__ = ["ENGINES", "WorkerLost", "check_engine", "open_engine", "runs_here"]

# Each takes num_workers, and its options by name. Libraries are imported only when one is opened.
ENGINES: dict[str, Callable[..., Executor]] = {
    "inline": open_inline,
    "local": open_local,
    "ray": open_ray,
    "slurm": open_slurm,
    "gridengine": open_gridengine,
}

HERE = ("inline", "local")


def runs_here(name: str) -> bool:
    """Whether all calls of an engine run on this machine.

    >>> runs_here("local"), runs_here("slurm")
    (True, False)
    """
    return name in HERE


def open_engine(name: str, num_workers: int, **options: Any) -> Executor:
    """Open an engine: an Executor, to be used in a `with` statement.

    A call whose worker is lost raises WorkerLost from its future; submit it again.

    >>> with open_engine("inline", 1) as engine:
    ...     engine.submit(pow, 2, 5).result()
    32

    Args:
        name: "inline", "local", "ray", "slurm" or "gridengine": see docs/engines.md.
        num_workers: how many calls run at the same time.
        options: of that engine.
    """
    check_engine(name, options)
    if num_workers < 1:
        raise ValueError(f"an engine needs at least 1 worker, but num_workers is {num_workers}")
    return ENGINES[name](num_workers, **options)


def check_engine(name: str, options: Mapping[str, Any]) -> None:
    """Raise ValueError if there is no such engine, or it has no such options."""
    if name not in ENGINES:
        raise ValueError(f"there is no engine {name!r}: the engines are {', '.join(ENGINES)}")
    known = options_of(name)
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(
            f"the engine {name} has no option {', '.join(unknown)}: "
            f"it has {', '.join(known) or 'no options'}"
        )


def options_of(name: str) -> list[str]:
    """Return the names of an engine's options."""
    parameters = inspect.signature(ENGINES[name]).parameters.values()
    return [each.name for each in parameters if each.kind is each.KEYWORD_ONLY]
