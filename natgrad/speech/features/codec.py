"""Sixteen bits a value: each column of an utterance on 65 536 even levels from least to greatest.

A value moves by at most half a step, 1/131 070 of its column's range, and by the roundoff of the
two float32 operations that decode it: less than 2^-22 of the largest magnitude in the column, or
2^-133 where that is as small as float32 can have. A constant column is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["decode", "encode"]

Floats = NDArray[np.float32]
Codes = NDArray[np.uint16]

LEVELS = 65535
LARGEST_MAGNITUDE = 1e37  # what is larger could overflow float32 in the course of decoding


def encode(values: Floats) -> tuple[Codes, Floats]:
    """(T, D) finite values -> (T, D) codes, and the (2, D) minima and steps that `decode` needs.

    >>> codes, ranges = encode(np.array([[0.0, 7.0], [1.0, 7.0], [65535.0, 7.0]], dtype=np.float32))
    >>> codes.tolist(), ranges.tolist()
    ([[0, 0], [1, 0], [65535, 0]], [[0.0, 7.0], [1.0, 0.0]])
    """
    minimum = values.min(axis=0).astype(np.float64)
    span = values.max(axis=0) - minimum
    step = (span / LEVELS).astype(np.float32)
    # What is so small that its step is zero in float32 is constant.
    per_step = 1.0 / np.where(step > 0, step, np.inf).astype(np.float64)
    levels = (values - minimum) * per_step
    np.rint(levels, out=levels)
    # The step was rounded, perhaps down, so that the greatest value may be a level too high.
    np.minimum(levels, LEVELS, out=levels)
    return levels.astype(np.uint16), np.stack([minimum.astype(np.float32), step])


def decode(codes: Codes, ranges: Floats) -> Floats:
    """(T, D) codes and their (2, D) minima and steps -> (T, D) values.

    >>> values = np.array([[-1.0], [0.25], [3.0]], dtype=np.float32)
    >>> decode(*encode(values)).round(3).tolist()
    [[-1.0], [0.25], [3.0]]
    """
    values = codes.astype(np.float32)
    values *= ranges[1]
    values += ranges[0]
    return values
