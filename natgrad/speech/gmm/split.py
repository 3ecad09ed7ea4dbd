"""More Gaussians for the pdfs that have the frames for them: by splitting the heaviest in two."""

from __future__ import annotations

import heapq
import math

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.mixtures import GmmSet

__all__ = ["share_gaussians", "split"]

Doubles = NDArray[np.float64]


def share_gaussians(
    sizes: NDArray[np.int64],
    occupancy: Doubles,
    num_gaussians: int,
    power: float = 0.25,
    least_count: float = 20.0,
) -> NDArray[np.int64]:
    """Return how many Gaussians each pdf shall have, for there to be `num_gaussians` in all.

    The next always goes to the pdf with the largest occupancy^power / Gaussians, so that in the end
    they are about proportional to occupancy^power; of equals, to the first. No pdf loses any, and
    none gets another if its Gaussians would then have less than `least_count` frames each on
    average: there may be less than `num_gaussians` in the end.

    >>> share_gaussians(np.array([1, 1, 1]), np.array([16e4, 1e4, 30.0]), num_gaussians=7)
    array([4, 2, 1])
    """
    result = np.array(sizes, dtype=np.int64)
    shares = np.asarray(occupancy, dtype=np.float64) ** power
    queue = [(-rank, pdf) for pdf, rank in enumerate(shares / result)]
    heapq.heapify(queue)
    missing = num_gaussians - int(result.sum())
    while missing > 0 and queue:
        pdf = queue[0][1]
        if (result[pdf] + 1) * least_count > occupancy[pdf]:
            heapq.heappop(queue)
            continue
        result[pdf] += 1
        missing -= 1
        heapq.heapreplace(queue, (-shares[pdf] / result[pdf], pdf))
    return result


def split(
    gmms: GmmSet,
    occupancy: Doubles,
    num_gaussians: int,
    power: float = 0.25,
    perturbation: float = 0.01,
    least_count: float = 20.0,
) -> GmmSet:
    """Return mixtures of `num_gaussians` in all (or as many as there are frames for).

    In each pdf the Gaussian with the largest weight is split until there are enough: both halves
    have half of its weight, its variances, and its mean moved by `perturbation` standard deviations
    times a normal random vector, one up, one down. The vectors are always the same: so are results.

    Args:
        gmms: what to split.
        occupancy: (P,) the frames of each pdf; see `GmmStatistics.pdf_counts`.
        num_gaussians: how many there shall be.
        power: see `share_gaussians`.
        perturbation: in standard deviations.
        least_count: see `share_gaussians`.
    """
    sizes = np.diff(gmms.first)
    targets = share_gaussians(sizes, occupancy, num_gaussians, power, least_count)
    random = np.random.Generator(np.random.PCG64(num_gaussians))
    first = np.concatenate([[0], np.cumsum(targets)])
    log_weights = np.empty(first[-1])
    means, variances = (np.empty((first[-1], gmms.dim)) for _ in range(2))
    for pdf in range(gmms.num_pdfs):
        begin, end = int(first[pdf]), int(first[pdf + 1])
        filled = begin + int(sizes[pdf])
        old = slice(gmms.first[pdf], gmms.first[pdf + 1])
        log_weights[begin:filled] = gmms.log_weights[old]
        means[begin:filled], variances[begin:filled] = gmms.means[old], gmms.variances[old]
        for new in range(filled, end):
            heaviest = begin + int(np.argmax(log_weights[begin:new]))
            log_weights[heaviest] -= math.log(2)
            log_weights[new] = log_weights[heaviest]
            variances[new] = variances[heaviest]
            moved = perturbation * random.standard_normal(gmms.dim) * np.sqrt(variances[new])
            means[new] = means[heaviest] + moved
            means[heaviest] -= moved
    return GmmSet(first, log_weights, means, variances)
