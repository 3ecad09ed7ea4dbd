"""Files that are there whole or not at all, even if the power fails or the disk is full."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

__all__ = ["TEMPORARY_SUFFIX", "StorageError", "leftovers", "rename_durably", "write_atomically"]

TEMPORARY_SUFFIX = ".part"
RANDOM_BYTES = 8
# What `_temporary_name` returns. Others have files that end in ".part", too: downloads, say.
TEMPORARY_NAME = re.compile(
    rf".+\.[0-9a-f]{{{2 * RANDOM_BYTES}}}{re.escape(TEMPORARY_SUFFIX)}", re.DOTALL
)


class StorageError(OSError):
    """A file could not be written; what was there before is as it was."""


def write_atomically(
    path: Path, chunks: Iterable[bytes | memoryview], durable: bool = True
) -> None:
    """Write a file under a temporary name and rename it, so that no reader meets half of it.

    With `durable`, the content and then the new name are on the disk when this returns. The
    temporary name is drawn at random: two processes that write the same file do not meet. What is
    no file, as a device, is refused: it would not be written to, but replaced.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "greeting"
    >>> write_atomically(path, [b"good ", b"morning"])
    >>> path.read_bytes(), [file.name for file in path.parent.iterdir()]
    (b'good morning', ['greeting'])
    """
    temporary = path.with_name(_temporary_name(path.name))
    try:
        try:
            _refuse_what_is_no_file(path)
            with open(temporary, "xb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            if durable:
                rename_durably(temporary, path)
            else:
                os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageError(
            error.errno,
            f"cannot write {path}: {error.strerror or error}. No half-written file is left and "
            "earlier files are intact: make room, or make the directory writable, and run the "
            "same command again",
        ) from error


def _refuse_what_is_no_file(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is a device or a pipe, and not a file")


def leftovers(directory: Path) -> list[Path]:
    """Return what `write_atomically` has left in a directory when it was killed; not below it.

    As long as somebody writes there, his files are among them.

    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp())
    >>> for name in ("model", "model.0123456789abcdef.part", "download.part"):
    ...     (directory / name).touch()
    >>> [file.name for file in leftovers(directory)]
    ['model.0123456789abcdef.part']
    """
    found = sorted(directory.iterdir())
    return [file for file in found if TEMPORARY_NAME.fullmatch(file.name) and file.is_file()]


def _temporary_name(name: str) -> str:
    return f"{name}.{secrets.token_hex(RANDOM_BYTES)}{TEMPORARY_SUFFIX}"


def rename_durably(before: Path, after: Path) -> None:
    """Give a file another name, which is on the disk when this returns."""
    os.replace(before, after)
    descriptor = os.open(after.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
