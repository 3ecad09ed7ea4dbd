"""One process at a time drives what is in a directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from natgrad.atomic import TEMPORARY_SUFFIX, StorageError

__all__ = ["RunInUseError", "hold"]


class RunInUseError(RuntimeError):
    """Another process drives a run in this directory."""


@contextmanager
def hold(directory: Path) -> Iterator[None]:
    """Make the directory if need be, and be the only process that drives a run in it.

    The lock is the kernel's: it ends with the process, also by kill -9. What a driver or job that
    was killed has left half written is removed.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / "lock", "a+", encoding="utf-8")  # noqa: SIM115, closed below
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
        for file in directory.rglob(f"*{TEMPORARY_SUFFIX}"):
            file.unlink(missing_ok=True)
        yield
