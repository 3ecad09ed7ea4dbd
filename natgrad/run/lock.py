"""One process at a time drives what is in a directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from natgrad.atomic import StorageError, leftovers

__all__ = ["RunInUseError", "hold"]

LOCK = "lock"


class RunInUseError(RuntimeError):
    """Another process drives a run in this directory."""


@contextmanager
def hold(directory: Path, places: Sequence[str] = ()) -> Iterator[None]:
    """Make the directory if need be, and be the only process that drives a run in it.

    The lock is the kernel's: it ends with the process, also by kill -9. What a driver or job that
    was killed has left half written is removed: what `write_atomically` has left in the directory
    and its places, and nothing else.

    Args:
        directory: of the run.
        places: the directories below it that are the run's own, as patterns like "jobs/*".
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / LOCK, "a+", encoding="utf-8")  # noqa: SIM115, closed below
    except OSError as error:
        raise StorageError(
            error.errno,
            f"cannot write in the run directory {directory}: {error.strerror}. Choose another "
            "one, or make it writable",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            raise RunInUseError(
                f"the run directory {directory} is in use by {owner}: wait for it, or end it, "
                "or choose another directory"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        lock.flush()
        _remove_leftovers(directory, places)
        yield


def _remove_leftovers(directory: Path, places: Sequence[str]) -> None:
    below = [place for pattern in places for place in directory.glob(pattern) if place.is_dir()]
    # A place with a lock of its own is another run's, whose driver may be writing there now.
    own = [directory, *(place for place in below if not (place / LOCK).exists())]
    for place in own:
        for file in leftovers(place):
            file.unlink(missing_ok=True)
