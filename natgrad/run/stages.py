"""A run in named stages, each of which is done once.

DIR/stages/NAME.json   says that a stage is done: its settings, what it found, and how long it took
DIR/events.jsonl       when each stage began and ended
DIR/lock               held by the process that drives the stages
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from natgrad.atomic import write_atomically
from natgrad.run.events import EventLog
from natgrad.run.lock import hold

__all__ = ["Facts", "Stage", "StageError", "run_stages", "settings_done_with"]

Facts = dict[str, Any]


class StageError(ValueError):
    """A stage was asked for that there is not, or that cannot be begun with."""


@dataclass(frozen=True)
class Stage:
    """One step of a run.

    Args:
        name: of the stage, and of its marker.
        run: does it, and returns what it found, as JSON takes it. It may find its own leftovers:
            those of a run that was killed.
        settings: what the result depends on, beside the stages before: if they differ from those
            that it was done with, it is done again, and all that follow.
        added: further settings, which markers of older versions do not have: there they are taken
            to be these.
        forget: for a stage that goes on with its leftovers: removes them when it is asked for
            again by name, so that it begins at its beginning.
    """

    name: str
    run: Callable[[], Facts | None]
    settings: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)
    forget: Callable[[], None] | None = None


def run_stages(
    directory: str | Path,
    stages: Sequence[Stage],
    first: str | None = None,
    last: str | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    places: Sequence[str] = (),
) -> dict[str, Facts]:
    """Do the stages that are not done, in order, and return what each has found.

    >>> import tempfile
    >>> stages = [Stage("hear", lambda: {"words": 3}), Stage("speak", lambda: print("hello"))]
    >>> where = tempfile.mkdtemp()
    >>> run_stages(where, stages)
    hello
    {'hear': {'words': 3}, 'speak': {}}
    >>> run_stages(where, stages)  # nothing is done twice
    {'hear': {'words': 3}, 'speak': {}}

    Args:
        directory: of the run; made if need be.
        stages: all of them, in order.
        first: do this one and those after it again, done or not; the ones before must be done.
        last: the last one to do.
        on_event: called with every event: "stage" (name, number, num_stages) when one begins,
            "stage_done" (name, seconds, facts) when it has ended.
        places: the directories below in which stages write, as patterns like "gmm/*": what was
            left half written there is removed.
    """
    directory = Path(directory).absolute()
    begin, end = _range(stages, first, last)
    with hold(directory, ("stages", *places)):
        (directory / "stages").mkdir(exist_ok=True)
        log = EventLog(directory / "events.jsonl")
        markers = [directory / "stages" / f"{stage.name}.json" for stage in stages]
        num_done = _count_done(stages, markers)
        if first is not None:
            if num_done < begin:
                raise StageError(
                    f"cannot begin with stage {first}: {stages[num_done].name}, before it, is not "
                    f"done in {directory} with these settings. Begin with {stages[num_done].name}, "
                    "or without --from"
                )
            num_done = begin
        if num_done < len(stages):
            _undo_all_but(directory / "stages", markers[:num_done])
        if first is not None:
            for stage in stages[begin:end]:
                if stage.forget is not None:
                    stage.forget()
        for number in range(num_done, end):
            emit = _emitter(log, on_event)
            emit("stage", name=stages[number].name, number=number + 1, num_stages=len(stages))
            _do(stages[number], markers[number], emit)
        return {
            stage.name: _read(marker)["facts"]
            for stage, marker in zip(stages[:end], markers, strict=False)
        }


def _range(stages: Sequence[Stage], first: str | None, last: str | None) -> tuple[int, int]:
    names = [stage.name for stage in stages]
    for name in (first, last):
        if name is not None and name not in names:
            raise StageError(f"there is no stage {name!r}: the stages are {', '.join(names)}")
    begin = 0 if first is None else names.index(first)
    end = len(names) if last is None else names.index(last) + 1
    if begin >= end:
        raise StageError(f"stage {first} comes after stage {last}: the order is {', '.join(names)}")
    return begin, end


def _undo_all_but(place: Path, done: Sequence[Path]) -> None:
    """Remove all other markers, also those of stages that are not among the stages now.

    When these are asked for again, what they were made of may be another.
    """
    for marker in set(place.glob("*.json")).difference(done):
        marker.unlink(missing_ok=True)


def _count_done(stages: Sequence[Stage], markers: Sequence[Path]) -> int:
    for number, (stage, marker) in enumerate(zip(stages, markers, strict=True)):
        if not marker.exists():
            return number
        done_with = {**_as_json(stage.added), **_read(marker)["settings"]}
        if done_with != _as_json({**stage.settings, **stage.added}):
            return number
    return len(stages)


def settings_done_with(directory: str | Path, name: str) -> dict[str, Any] | None:
    """Return the settings that a stage was done with in a directory; None if it is not done."""
    marker = Path(directory) / "stages" / f"{name}.json"
    settings: dict[str, Any] | None = _read(marker)["settings"] if marker.exists() else None
    return settings


def _do(stage: Stage, marker: Path, emit: Callable[..., None]) -> None:
    began = time.monotonic()
    facts = stage.run() or {}
    seconds = round(time.monotonic() - began, 3)
    settings = {**stage.settings, **stage.added}
    content = {"settings": settings, "facts": facts, "seconds": seconds}
    write_atomically(marker, [json.dumps(content, indent=1).encode()])
    emit("stage_done", name=stage.name, seconds=seconds, facts=facts)


def _emitter(
    log: EventLog, on_event: Callable[[dict[str, Any]], None] | None
) -> Callable[..., None]:
    def emit(event: str, **fields: Any) -> None:
        record = log.append(event, **fields)
        if on_event is not None:
            on_event(record)

    return emit


def _as_json(settings: Mapping[str, Any]) -> Any:
    return json.loads(json.dumps(settings))


def _read(marker: Path) -> dict[str, Any]:
    try:
        content = json.loads(marker.read_bytes())
    except ValueError as error:
        raise StageError(_damaged(marker, str(error))) from error
    is_object = isinstance(content, dict)
    if not is_object or not all(isinstance(content.get(k), dict) for k in ("settings", "facts")):
        raise StageError(_damaged(marker, 'it has no "settings" and "facts"'))
    whole: dict[str, Any] = content
    return whole


def _damaged(marker: Path, found: str) -> str:
    return (
        f"{marker} is not what a stage writes when it is done ({found}): remove it, and the "
        "stage will be done again"
    )
