"""What a run directory tells about its run, with what was said twice or not at all put in order."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from natgrad.run.events import read_events

__all__ = ["RunHistory", "read_run", "read_runs"]

Event = dict[str, Any]
EVENTS_FILE, CONFIG_FILE = "events.jsonl", "config.json"
# The numbers without which an event cannot be placed or counted; what else it has, it may lack.
NUMBERS = {
    "iteration": ("iteration", "num_iterations", "epoch", "num_epochs", "samples", "seconds"),
    "job": ("iteration", "job", "started", "seconds"),
    "retry": ("iteration", "job"),
    "diagnostics": ("iteration",),
    "remodel": ("iteration",),
}


@dataclass(frozen=True)
class RunHistory:
    """A run so far. Of what an iteration said twice, as it was begun again, the last counts.

    iterations, diagnostics: by iteration; jobs, retries: all of an iteration; in order of iteration
    torn: whether the last line of the events is not whole, as after a crash (or in the middle of
    writing); it is not among the events
    pauses: when nothing ran, between a stop and the resumption after it
    num_repeated: iterations that were complete, but lost by a crash and done again
    """

    path: Path
    name: str
    config: dict[str, Any]
    starts: list[Event]
    iterations: dict[int, Event]
    jobs: dict[int, list[Event]]
    retries: dict[int, list[Event]]
    diagnostics: dict[int, Event]
    remodels: list[Event]
    warnings: list[Event]
    combine: Event | None
    end: Event | None
    torn: bool
    first_time: float
    last_time: float
    pauses: list[tuple[float, float]]
    num_repeated: int

    @property
    def num_resumed(self) -> int:
        """How often the run went on from an earlier iteration."""
        return sum(start.get("resumed_from") is not None for start in self.starts)

    def running_seconds(self, time: float) -> float:
        """Return the seconds from the run's start to a time, without those when nothing ran."""
        paused = sum(min(time, end) - begin for begin, end in self.pauses if time > begin)
        return max(0.0, time - self.first_time - paused)

    def layer_names(self) -> list[str]:
        """Return the names of the layers, as the last job has them; then those that are no more."""
        names: dict[str, None] = {}
        for iteration in sorted(self.jobs, reverse=True):
            for job in self.jobs[iteration]:
                names.update(dict.fromkeys(job.get("layers") or {}))
        for iteration in sorted(self.iterations, reverse=True):
            names.update(dict.fromkeys(self.iterations[iteration].get("change") or {}))
        return list(names)

    def cosines(self) -> dict[int, float]:
        """Return the mean cosine of the jobs' steps by iteration, of those with several jobs."""
        return {
            iteration: event["cosine"]
            for iteration, event in self.iterations.items()
            if event.get("cosine") is not None
        }

    def layer_cosines(self) -> dict[str, dict[int, float]]:
        """Return the same by layer, in the order of the layers."""
        found: dict[str, dict[int, float]] = {name: {} for name in self.layer_names()}
        for iteration, event in self.iterations.items():
            for name, cosine in (event.get("layer_cosines") or {}).items():
                if cosine is not None:
                    found.setdefault(name, {})[iteration] = cosine
        return {name: values for name, values in found.items() if values}

    def state(self) -> str:
        """Return how the run ended, "complete", "failed" or "interrupted", or that it did not.

        That is "running", "stopped" or, if nobody can tell, "unfinished".
        A run says its end, unless it is killed: then it depends on whether its process is there,
        which is known on its own machine only.
        """
        if self.end is not None:
            if self.end.get("message") == "KeyboardInterrupt":  # Ctrl-C: nothing has failed
                return "interrupted"
            return str(self.end.get("status", "complete"))
        if not self.starts:
            return "unfinished"
        start = self.starts[-1]
        if start.get("host") != socket.gethostname() or not isinstance(start.get("pid"), int):
            return "unfinished"
        return "running" if _is_alive(start["pid"]) else "stopped"


def read_run(path: str | Path, name: str | None = None) -> RunHistory:
    """Read a run directory; a run that has only begun, or was killed, is read as far as it is.

    Raises:
        FileNotFoundError: if there is no such directory, or no events in it.
        ValueError: if the events are not events, it names the file and the line; or if they are
            those of stages.
    """
    path = Path(path)
    events_path = path / EVENTS_FILE
    if not events_path.is_file():
        found = "has no events.jsonl" if path.is_dir() else "is not a directory"
        raise FileNotFoundError(
            f"{path} {found}; expected the directory of a run, as `natgrad train` makes it"
        )
    events = read_events(events_path)
    if any(event["event"] == "stage" for event in events):
        raise ValueError(f"{path} is of a recipe or an experiment, {_where_runs_are(path)}")
    _check_numbers(events, events_path)
    return _history(path, name or path.resolve().name, events)


