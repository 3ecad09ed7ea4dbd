"""LDA: the linear transform to the few directions in which classes differ most.

W is the covariance within classes, B the one between their means; in the directions found, W is
unit and B diagonal, and its largest elements come first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["LdaStatistics", "estimate_lda"]

Doubles = NDArray[np.float64]

# Eigenvalues of W (of features scaled to unit variance) are not taken to be smaller than this times
# the largest: spliced frames at an utterance's edges are copies, and there may be no more.
RELATIVE_EIGENVALUE_FLOOR = 1e-8


@dataclass(eq=False)
class LdaStatistics:
    """Counts and sums of each class, and products of all; those of parts of the data add up.

    >>> statistics = LdaStatistics.zeros(dim=2, num_classes=2)
    >>> x = np.array([[0, 0], [0, 2], [5, 0], [6, 2]], dtype=np.float32)
    >>> statistics.add(x, np.array([0, 0, 1, 1]))
    >>> statistics.counts, statistics.within[1, 1]
    (array([2., 2.]), np.float64(1.0))
    """

    counts: Doubles  # (C,)
    sums: Doubles  # (C, D)
    products: Doubles  # (D, D)

    @staticmethod
    def zeros(dim: int, num_classes: int) -> LdaStatistics:
        """Return the statistics of no frames."""
        return LdaStatistics(
            np.zeros(num_classes), np.zeros((num_classes, dim)), np.zeros((dim, dim))
        )

    def add(
        self,
        features: NDArray[np.float32],
        classes: NDArray[np.integer],
        weights: Doubles | None = None,
    ) -> None:
        """Add frames (T, D), the class of each, and how much each counts (by default 1)."""
        self._check(features, classes)
        if len(features) == 0:
            return
        data = features.astype(np.float64)
        weighted = data if weights is None else data * weights[:, None]
        each = np.ones(len(data)) if weights is None else weights
        order = np.argsort(classes, kind="stable")
        begins = np.flatnonzero(np.diff(classes[order], prepend=-1))
        present = classes[order][begins]
        self.counts[present] += np.add.reduceat(each[order], begins)
        self.sums[present] += np.add.reduceat(weighted[order], begins, axis=0)
        self.products += weighted.T @ data

    def __add__(self, other: LdaStatistics) -> LdaStatistics:
        if self.sums.shape != other.sums.shape:
            raise ValueError(
                f"LDA statistics of (classes, dimensions) {other.sums.shape} were added to those "
                f"of {self.sums.shape}; expected the same"
            )
        return LdaStatistics(
            self.counts + other.counts, self.sums + other.sums, self.products + other.products
        )

    @property
    def num_frames(self) -> float:
        """The number of frames, or the sum of their weights."""
        return float(self.counts.sum())

    @property
    def mean(self) -> Doubles:
        """(D,) the mean of all frames."""
        return np.asarray(self.sums.sum(axis=0) / self.num_frames)

    @property
    def between(self) -> Doubles:
        """(D, D) the covariance of the classes' means."""
        seen = self.counts > 0
        means = self.sums[seen] / self.counts[seen, None] - self.mean
        return np.asarray((means * self.counts[seen, None]).T @ means / self.num_frames)

    @property
    def within(self) -> Doubles:
        """(D, D) the covariance around the classes' means."""
        total = self.products / self.num_frames - np.outer(self.mean, self.mean)
        return np.asarray(total - self.between)

    def _check(self, features: NDArray[np.float32], classes: NDArray[np.integer]) -> None:
        num_classes, dim = self.sums.shape
        if features.shape != (len(classes), dim):
            raise ValueError(
                f"LDA statistics were given features of shape {features.shape} and "
                f"{len(classes)} classes; expected (frames, {dim}) and a class for each frame"
            )
        if len(classes) and not 0 <= classes.min() <= classes.max() < num_classes:
            raise ValueError(
                f"LDA statistics were given classes from {classes.min()} to {classes.max()}; "
                f"expected 0 to {num_classes - 1}"
            )


def estimate_lda(
    statistics: LdaStatistics, out_dim: int = 40, remove_mean: bool = False
) -> Doubles:
    """Return the transform (out_dim, D) that makes W unit and B diagonal, the largest first.

    With `remove_mean`, it is (out_dim, D + 1): its last column makes the mean of all frames zero.
    Each row's element of largest magnitude is positive, as the data does not say its sign.

    >>> statistics = LdaStatistics.zeros(dim=2, num_classes=2)
    >>> x = np.array([[0, 0], [0, 2], [5, 0], [5, 2], [7, 1]], dtype=np.float32)
    >>> statistics.add(x, np.array([0, 0, 1, 1, 1]))
    >>> estimate_lda(statistics, out_dim=1).round(2) + 0
    array([[1.37, 0.  ]])
    """
    dim = len(statistics.products)
    if not 1 <= out_dim <= dim:
        raise ValueError(
            f"LDA to {out_dim} dimensions was asked for of features of {dim}; expected 1 to {dim}"
        )
    if not statistics.num_frames > 0 or not np.isfinite(statistics.products).all():
        raise ValueError(
            f"LDA statistics of {statistics.num_frames:g} frames are empty or not finite: look for "
            "NaN in the features"
        )
    whiten = _whitening(statistics.within, statistics.within + statistics.between)
    _, directions = np.linalg.eigh(whiten @ statistics.between @ whiten.T)
    matrix = directions[:, ::-1][:, :out_dim].T @ whiten
    largest = matrix[np.arange(out_dim), np.abs(matrix).argmax(axis=1)]
    matrix *= np.sign(largest)[:, None]
    if not remove_mean:
        return matrix
    return np.concatenate([matrix, -(matrix @ statistics.mean)[:, None]], axis=1)


def _whitening(within: Doubles, total: Doubles) -> Doubles:
    """A matrix P such that P W P^T = I, up to the floor on W's eigenvalues."""
    variances = np.diagonal(total)
    scales = np.sqrt(np.where(variances > 0, variances, 1.0))
    values, vectors = np.linalg.eigh(within / np.outer(scales, scales))
    if not values[-1] > 0:
        raise ValueError(
            "the features do not vary within any class: LDA needs several different frames of each"
        )
    floored = np.maximum(values, RELATIVE_EIGENVALUE_FLOOR * values[-1])
    whitening: Doubles = (vectors / np.sqrt(floored)).T / scales
    return whitening
