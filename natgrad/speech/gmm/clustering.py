"""Clusters of frames, each modelled by one Gaussian; and what merging two of them loses.

A cluster is known by its moments: count, sums and sums of squares of its frames, which add up. The
most likely Gaussian with a diagonal covariance for n frames of mean m_d and variance v_d gives them

    L = -n / 2 sum_d (1 + log(2 pi v_d))                                   (the log-likelihood)
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["log_likelihood", "merge_least_losses"]

Doubles = NDArray[np.float64]

VARIANCE_FLOOR = 0.01  # a few frames that are nearly the same must not look infinitely likely


def log_likelihood(moments: Doubles, variance_floor: float = VARIANCE_FLOOR) -> Doubles:
    """Return L of clusters, (...), from their moments, (..., 1 + 2 D).

    >>> log_likelihood(np.array([[2.0, 1.0, 1.0], [0.0, 0.0, 0.0]])).round(3)
    array([-1.452,  0.   ])
    """
    dim = (moments.shape[-1] - 1) // 2
    counts = moments[..., 0]
    divisors = np.where(counts > 0, counts, 1.0)[..., None]
    means = moments[..., 1 : 1 + dim] / divisors
    variances = np.maximum(moments[..., 1 + dim :] / divisors - means**2, variance_floor)
    logs = np.log(variances).sum(axis=-1)
    return np.asarray(-0.5 * counts * (logs + dim * (1.0 + math.log(2 * math.pi))))


def merge_least_losses(
    moments: Doubles, largest_loss: float = math.inf
) -> Iterator[tuple[int, int]]:
    """Merge clusters, always the two that lose the least log-likelihood; yield which they were.

    The rows of `moments`, (N, 1 + 2 D), are the clusters; of two that merge, the second (the higher
    number) goes, and the first has the frames of both. It ends where one cluster is left, or where
    the next merging would lose `largest_loss` or more. Of equal losses, the first is taken.

    >>> moments = np.array([[9.0, 0.0, 9.0], [9.0, 90.0, 909.0], [9.0, 9.0, 18.0]])
    >>> list(merge_least_losses(moments))
    [(0, 2), (0, 1)]
    >>> list(merge_least_losses(moments, largest_loss=10.0))
    [(0, 2)]
    """
    moments = moments.copy()
    alone = log_likelihood(moments)
    losses = alone[:, None] + alone - log_likelihood(moments[:, None] + moments)
    losses[np.tril_indices(len(moments))] = np.inf
    while losses.size and losses.min() < largest_loss:
        one, other = divmod(int(np.argmin(losses)), len(moments))
        yield one, other
        moments[one] += moments[other]
        alone[one] = log_likelihood(moments[one])
        losses[other, :] = losses[:, other] = np.inf
        new = alone[one] + alone - log_likelihood(moments[one] + moments)
        losses[one, one + 1 :] = np.where(np.isinf(losses[one, one + 1 :]), np.inf, new[one + 1 :])
        losses[:one, one] = np.where(np.isinf(losses[:one, one]), np.inf, new[:one])
