"""Waiting for what another process does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 120.0


def wait_until(is_so: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < end, f"waited {PATIENCE_SECONDS:.0f} s, in vain, until {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process is there and has not ended; nobody may have reaped it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX"


def wait_until_gone(pids: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, pids)), f"the processes {pids} have ended")


def where(place: Path) -> dict[str, Any]:
    """Wait for `tasks.hold` to start, and return what it tells of itself."""
    wait_until(place.exists, f"{place} is there")
    told: dict[str, Any] = json.loads(place.read_text())
    return told


def release(place: Path) -> None:
    Path(f"{place}.release").touch()
