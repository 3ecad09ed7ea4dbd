"""What figures depend on beside the code: the machine, its load, versions, and the commit."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from natgrad.machine import machine_facts

__all__ = ["ROOT", "commit", "facts_of_now", "load_average"]

ROOT = Path(__file__).resolve().parents[1]  # the checkout
MEASURED = ("natgrad", "benchmarks", ":!benchmarks/results")  # results say nothing about the code


def facts_of_now() -> dict[str, Any]:
    """Return all facts; what the system does not tell is None."""
    revision, is_dirty = commit()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine_facts(),
        "commit": revision,
        "is_dirty": is_dirty,
        "load_before": load_average(),
    }


def commit(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """Return the checkout's commit, and whether what is measured differs from it.

    Both are None where git does not know the directory.
    """
    revision = _git(root, "rev-parse", "HEAD")
    if revision is None:
        return None, None
    changes = _git(root, "status", "--porcelain", "--", *MEASURED)
    return revision, None if changes is None else bool(changes)


def load_average() -> list[float]:
    """Return the load of the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
