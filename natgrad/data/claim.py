"""The directory of a build: for one build at a time, and nothing of it is left but a finished set.

While a build goes on, the directory has a locked file `build.lock` and no index. If the process is
killed, the file stays there, unlocked: it tells that the rest was left by a build, which may be
thrown away by the next one.
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from natgrad.data.examples import INDEX

SPILL = "spill"
LOCK = "build.lock"
OURS = re.compile(
    r"spill|build\.lock|(\d{6}|validation|train_subset)\.block(\.\w+\.part)?|examples\.json\.\w+\.part"
)


@contextmanager
def claim(directory: Path) -> Iterator[None]:
    """Hold the directory for one build, which leaves nothing but what belongs to its index."""
    directory.mkdir(parents=True, exist_ok=True)
    _refuse_what_is_not_ours(directory)
    with open(directory / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(
                f"{directory}: another process is building examples there; wait for it, or choose "
                "another directory."
            ) from None
        try:
            _refuse_finished(directory)  # again: another build may have ended just now
            _remove_leftovers(directory)
            yield
        finally:
            if not (directory / INDEX).exists():
                _remove_leftovers(directory)
            shutil.rmtree(directory / SPILL, ignore_errors=True)
            (directory / LOCK).unlink(missing_ok=True)


def _refuse_what_is_not_ours(directory: Path) -> None:
    """Pass a directory that is empty, or has what an interrupted build leaves (its lock, too)."""
    _refuse_finished(directory)
    found = sorted(path.name for path in directory.iterdir())
    ours = [name for name in found if OURS.fullmatch(name)] if LOCK in found else []
    if found != ours:
        foreign = next(name for name in found if name not in ours)
        raise FileExistsError(
            f"{directory}: it has something else in it ({foreign}); expected a new directory, an "
            "empty one, or what an interrupted build has left."
        )


def _refuse_finished(directory: Path) -> None:
    if (directory / INDEX).exists():
        raise FileExistsError(
            f"{directory}: there is a finished set of examples; remove it or choose another "
            "directory."
        )


def _remove_leftovers(directory: Path) -> None:
    shutil.rmtree(directory / SPILL, ignore_errors=True)
    for path in directory.iterdir():
        if OURS.fullmatch(path.name) and path.name != LOCK:
            path.unlink()
