"""Kaldi's archives (.ark) and scripts (.scp): matrices, vectors, and integers such as alignments.

Binary and text are read, compressed matrices too, and files that gzip has packed (.gz). What else
kaldiio would read is refused: pickled objects and shell commands ("pipes"), which run whatever they
say; and audio.
"""

from __future__ import annotations

import gzip
import io
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import kaldiio.matio
import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically

__all__ = ["KaldiArchiveError", "KaldiScript", "open_script", "read_archive", "write_archive"]

Array = NDArray[Any]

BINARY = b"\0B"
INT_VECTOR = np.dtype([("size", "i1"), ("value", "<i4")])
LONGEST_KEY_BYTES = 4096
PIECE_BYTES = 2**24  # a damaged header may ask for more than any memory holds
LARGEST_OVERSHOOT_ROWS = 3  # as in Kaldi: rows are often made of seconds that were rounded
AUTOMATIC_COMPRESSION = 1  # Kaldi's default: a byte a value, or two in matrices of a few rows


# What kaldiio, gzip and Python raise for bytes that are no array; Overflow is of numbers too large.
ARRAY_ERRORS = (
    AssertionError,
    EOFError,
    OSError,
    OverflowError,
    ValueError,
    struct.error,
    zlib.error,
)


class KaldiArchiveError(ValueError):
    """An archive or a script that cannot be read; the message names the file and the place."""


def read_archive(path: str | Path) -> Iterator[tuple[str, Array]]:
    """Yield the keys and arrays of an archive in order.

    Matrices and vectors are float32 (or float64, as Kaldi's double), integers int32.

    Raises:
        KaldiArchiveError: it cannot be read, is cut short, or has something else in it.
    """
    path = Path(path)
    with _open(path) as file:
        while True:
            key = _read_key(file, path)
            if key is None:
                return
            yield key, _read_array(file, path, f"of {key}")


class _Line(NamedTuple):
    """What a line of a script says: the file, where in it, and which rows."""

    path: Path
    offset: int
    rows: tuple[int, int] | None  # the first and the last; None is all


