"""MLLT: the linear transform of features in which Gaussians without correlations fit best.

Also called STC (semi-tied covariances). With gamma_g the posteriors of the Gaussians of a frame's
pdf, and x its features, the statistics are

    G_i = sum_t sum_g gamma_g / v_gi (x - mu_g)(x - mu_g)^T

and A maximises beta log |det A| - 1/2 sum_i a_i G_i a_i^T (Gales, "Semi-tied covariance matrices
for hidden Markov models", 1999). Products are made of frames only, not of each frame with each
Gaussian, as

    G_i = sum_t (sum_g gamma_g / v_gi) x x^T - sum_g 1 / v_gi (s_g mu_g^T + mu_g s_g^T)
          + sum_g n_g / v_gi mu_g mu_g^T,     n_g = sum_t gamma_g,     s_g = sum_t gamma_g x
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from natgrad.speech.gmm.linear_transform import (
    add_weighted_products,
    gain_of_rows,
    leave_out_weightless,
    maximize_by_rows,
    packed_size,
    sum_over_gaussians,
    unpack,
)
from natgrad.speech.gmm.mixtures import GmmSet

__all__ = ["Mllt", "MlltStatistics", "estimate_mllt", "transform_means"]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

ROUNDOFF = 1e-9  # of a gain per frame: where the identity is best, it may be below zero by that


@dataclass(frozen=True, eq=False)
class Mllt:
    """A transform of features, and how much more likely it makes them."""

    matrix: Doubles  # (D, D)
    gain_per_frame: float  # of expected log-likelihood
    num_frames: float


@dataclass(eq=False)
class MlltStatistics:
    """What MLLT needs of the data, for one set of mixtures; those of parts of the data add up."""

    quadratic: Doubles  # (D, D (D + 1) / 2): the first sum of G_i; what differs in it
    counts: Doubles  # (G,) n_g
    sums: Doubles  # (G, D) s_g

    @staticmethod
    def zeros(gmms: GmmSet) -> MlltStatistics:
        """Return the statistics of no frames."""
        dim, count = gmms.dim, gmms.num_gaussians
        return MlltStatistics(
            np.zeros((dim, packed_size(dim))), np.zeros(count), np.zeros((count, dim))
        )

    @property
    def num_frames(self) -> float:
        """The number of frames, or the sum of their weights."""
        return float(self.counts.sum())

    def add(
        self,
        features: Floats,
        pdfs: Ints,
        gmms: GmmSet,
        weights: Doubles | None = None,
    ) -> None:
        """Add frames: features (T, D), the pdf of each, and how much each counts (by default 1)."""
        if self.sums.shape != gmms.means.shape:
            raise ValueError(
                f"mixtures with means of shape {gmms.means.shape} were given to MLLT statistics "
                f"of shape {self.sums.shape}; expected the mixtures that they were made for"
            )
        features, pdfs, weights = leave_out_weightless(features, pdfs, weights)
        frame, gaussian, posterior, _ = gmms.posteriors(features, pdfs, weights)
        data = np.ascontiguousarray(features, dtype=np.float64)
        precisions = sum_over_gaussians(frame, gaussian, posterior, gmms.precisions, len(data))
        add_weighted_products(self.quadratic, precisions, data)
        _add_first_moments(data, frame, gaussian, posterior, self.counts, self.sums)

    def __add__(self, other: MlltStatistics) -> MlltStatistics:
        if self.sums.shape != other.sums.shape:
            raise ValueError(
                f"MLLT statistics of shape {other.sums.shape} were added to those of "
                f"{self.sums.shape}; expected both of the same mixtures"
            )
        return MlltStatistics(
            self.quadratic + other.quadratic, self.counts + other.counts, self.sums + other.sums
        )

    def scatter(self, gmms: GmmSet) -> Doubles:
        """Return the G_i, (D, D, D), given the mixtures that the statistics were made with."""
        rows, columns = np.tril_indices(gmms.dim)
        # s mu^T + mu s^T - n mu mu^T is symmetric in r = s - n mu / 2: r mu^T + mu r^T.
        rest = self.sums - 0.5 * self.counts[:, None] * gmms.means
        packed = self.quadratic.copy()
        for place, (i, j) in enumerate(zip(rows, columns, strict=True)):
            about_means = rest[:, i] * gmms.means[:, j] + gmms.means[:, i] * rest[:, j]
            packed[:, place] -= gmms.precisions.T @ about_means
        return unpack(packed)


@njit(cache=True)
def _add_first_moments(
    features: Doubles,
    frame: Ints,
    gaussian: Ints,
    posterior: Doubles,
    counts: Doubles,
    sums: Doubles,
) -> None:
    for place in range(len(frame)):
        t, g, weight = frame[place], gaussian[place], posterior[place]
        counts[g] += weight
        for d in range(features.shape[1]):
            sums[g, d] += weight * features[t, d]


def estimate_mllt(statistics: MlltStatistics, gmms: GmmSet, max_sweeps: int = 40) -> Mllt:
    """Return the transform of most expected likelihood, given the mixtures of the statistics.

    Mixtures for the transformed features are those of `transform_means`: with them, the features
    are more likely by `gain_per_frame` or more. Their variances are for the next update to fit.

    Raises:
        ValueError: if there is too little data, or if features are not finite.
    """
    num_frames = statistics.num_frames
    if not num_frames > gmms.dim:
        raise ValueError(
            f"MLLT of {gmms.dim} dimensions was asked for from {num_frames:g} frames; expected "
            "many times more frames than dimensions"
        )
    scatter = statistics.scatter(gmms)
    if not np.isfinite(scatter).all():
        raise ValueError("the statistics for MLLT are not finite: look for NaN in the features")
    problem = (num_frames, np.zeros((gmms.dim, gmms.dim)), scatter)
    identity = np.eye(gmms.dim)
    matrix = maximize_by_rows(*problem, identity, max_sweeps)
    gain = gain_of_rows(*problem, identity, matrix) / num_frames
    if not gain >= -ROUNDOFF:
        raise ValueError(
            f"the transform found for MLLT changes the log-likelihood by {gain:g} a frame, which "
            "should not fall: are the features of some dimensions constant?"
        )
    if gain < 0:
        return Mllt(identity, 0.0, num_frames)
    return Mllt(matrix, gain, num_frames)


def transform_means(gmms: GmmSet, matrix: Doubles) -> GmmSet:
    """Return mixtures for features that a matrix (D, D) was applied to; variances stay.

    >>> gmms = GmmSet.flat(np.array([1.0, 2.0]), np.ones(2), num_pdfs=1)
    >>> transform_means(gmms, np.array([[0.0, 1.0], [3.0, 0.0]])).means
    array([[2., 3.]])
    """
    return replace(gmms, means=gmms.means @ matrix.T)
