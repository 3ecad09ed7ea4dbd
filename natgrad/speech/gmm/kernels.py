"""The inner loops of Gaussian mixtures, compiled.

They loop over what is contiguous in memory without branches, so that the compiler vectorises them.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["add_moments", "fill_posteriors", "log_sum_exp_by_segment"]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

# Sums may be taken in any order, which lets them be vectorised; infinities and NaN stay exact.
REORDERED_SUMS = {"reassoc", "contract"}


def log_sum_exp_by_segment(scores: Floats, first: NDArray[np.int64]) -> Floats:
    """Return log sum exp over the rows first[p] to before first[p + 1], for each p, by column.

    The scores are overwritten.
    """
    largest = np.empty((len(first) - 1, scores.shape[1]), dtype=np.float32)
    _subtract_largest(scores, first, largest)
    np.exp(scores, out=scores)  # by NumPy, which has vector instructions for it
    sums = np.empty_like(largest)
    _sum_segments(scores, first, sums)
    np.log(sums, out=sums)
    sums += largest
    return sums


@njit(cache=True)
def _subtract_largest(scores: Floats, first: NDArray[np.int64], largest: Floats) -> None:
    num_columns = scores.shape[1]
    for segment in range(len(first) - 1):
        row = largest[segment]
        row[:] = scores[first[segment]]
        for g in range(first[segment] + 1, first[segment + 1]):
            for t in range(num_columns):
                row[t] = max(row[t], scores[g, t])
        for g in range(first[segment], first[segment + 1]):
            for t in range(num_columns):
                scores[g, t] -= row[t]


@njit(cache=True)
def _sum_segments(values: Floats, first: NDArray[np.int64], sums: Floats) -> None:
    for segment in range(len(first) - 1):
        row = sums[segment]
        row[:] = values[first[segment]]
        for g in range(first[segment] + 1, first[segment + 1]):
            for t in range(values.shape[1]):
                row[t] += values[g, t]


@njit(cache=True, fastmath=REORDERED_SUMS)
def fill_posteriors(
    features: Floats,  # (T, D)
    pdfs: Ints,  # (T,)
    first: NDArray[np.int64],  # (P + 1,)
    means: Doubles,  # (G, D)
    precisions: Doubles,  # (G, D)
    constants: Doubles,  # (G,)
    posterior: Doubles,  # (N,) filled
    log_likelihood: Doubles,  # (T,) filled
) -> None:
    """Fill in the posteriors of each frame's Gaussians, one frame after the other, sums 1 each."""
    begin = 0
    for t in range(len(pdfs)):
        size = first[pdfs[t] + 1] - first[pdfs[t]]
        largest = -np.inf
        for place in range(size):
            g = first[pdfs[t]] + place
            distance = 0.0
            for d in range(features.shape[1]):
                difference = features[t, d] - means[g, d]
                distance += difference * difference * precisions[g, d]
            posterior[begin + place] = constants[g] - 0.5 * distance
            largest = max(largest, posterior[begin + place])
        total = 0.0
        for place in range(begin, begin + size):
            posterior[place] = np.exp(posterior[place] - largest)
            total += posterior[place]
        for place in range(begin, begin + size):
            posterior[place] /= total
        log_likelihood[t] = largest + np.log(total)
        begin += size


@njit(cache=True)
def add_moments(
    features: Floats,  # (T, D)
    frame: Ints,  # (N,)
    gaussian: Ints,  # (N,)
    posterior: Doubles,  # (N,)
    counts: Doubles,  # (G,) added to
    sums: Doubles,  # (G, D) added to
    squares: Doubles,  # (G, D) added to
) -> None:
    """Add to each Gaussian's count, sum and sum of squares what its frames have of it."""
    for place in range(len(frame)):
        t, g, weight = frame[place], gaussian[place], posterior[place]
        counts[g] += weight
        for d in range(features.shape[1]):
            weighted = weight * features[t, d]
            sums[g, d] += weighted
            squares[g, d] += weighted * features[t, d]
