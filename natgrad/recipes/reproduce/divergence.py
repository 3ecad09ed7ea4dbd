"""A training run that may diverge: then that is what was found."""

from __future__ import annotations

from collections.abc import Callable

from natgrad.parallel.average import NonFiniteModelError
from natgrad.parallel.combine import CombinationError
from natgrad.parallel.judge import NoJobLeftError
from natgrad.parallel.outer import RunFailedError
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.reproduce.training_run import run_directory
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events

__all__ = ["found_or_diverged"]

DIVERGED = (NoJobLeftError, NonFiniteModelError, CombinationError)


def found_or_diverged(bench: Bench, train: Callable[[Bench], Found]) -> Found:
    """Return what `train` (as by `measure_run`) finds, with `diverged`: None, or what happened.

    A run that has diverged has num_iterations and num_left_out alone.
    """
    try:
        found = train(bench)
    except RunFailedError as error:
        if not isinstance(error.__cause__, DIVERGED):
            raise  # a disk that is full, a worker that is lost: of that no table should tell
        return {"diverged": str(error), **_until_then(run_directory(bench.directory))}
    return {"diverged": None, **found}


def _until_then(run: RunDirectory) -> Found:
    done = {e["iteration"]: e for e in read_events(run.events) if e["event"] == "iteration"}
    left_out = sum(len(event["left_out"]) for event in done.values())
    return {"num_iterations": len(done), "num_left_out": left_out}