class KaldiScript(Mapping[str, Array]):
    """The arrays that a script names, by key; each is read when it is asked for."""

    def __init__(self, path: Path, lines: dict[str, _Line]) -> None:
        self.path = path
        self._lines = lines

    def __getitem__(self, key: str) -> Array:
        if key not in self._lines:
            raise KeyError(f"there is no {key!r} in {self.path}")
        path, offset, rows = self._lines[key]
        with _open(path) as file:
            file.seek(offset)
            array = _read_array(file, path, f"of {key}, named in {self.path}")
        return array if rows is None else _take_rows(array, *rows, f"{self.path}: {key}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._lines)

    def __len__(self) -> int:
        return len(self._lines)


def open_script(path: str | Path) -> KaldiScript:
    """Open a script: lines of a key and a file; the file with `:offset` and rows, `[first:last]`.

    As for Kaldi, a file's name is relative to the working directory, and the last row may be up to
    three after the array's own, which it then means.

    Raises:
        KaldiArchiveError: a line is not so; it is named.
    """
    path = Path(path)
    lines: dict[str, _Line] = {}
    with _open(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig")
        try:
            for number, line in enumerate(text, start=1):
                key, target = (*line.split(maxsplit=1), "", "")[:2]
                if key in lines:
                    raise KaldiArchiveError(f"{path}, line {number}: {key} is there twice")
                lines[key] = _parse(target.strip(), f"{path}, line {number}")
        except UnicodeDecodeError as error:
            raise KaldiArchiveError(
                f"{path} is not text in UTF-8 ({error}): is it a script?"
            ) from error
    return KaldiScript(path, lines)


def write_archive(
    path: str | Path,
    arrays: Iterable[tuple[str, Array]],
    script: str | Path | None = None,
    compress: bool = False,
) -> None:
    """Write an archive, in Kaldi's binary format, and perhaps a script that says where arrays are.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "alignments.ark"
    >>> write_archive(path, [("utterance", np.array([1, 1, 2], dtype=np.int32))])
    >>> list(read_archive(path))
    [('utterance', array([1, 1, 2], dtype=int32))]

    Args:
        path: of the archive.
        arrays: keys without spaces, and matrices or vectors of floats, or vectors of integers.
        script: of the script, if there is to be one.
        compress: whether matrices are stored as Kaldi does by default: lossily, in a byte a value.

    Raises:
        KaldiArchiveError: a key or an array is not so; the key is named.
        StorageError: a file cannot be written.
    """
    path = Path(path)
    offsets: dict[str, int] = {}
    write_atomically(path, _encode_all(arrays, compress, offsets))
    if script is not None:
        lines = (f"{key} {path.absolute()}:{offset}\n" for key, offset in offsets.items())
        write_atomically(Path(script), [line.encode() for line in lines])


# -- reading -----------------------------------------------------------------------------------


def _open(path: Path) -> IO[bytes]:
    try:
        return cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else open(path, "rb")
    except OSError as error:
        raise KaldiArchiveError(f"cannot read {path}: {error.strerror or error}") from error


def _read_key(file: IO[bytes], path: Path) -> str | None:
    try:
        data = b""
        while not data.endswith((b" ", b"\t")):
            byte = file.read(1)
            if not byte and not data.strip():
                return None
            if not byte or len(data) > LONGEST_KEY_BYTES:
                raise EOFError(f"a key and a space were expected, but there is {data[:40]!r}")
            data += byte
        return data.decode().strip()
    except (EOFError, OSError, UnicodeDecodeError, zlib.error) as error:
        raise KaldiArchiveError(f"{path} is not a whole Kaldi archive: {error}") from error


def _read_array(file: IO[bytes], path: Path, what: str) -> Array:
    try:
        begin = file.read(1)
        if not begin:
            raise EOFError("the file ends before it")
        return _read_binary(_WholeReads(begin, file)) if begin == b"\0" else _read_text(begin, file)
    except ARRAY_ERRORS as error:
        raise KaldiArchiveError(
            f"{path}: what should be the array {what} cannot be read ({error or 'it is malformed'})"
            "; expected a matrix or a vector of Kaldi's. Was the file cut short?"
        ) from error


class _WholeReads:
    """Bytes that were read, then the file they are from; a read gives all it is asked for."""

    def __init__(self, begin: bytes, file: IO[bytes]) -> None:
        self._unread = begin
        self._file = file

    def read(self, num_bytes: int) -> bytes:
        if num_bytes < 0:
            raise ValueError(f"it says that it has {num_bytes} bytes")
        data, self._unread = self._unread[:num_bytes], self._unread[num_bytes:]
        pieces, missing = [data], num_bytes - len(data)
        while missing:
            piece = self._file.read(min(missing, PIECE_BYTES))
            if not piece:
                there = num_bytes - missing
                raise EOFError(f"{num_bytes} bytes were expected and {there} are there")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def unread(self, data: bytes) -> None:
        self._unread = data + self._unread


def _read_binary(file: _WholeReads) -> Array:
    begin = file.read(3)
    if begin != BINARY + b"\4":
        file.unread(begin)
        array: Array = kaldiio.matio.read_matrix_or_vector(file)
        return array.copy()  # of its own memory, and so not read-only
    (length,) = struct.unpack("<i", file.read(4))
    elements = np.frombuffer(file.read(length * INT_VECTOR.itemsize), dtype=INT_VECTOR)
    if (elements["size"] != 4).any():
        raise ValueError("its integers are not of 4 bytes")
    return elements["value"].astype(np.int32)


def _read_text(begin: bytes, file: IO[bytes]) -> Array:
    text = begin if begin == b"\n" else begin + file.readline()
    if b"[" not in text:
        return np.array([int(number) for number in text.split()], dtype=np.int32)
    while b"]" not in text:
        line = file.readline()
        if not line:
            raise EOFError("there is a '[' but no ']'")
        text += line
    first, *others = text.replace(b"[", b"").replace(b"]", b"").split(b"\n")
    rows = [[float(number) for number in row.split()] for row in [first, *others] if row.strip()]
    # A vector is on the line of its bracket; a matrix has lines of its own, after that or from it.
    is_vector = bool(first.strip()) and len(rows) == 1
    return np.array(rows[0] if is_vector else rows, dtype=np.float32)


def _take_rows(array: Array, first: int, last: int, where: str) -> Array:
    if not (first <= last < len(array) + LARGEST_OVERSHOOT_ROWS and first < len(array)):
        raise KaldiArchiveError(
            f"{where}: rows {first} to {last} were asked for, the array has {len(array)}, from 0 "
            f"to {len(array) - 1}: does the script belong to another archive?"
        )
    return array[first : last + 1]


def _parse(target: str, where: str) -> _Line:
    if target.startswith("|") or target.endswith("|"):
        raise KaldiArchiveError(
            f"{where}: {target!r} is a command; expected a file, as commands of a script are "
            "never run. Run it yourself, and name the file that it writes"
        )
    match = re.fullmatch(r"(.+?)(?::(\d+))?(?:\[(\d+):(\d+)\])?", target)
    if match is None:
        raise KaldiArchiveError(f"{where}: found {target!r}; expected a key, a space and a file")
    name, offset, first, last = match.groups()
    if name.endswith("]"):
        raise KaldiArchiveError(
            f"{where}: found {target!r}; expected rows as [first:last], and no columns"
        )
    return _Line(Path(name), int(offset or 0), (int(first), int(last)) if first else None)


# -- writing -----------------------------------------------------------------------------------


def _encode_all(
    arrays: Iterable[tuple[str, Array]], compress: bool, offsets: dict[str, int]
) -> Iterator[bytes]:
    num_bytes = 0
    for key, array in arrays:
        if not key or key in offsets or any(character.isspace() for character in key):
            raise KaldiArchiveError(
                f"cannot write the key {key!r}: expected keys that differ and have no spaces"
            )
        begin, data = key.encode() + b" ", _encode(key, array, compress)
        offsets[key] = num_bytes + len(begin)
        num_bytes += len(begin) + len(data)
        yield begin + data


def _encode(key: str, array: Array, compress: bool) -> bytes:
    if array.ndim == 1 and array.dtype.kind in "iu":
        elements = np.empty(len(array), dtype=INT_VECTOR)
        elements["size"], elements["value"] = 4, array
        if not np.array_equal(elements["value"], array):
            raise KaldiArchiveError(f"{key}: its integers do not fit into 32 bits")
        return BINARY + b"\4" + struct.pack("<i", len(array)) + elements.tobytes()
    if array.ndim not in (1, 2) or array.dtype not in (np.float32, np.float64):
        raise KaldiArchiveError(
            f"{key}: its array is {array.dtype} of shape {array.shape}; expected a matrix or a "
            "vector of float32 or float64, or a vector of integers"
        )
    buffer = io.BytesIO()
    method = AUTOMATIC_COMPRESSION if compress and array.ndim == 2 and array.size else None
    kaldiio.matio.write_array(buffer, array, compression_method=method)
    return buffer.getvalue()
