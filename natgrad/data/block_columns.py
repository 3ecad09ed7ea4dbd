"""A block's pieces as the arrays of its file, and back.

Frames are encoded in groups of whole pieces, each with knots of its own: `GROUP_FRAMES` is large
enough for the knots (16 bytes per column) to cost less than 0.01 bytes per value, and small enough
for a broken recording to spoil no more than a thousandth of a block.

What is the same in most blocks is left out: probabilities that are all one, as are the number of
labels per sample; weights that are all one. Labels stay the same for some frames, so it is their
runs that are stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.data.block_file import Array, read_arrays, write_arrays
from natgrad.data.codec import encode
from natgrad.data.pieces import Cut, Pieces

GROUP_FRAMES = 2048
PIECE_COLUMNS = ("num_samples", "left", "right", "start", "name")


def write_block(path: Path, pieces: Pieces, rule: Cut) -> int:
    """Write the pieces as a block; returns the number of bytes."""
    codes, knots, groups = _encode_groups(pieces)
    arrays: dict[str, Array] = {column: pieces.table[column] for column in PIECE_COLUMNS}
    arrays["group"] = groups
    arrays["names"] = np.frombuffer(json.dumps(pieces.names).encode(), dtype=np.uint8)
    arrays |= _runs("class", pieces.classes)
    if (pieces.num_labels != 1).any() or (pieces.probabilities != 1).any():
        arrays["num_labels"] = pieces.num_labels
        arrays["probabilities"] = pieces.probabilities
    if (pieces.weights != 1).any():
        arrays["weights"] = pieces.weights
    arrays = {name: _narrowed(array) for name, array in arrays.items()}
    arrays["side"] = pieces.side.astype("<f2")
    arrays["knots"] = knots.astype("<f4")
    arrays["codes"] = codes
    facts = {
        "num_samples": pieces.num_samples,
        "left_context": rule.left_context,
        "right_context": rule.right_context,
    }
    return write_arrays(path, facts, arrays)


def read_columns(path: Path) -> tuple[dict[str, Any], dict[str, Array], list[str]]:
    """The facts, the arrays (integers as int32) and the names of the segments of a block."""
    facts, arrays = read_arrays(path)
    names = json.loads(arrays.pop("names").tobytes())
    columns = {
        name: array.astype(np.int32) if array.dtype.kind == "u" and name != "codes" else array
        for name, array in arrays.items()
    }
    columns["classes"] = np.repeat(columns.pop("class_values"), columns.pop("class_lengths"))
    return facts, columns, names


def class_counts(pieces: Pieces, num_classes: int) -> NDArray[np.float64]:
    """(num_classes,) the weight of the samples of each class, soft labels by their probability."""
    weights = np.repeat(pieces.weights.astype(np.float64), pieces.num_labels)
    counts = np.bincount(pieces.classes, weights * pieces.probabilities, num_classes)
    return counts.astype(np.float64)


def _encode_groups(pieces: Pieces) -> tuple[Array, Array, Array]:
    """(F, D) codes, (G, 4, D) knots, and (P,) the group of each piece."""
    ends = np.cumsum(pieces.num_frames)
    begins = ends - pieces.num_frames
    _, firsts, groups = np.unique(begins // GROUP_FRAMES, return_index=True, return_inverse=True)
    codes: Array = np.empty(pieces.features.shape, dtype=np.uint8)
    knots: Array = np.empty((len(firsts), 4, pieces.features.shape[1]), dtype=np.float32)
    for group, (begin, end) in enumerate(
        zip(begins[firsts], [*begins[firsts[1:]], ends[-1]], strict=True)
    ):
        codes[begin:end], knots[group] = encode(pieces.features[begin:end])
    return codes, knots, groups


def _runs(name: str, values: Array) -> Mapping[str, Array]:
    begins = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    lengths = np.diff(begins, append=len(values))
    return {f"{name}_values": values[begins], f"{name}_lengths": lengths}


def _narrowed(array: Array) -> Array:
    """Integers (none is negative) in the fewest bytes that hold them; the rest in float32."""
    if array.dtype.kind == "f":
        return array.astype("<f4")
    return array.astype(np.dtype(np.min_scalar_type(int(array.max()))).newbyteorder("<"))