def _where_runs_are(path: Path) -> str:
    """Tell which training runs are below a directory that has stages, as recipes make it."""
    found = sorted(file.parent for file in path.glob(f"*/*/{EVENTS_FILE}"))
    named = f"; in it there are {', '.join(map(str, found))}" if found else ""
    return f"not of a training run: give the directory of one{named}"


def _check_numbers(events: list[Event], path: Path) -> None:
    for number, event in enumerate(events, start=1):
        kind = str(event["event"])
        for name in ("time", *NUMBERS.get(kind, ())):
            if not isinstance(event.get(name), int | float):
                raise ValueError(
                    f'line {number} of {path}: expected a number as "{name}" of the event '
                    f'"{kind}", found {event.get(name)!r}. Take the file from a copy of the run, '
                    "or remove that line"
                )


def read_runs(paths: Sequence[str | Path]) -> list[RunHistory]:
    """Read several runs, under names that tell them apart: the ends of their paths.

    >>> _distinct_names([Path("/a/sgd/run"), Path("/a/online/run")])
    ['sgd/run', 'online/run']
    """
    resolved = [Path(path).resolve() for path in paths]
    twice = next((path for path in resolved if resolved.count(path) > 1), None)
    if twice is not None:
        raise ValueError(f"the run {twice} is given twice; give each run once")
    names = _distinct_names(resolved)
    return [read_run(path, name) for path, name in zip(paths, names, strict=True)]


def _distinct_names(paths: list[Path]) -> list[str]:
    for depth in range(1, 1 + max(len(path.parts) for path in paths)):
        names = [str(Path(*path.parts[-depth:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("paths that differ have ends that differ")


def _history(path: Path, name: str, events: list[Event]) -> RunHistory:
    def of_kind(kind: str) -> list[Event]:
        return [event for event in events if event["event"] == kind]

    starts, iterations = of_kind("start"), of_kind("iteration")
    last_iterations = _last_of_each(iterations)
    # An end that was said before the last start is that of an earlier attempt.
    ends = [event for event in of_kind("end") if not starts or event["time"] >= starts[-1]["time"]]
    return RunHistory(
        path=path,
        name=name,
        config=_read_config(path / CONFIG_FILE),
        starts=starts,
        iterations=last_iterations,
        jobs=_jobs(of_kind("job")),
        retries=_retries(of_kind("retry"), events),
        diagnostics=_last_of_each(of_kind("diagnostics")),
        remodels=list(_last_of_each(of_kind("remodel")).values()),
        warnings=_once_each(of_kind("warning")),
        combine=next(iter(reversed(of_kind("combine"))), None),
        end=ends[-1] if ends else None,
        torn=_is_torn(path / EVENTS_FILE),
        first_time=events[0]["time"] if events else 0.0,
        last_time=events[-1]["time"] if events else 0.0,
        pauses=_pauses(events),
        num_repeated=len(iterations) - len(last_iterations),
    )


def _last_of_each(events: list[Event]) -> dict[int, Event]:
    last: dict[int, Event] = {}
    for event in events:
        last[event["iteration"]] = event
    return dict(sorted(last.items()))


def _jobs(events: list[Event]) -> dict[int, list[Event]]:
    last: dict[tuple[int, int], Event] = {}
    for event in events:
        last[event["iteration"], event["job"]] = event
    by_iteration: dict[int, list[Event]] = {}
    for (iteration, _), event in sorted(last.items()):
        by_iteration.setdefault(iteration, []).append(event)
    return by_iteration


def _retries(retries: list[Event], events: list[Event]) -> dict[int, list[Event]]:
    """Keep the retries of the last time that each iteration was begun."""
    begun = {event["time"] for event in events if event["event"] == "start"}
    by_iteration: dict[int, list[Event]] = {}
    for event in retries:
        same = by_iteration.setdefault(event["iteration"], [])
        if same and any(same[-1]["time"] < start <= event["time"] for start in begun):
            same.clear()
        same.append(event)
    return dict(sorted(by_iteration.items()))


def _once_each(warnings: list[Event]) -> list[Event]:
    last = {(event.get("iteration"), event.get("message")): event for event in warnings}
    return list(last.values())


def _pauses(events: list[Event]) -> list[tuple[float, float]]:
    """Return when nothing ran: from the last event before each resumption to that."""
    return [
        (before["time"], event["time"])
        for before, event in pairwise(events)
        if event["event"] == "start"
    ]


def _read_config(path: Path) -> dict[str, Any]:
    """Return the configuration; a run that was killed before it wrote one has none."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); expected a run's configuration") from error
    return config if isinstance(config, dict) else {}


def _is_torn(path: Path) -> bool:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return size > 0 and file.read(1) != b"\n"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
