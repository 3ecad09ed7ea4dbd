"""One byte per value: lossy, with the ranges of each column.

The columns of a group of frames are each quantised on 256 levels. Level 0 is the column's minimum
k_0 and level 255 its maximum k_3; between them, levels `LOW` and `HIGH` are k_1 and k_2, its values
at ranks n // 100 and n - 1 - n // 100 (about the 1st and the 99th percentile). Between these four
*knots* levels are evenly spaced. So an outlier takes precision only from the hundredth of the
values that is in its own tail. (Kaldi, which does this too, has its inner knots at the 25th and
75th percentiles and 64, 128 and 64 levels: with as many bytes, for normal data, its root mean
square error is a third larger, and an outlier spoils a quarter of the values.)

Error bound: a value x between k_i and k_i+1 becomes the nearest of the levels there, which are

    step_i = (k_i+1 - k_i) / (number of levels from k_i to k_i+1)

apart, so it moves by at most step_i / 2. To this, decoding adds the roundoff of a dozen float32
operations on numbers of at most about 4.5 max|k|: less than 2^-18 max|k|, or 2^-140 for subnormal
numbers. A constant column has zero steps, and is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

LOW = 16
HIGH = 239
LEVELS_OF_KNOTS = np.array([0, LOW, HIGH, 255])
TAIL = 100  # one in so many values is below the second knot, and as many are above the third
LARGEST_MAGNITUDE = 1e37  # what is larger could overflow float32 in the course of decoding
RELATIVE_ROUNDOFF = 2.0**-18
ABSOLUTE_ROUNDOFF = 2.0**-140


def encode(values: Floats) -> tuple[Bytes, Floats]:
    """(F, D) finite values -> (F, D) bytes, and the (4, D) knots that `decode` needs.

    >>> codes, knots = encode(np.array([[0.0, 7.0], [10.0, 7.0], [255.0, 7.0]], dtype=np.float32))
    >>> codes.tolist(), knots[:, 0].tolist()
    ([[16, 16], [25, 16], [239, 16]], [0.0, 0.0, 255.0, 255.0])
    """
    num_rows = len(values)
    tail = num_rows // TAIL
    ranks = [0, tail, num_rows - 1 - tail, num_rows - 1]
    # Columns as rows: sorting and comparing along memory is several times faster.
    ordered = np.sort(np.ascontiguousarray(values.T), axis=1)
    columns, knots = values.T.astype(np.float64, order="C"), ordered[:, ranks].astype(np.float64)
    with np.errstate(divide="ignore"):
        levels_per_unit = np.diff(LEVELS_OF_KNOTS) / np.diff(knots, axis=1)
    # An empty interval holds nothing but its own end; the scale must only not be infinite.
    levels_per_unit[~np.isfinite(levels_per_unit)] = 0.0
    low, high = knots[:, 1:2], knots[:, 2:3]
    levels = (np.clip(columns, low, high) - low) * levels_per_unit[:, 1:2]
    levels += np.minimum(columns - low, 0.0) * levels_per_unit[:, 0:1]
    levels += np.maximum(columns - high, 0.0) * levels_per_unit[:, 2:3]
    # A column with k_1 = k_2 has its centre on level LOW, but what is above starts from HIGH.
    levels[(columns > high) & (high == low)] += HIGH - LOW
    codes = np.rint(levels + LOW).astype(np.uint8)
    return np.ascontiguousarray(codes.T), np.ascontiguousarray(knots.T, dtype=np.float32)


@dataclass(frozen=True)
class Decoder:
    """The knots of several groups as what decoding multiplies and adds: each (G, D).

    A code c stands for  low + step (c - LOW) + below min(c - LOW, 0) + above max(c - HIGH, 0):
    the line through the inner knots, and how much the slopes of the tails differ from its slope.
    """

    low: Floats
    step: Floats
    below: Floats
    above: Floats

    @staticmethod
    def of(knots: Floats) -> Decoder:
        """(G, 4, D) knots -> their decoder."""
        levels = np.diff(LEVELS_OF_KNOTS)[:, None]
        steps = np.diff(knots.astype(np.float64), axis=1) / levels
        tails = steps[:, [0, 2]] - steps[:, [1]]
        low, step = knots[:, 1], steps[:, 1]
        parts = (low, step, tails[:, 0], tails[:, 1])
        return Decoder(*(np.ascontiguousarray(part, dtype=np.float32) for part in parts))

    def decode(self, codes: Bytes, groups: NDArray[np.int32], out: Floats) -> None:
        """Decode (N, W, D) codes, of which row n belongs to group groups[n], into `out`.

        Each operation is one of float32 that rounds by itself, so that the result has the same
        bits on every machine. (To look values up in tables of 256 takes two to three times as long:
        the tables of many groups do not fit the cache.)
        """
        low, step, below, above = (
            part.take(groups, axis=0)[:, None, :]
            for part in (self.low, self.step, self.below, self.above)
        )
        levels = codes.astype(np.float32)
        levels -= np.float32(LOW)
        np.multiply(levels, step, out=out)
        out += low
        tail = np.minimum(levels, np.float32(0))
        tail *= below
        out += tail
        levels -= np.float32(HIGH - LOW)
        np.maximum(levels, np.float32(0), out=levels)
        levels *= above
        out += levels


def decode(codes: Bytes, knots: Floats) -> Floats:
    """(F, D) bytes and their (4, D) knots -> (F, D) values.

    >>> decode(*encode(np.array([[-3.0], [0.5], [3.0]], dtype=np.float32))).round(2).tolist()
    [[-3.0], [0.5], [3.0]]
    """
    out = np.empty(codes.shape, dtype=np.float32)
    Decoder.of(knots[None]).decode(codes[None], np.zeros(1, dtype=np.int32), out[None])
    return out


def error_bound(values: Floats, knots: Floats) -> NDArray[np.float64]:
    """How far each of the values that gave the knots may be from what is decoded: (F, D)."""
    exact = knots.astype(np.float64)
    steps = np.diff(exact, axis=0) / np.diff(LEVELS_OF_KNOTS)[:, None]
    interval_steps = np.where(
        values < exact[1], steps[0], np.where(values > exact[2], steps[2], steps[1])
    )
    roundoff = RELATIVE_ROUNDOFF * np.abs(exact).max(axis=0) + ABSOLUTE_ROUNDOFF
    bound: NDArray[np.float64] = interval_steps / 2 + roundoff
    return bound
