"""What happened in a run, one JSON object per line: the source of progress, plots and reports."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from natgrad.atomic import StorageError

__all__ = ["EventLog", "read_events"]


class EventLog:
    """The events of a run, for its one writer.

    An event is said at least once: an iteration that is begun again after a crash says its own
    again, and what it said last counts.

    >>> import tempfile
    >>> log = EventLog(Path(tempfile.mkdtemp()) / "events.jsonl", clock=lambda: 12.5)
    >>> log.append("warning", message="it is late")
    {'time': 12.5, 'event': 'warning', 'message': 'it is late'}
    >>> read_events(log.path) == [{'time': 12.5, 'event': 'warning', 'message': 'it is late'}]
    True
    """

    def __init__(self, path: Path, clock: Any = time.time) -> None:
        self.path = path
        self._clock = clock
        self._drop_torn_line()

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        """Write one event, and return it as it is written.

        JSON knows no number that is infinite or NaN: in the place of each, at any depth, is None,
        which is written as null.
        """
        record = {"time": self._clock(), "event": event, **_finite(fields)}
        line = json.dumps(record, allow_nan=False) + "\n"
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            raise StorageError(
                error.errno,
                f"cannot write {self.path}: {error.strerror}. Make room, or make it writable, and "
                "run the same command again",
            ) from error
        return record

    def _drop_torn_line(self) -> None:
        """Cut off a last line that a crash has left without its end."""
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)


def read_events(path: str | Path) -> list[dict[str, Any]]:
    """Return the events written so far; a last line that is not whole yet is left out.

    Raises:
        ValueError: if a line is not an event in JSON; it names the file and the line.
    """
    path = Path(path)
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_parse(line, number, path) for number, line in enumerate(lines, start=1)]


def _parse(line: bytes, number: int, path: Path) -> dict[str, Any]:
    try:
        event = json.loads(line.decode("utf-8"))
    except ValueError as error:  # no UTF-8, or no JSON
        raise ValueError(_no_event(line, number, path)) from error
    if not isinstance(event, dict) or "event" not in event:
        raise ValueError(_no_event(line, number, path))
    return event


def _no_event(line: bytes, number: int, path: Path) -> str:
    found = line.decode("utf-8", errors="backslashreplace")
    return (
        f'line {number} of {path} is not an event: expected a JSON object with the key "event", '
        f"found {found[:60]!r}. Take the file from a copy of the run, or remove that line"
    )


def _finite(value: Any) -> Any:
    """Return the value with None for every float in it that is infinite or NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_finite(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value
