"""The seconds by the clock that runs took whose jobs all had a core.

Everything counts that one waits for: the start of workers, reading, averaging, writing, evaluation
beside the jobs, and what else the machine was doing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.reproduce.job_counts.settings import System
from natgrad.run.events import read_events

__all__ = ["elapsed", "had_workers", "read_clock"]

Event = Mapping[str, Any]


def read_clock(num_cores: int, runs: Mapping[System, Path]) -> Found:
    """Return what the clock told of each run, from the files of their events.

    All runs with the same number of jobs are in it, or none: their times are to be compared.
    """
    seconds: dict[str, list[tuple[int, float]]] = {}
    by_number = sorted(runs, key=lambda system: system.num_jobs)
    for number, systems in itertools.groupby(by_number, key=lambda system: system.num_jobs):
        events = {system.name: _events(system, runs[system]) for system in systems}
        if all(had_workers(happened, number) for happened in events.values()):
            seconds |= {name: elapsed(happened) for name, happened in events.items()}
    return {"num_cores": num_cores, "seconds": seconds}


def elapsed(events: Iterable[Event]) -> list[tuple[int, float]]:
    """Return (iteration, seconds from the run's start to its end) of each outer iteration.

    Of a run that was stopped and resumed, the time between does not count, nor what was done after
    the last iteration that was kept: elapsed(i) = elapsed(i - 1) + end(i) - max(end(i - 1), start),
    with the last end that was told of each iteration, and the last start before it.
    """
    start = 0.0
    ends: dict[int, tuple[float, float]] = {}
    for event in events:
        if event["event"] == "start":
            start = event["time"]
        elif event["event"] == "iteration":
            ends[event["iteration"]] = (start, event["time"])
    listed = []
    before = seconds = 0.0
    for iteration, (start, end) in sorted(ends.items()):
        seconds += end - max(before, start)
        before = end
        listed.append((iteration, round(seconds, 3)))
    return listed


def had_workers(events: Iterable[Event], num_jobs: int) -> bool:
    """Return whether there was a process for each job, whenever the run went on.

    Not so if it ran on a machine with fewer cores than this one has.
    """
    workers: list[set[tuple[str, int]]] = []
    for event in events:
        if event["event"] == "start":
            workers.append(set())
        elif event["event"] == "job":
            workers[-1].add((event["host"], event["pid"]))
    return all(len(processes) >= num_jobs for processes in workers if processes)


def _events(system: System, file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        raise ValueError(
            f"{file} is not there; expected what happened in the run {system.name}: remove "
            f"measurements/{system.name}.json, and it will be run again"
        )
    return read_events(file)
