"""What happened in a run, one JSON object per line: the source of progress, plots and reports."""

from __future__ import annotations

import json
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
        """Write one event, and return it."""
        record = {"time": self._clock(), "event": event, **fields}
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
        ValueError: if a line is not JSON; it names the file and the line.
    """
    path = Path(path)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"line {number} of {path} is not an event: expected a JSON object, found "
                f"{line[:60]!r}"
            ) from error
    return events
