"""Shards: files that have the features of utterances one after another, 16 bits a value.

Of an utterance, the minima and steps of its columns come first, as float32, then its (T, D) codes,
as uint16, both with the least byte first; then zeros up to a multiple of 4 bytes.
"""

from __future__ import annotations

import mmap
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically
from natgrad.speech.features.codec import LARGEST_MAGNITUDE, decode, encode
from natgrad.speech.features.mfcc import FeatureError

__all__ = ["FeatureStoreError", "Place", "Shard", "map_shard", "read_utterance", "write_shard"]

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

SHARD_NAME = re.compile(r"\d{5,}-[0-9a-f]{8}\.shard")
ALIGNMENT_BYTES = 4


class FeatureStoreError(ValueError):
    """A store of features is missing, incomplete or damaged; the message names the file."""


class Place(NamedTuple):
    """Where in its shard an utterance is, and what it must be."""

    first_byte: int
    num_frames: int
    checksum: int


@dataclass(frozen=True)
class Shard:
    """A shard that was written: its file, and where each utterance is in it."""

    name: str
    num_bytes: int
    dim: int
    places: dict[str, Place]


def write_shard(
    directory: Path,
    number: int,
    features: Iterator[tuple[str, Floats]],
    dim: int | None = None,
    most_bytes: int | None = None,
) -> Shard:
    """Write a shard of the next features, until they end or it is full; no file if there are none.

    It is named by its number and the checksum of its bytes, so that another shard never takes its
    name. Without `dim`, the dimension of the first features is that of all.
    """
    parts: list[bytes] = []
    places: dict[str, Place] = {}
    num_bytes = checksum = 0
    while most_bytes is None or num_bytes < most_bytes:
        following = next(features, None)
        if following is None:
            break
        key, values = following
        _check(key, values, dim)
        if key in places:
            raise FeatureError(f"{key}: there are features of it twice; keys must differ")
        dim = values.shape[1]
        data = _to_bytes(values)
        places[key] = Place(num_bytes, len(values), zlib.crc32(data))
        parts += [data, bytes(-len(data) % ALIGNMENT_BYTES)]
        num_bytes += len(parts[-2]) + len(parts[-1])
        checksum = zlib.crc32(data, checksum)
    name = f"{number:05d}-{checksum:08x}.shard"
    if places:
        write_atomically(directory / name, parts)
    return Shard(name, num_bytes, dim or 0, places)


def map_shard(path: Path, num_bytes: int) -> Bytes:
    """Map a shard into memory; its pages are read when they are used."""
    try:
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: the file is empty
        raise FeatureStoreError(
            f"cannot read {path} ({error}): copy the whole directory again, or extract the "
            "features again"
        ) from error
    if len(mapped) != num_bytes:
        raise FeatureStoreError(
            f"{path} has {len(mapped)} bytes; expected {num_bytes}: was it cut short while "
            "copying? Copy it again, or extract the features again"
        )
    return np.frombuffer(mapped, dtype=np.uint8)


def read_utterance(shard: Bytes, place: Place, dim: int) -> Floats | None:
    """Return the (T, D) features of an utterance, or None if their bytes are damaged."""
    ranges_end = place.first_byte + 2 * dim * 4
    end = ranges_end + place.num_frames * dim * 2
    if zlib.crc32(shard[place.first_byte : end].data) != place.checksum:
        return None
    ranges = shard[place.first_byte : ranges_end].view("<f4").reshape(2, dim)
    codes = shard[ranges_end:end].view("<u2").reshape(place.num_frames, dim)
    return decode(codes, ranges)


def _check(key: str, values: Floats, dim: int | None) -> None:
    if values.ndim != 2 or 0 in values.shape:
        raise FeatureError(
            f"{key}: its features are of shape {values.shape}; expected (T, D), a frame at least"
        )
    if dim is not None and values.shape[1] != dim:
        raise FeatureError(
            f"{key}: its features have {values.shape[1]} dimensions; expected {dim}, as the others"
        )
    # Written so that NaN, which is not comparable, is refused too.
    if not max(values.max(), -values.min()) <= LARGEST_MAGNITUDE:
        raise FeatureError(
            f"{key}: its features have NaN, infinity, or a magnitude above {LARGEST_MAGNITUDE:g}"
        )


def _to_bytes(values: Floats) -> bytes:
    codes, ranges = encode(values)
    return ranges.astype("<f4").tobytes() + codes.astype("<u2", copy=False).tobytes()
