"""The container of a block: named arrays in one file, with a checksum over all of it.

    magic            8 bytes   b"natgradB"
    version          uint32    of what the arrays mean, too
    checksum         uint32    CRC-32 of all other bytes of the file
    header length    uint64
    file length      uint64
    header           JSON      {"facts": {...}, "arrays": [{name, type, shape, bytes, packed}, ...]}
    the arrays, one after the other

All numbers are little-endian. An array is stored as it is or, if it is `packed`, compressed by zlib
after its bytes have been sorted by significance (numbers of one column share their high bytes).

The checksum is to find what disks, networks and interrupted copies do, not forgery. CRC-32 finds
every burst of up to 32 wrong bits, misses others with a chance of 2^-32, and is faster than the
disk; a cryptographic hash would cost more than all of the rest of reading.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically

MAGIC = b"natgradB"
VERSION = 1
PREAMBLE = struct.Struct("<8sIIQQ")
TYPES = ("|u1", "<u2", "<u4", "<f2", "<f4")
PACKING_LEVEL = 6

Array = NDArray[Any]


class BlockError(ValueError):
    """A file is not a block that can be read: it is foreign, of another version, or damaged."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)  # all arguments: an exception may go to another process
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


def write_arrays(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> int:
    """Write arrays of one of `TYPES`; those of integers are packed. Returns the file's length."""
    described, parts = [], []
    for name, array in arrays.items():
        packed = array.dtype.kind == "u" and array.ndim == 1
        part = _pack(array) if packed else np.ascontiguousarray(array).tobytes()
        entry = {"name": name, "type": array.dtype.str, "shape": array.shape, "bytes": len(part)}
        described.append(entry | {"packed": packed})
        parts.append(part)
    header = json.dumps({"facts": dict(facts), "arrays": described}).encode()
    length = PREAMBLE.size + len(header) + sum(len(part) for part in parts)
    checksum = zlib.crc32(PREAMBLE.pack(MAGIC, VERSION, 0, len(header), length))
    for part in (header, *parts):
        checksum = zlib.crc32(part, checksum)
    preamble = PREAMBLE.pack(MAGIC, VERSION, checksum, len(header), length)
    write_atomically(path, [preamble, header, *parts])
    return length


def read_arrays(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The facts and the arrays of a file, or a `BlockError` that says why it cannot be."""
    data = path.read_bytes()
    header_end = PREAMBLE.size + _checked_header_length(path, data)
    try:
        header = json.loads(data[PREAMBLE.size : header_end])
        arrays, begin = {}, header_end
        for entry in header["arrays"]:
            end = begin + entry["bytes"]
            arrays[entry["name"]] = _read_array(memoryview(data)[begin:end], entry)
            begin = end
        return header["facts"], arrays
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        # Only a program that writes such files otherwise than this one can bring us here.
        raise BlockError(path, f"its header does not describe its content ({error!r}).") from error


def _checked_header_length(path: Path, data: bytes) -> int:
    if len(data) < PREAMBLE.size and MAGIC.startswith(data[: len(MAGIC)]):
        raise BlockError(
            path, f"it is cut off after {len(data)} bytes; copy it or build the examples again."
        )
    if data[: len(MAGIC)] != MAGIC:
        raise BlockError(
            path, f"it is not a block of examples: it begins with {data[: len(MAGIC)]!r}."
        )
    magic, version, checksum, header_length, length = PREAMBLE.unpack_from(data)
    if version != VERSION:
        raise BlockError(
            path,
            f"it is a block of version {version}, and this natgrad reads version {VERSION}; "
            "build the examples again.",
        )
    if len(data) != length:
        raise BlockError(
            path,
            f"it has {len(data)} bytes but should have {length}; it was cut off or altered: copy "
            "it or build the examples again.",
        )
    expected = zlib.crc32(PREAMBLE.pack(magic, version, 0, header_length, length))
    if zlib.crc32(memoryview(data)[PREAMBLE.size :], expected) != checksum:
        raise BlockError(
            path,
            "its checksum does not fit its content, which was altered; copy it or build again.",
        )
    return int(header_length)


def _read_array(part: memoryview, entry: Mapping[str, Any]) -> Array:
    if entry["type"] not in TYPES:
        raise ValueError(f"array {entry['name']!r} is of type {entry['type']!r}")
    array_type = np.dtype(entry["type"])
    if entry["packed"]:
        return _unpack(part, array_type).reshape(entry["shape"])
    return np.frombuffer(part, dtype=array_type).reshape(entry["shape"])


def _pack(array: Array) -> bytes:
    by_significance = np.ascontiguousarray(array).view(np.uint8).reshape(-1, array.itemsize).T
    return zlib.compress(by_significance.tobytes(), PACKING_LEVEL)


def _unpack(part: memoryview, array_type: np.dtype[Any]) -> Array:
    by_significance = np.frombuffer(zlib.decompress(part), dtype=np.uint8)
    columns = by_significance.reshape(array_type.itemsize, -1).T
    return np.ascontiguousarray(columns).reshape(-1).view(array_type)
