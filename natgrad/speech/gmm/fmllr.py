"""fMLLR: the affine transform of one speaker's features that makes a model explain them best.

With x+ = (x, 1) the features of a frame, and gamma_g the posteriors of the Gaussians of its pdf,

    K = sum_t sum_g gamma_g (mu_g / v_g) x+^T,     G_i = sum_t (sum_g gamma_g / v_gi) x+ x+^T

are the statistics, and W (D, D + 1), so that W x+ are the speaker's features, maximises the
expected log-likelihood beta log |det A| + sum_i (k_i . w_i - 1/2 w_i G_i w_i^T) (Gales, 1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
from natgrad.speech.gmm.mixtures import GaussianPosteriors, GmmSet

__all__ = [
    "Fmllr",
    "FmllrStatistics",
    "apply_affine",
    "estimate_fmllr",
    "identity_transform",
    "rotate_affine",
]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Fmllr:
    """A speaker's transform, and what it is worth.

    `reason` is None, or says why the transform is the identity (or the one that was there before).
    """

    transform: Doubles  # (D, D + 1)
    gain_per_frame: float  # of expected log-likelihood
    num_frames: float
    reason: str | None = None


@dataclass(eq=False)
class FmllrStatistics:
    """K, the G_i and the number of frames of one speaker; those of parts of the data add up.

    >>> gmms = GmmSet.flat(np.zeros(1), np.ones(1), num_pdfs=1)
    >>> statistics = FmllrStatistics.zeros(1)
    >>> features = np.random.default_rng(0).normal(5.0, 2.0, (1000, 1)).astype(np.float32)
    >>> statistics.add(features, np.zeros(1000, np.int32), gmms)
    >>> estimate = estimate_fmllr(statistics)
    >>> adapted = apply_affine(estimate.transform, features)
    >>> round(float(abs(adapted.mean())), 3), round(float(adapted.std()), 3), estimate.reason
    (0.0, 1.0, None)
    """

    linear: Doubles  # (D, D + 1): K
    quadratic: Doubles  # (D, (D + 1) (D + 2) / 2): the parts of G_i that differ
    num_frames: float = 0.0  # beta, the sum of the frames' weights

    @staticmethod
    def zeros(dim: int) -> FmllrStatistics:
        """Return the statistics of no frames."""
        return FmllrStatistics(np.zeros((dim, dim + 1)), np.zeros((dim, packed_size(dim + 1))))

    def add(
        self,
        features: Floats,
        pdfs: NDArray[np.int32],
        gmms: GmmSet,
        weights: Doubles | None = None,
    ) -> None:
        """Add frames: features (T, D), the pdf of each, and how much each counts (by default 1)."""
        features, pdfs, weights = leave_out_weightless(features, pdfs, weights)
        self.add_posteriors(features, gmms.posteriors(features, pdfs, weights), gmms)

    def add_posteriors(
        self, features: Floats, posteriors: GaussianPosteriors, gmms: GmmSet
    ) -> None:
        """Add frames whose Gaussians are known already.

        They may be known from another model with as many Gaussians, or from features that another
        transform was applied to; `features` and `gmms` are what the transform is to bring together.
        """
        self._check(features, gmms)
        weighted = (posteriors.frame, posteriors.gaussian, posteriors.posterior)
        precisions = sum_over_gaussians(*weighted, gmms.precisions, len(features))
        targets = sum_over_gaussians(*weighted, gmms.means * gmms.precisions, len(features))
        extended = np.ones((len(features), features.shape[1] + 1))
        extended[:, :-1] = features
        self.linear += targets.T @ extended
        add_weighted_products(self.quadratic, precisions, extended)
        self.num_frames += float(posteriors.posterior.sum())

    def __add__(self, other: FmllrStatistics) -> FmllrStatistics:
        if self.linear.shape != other.linear.shape:
            raise ValueError(
                f"fMLLR statistics of dimension {len(other.linear)} were added to those of "
                f"{len(self.linear)}; expected the same"
            )
        return FmllrStatistics(
            self.linear + other.linear,
            self.quadratic + other.quadratic,
            self.num_frames + other.num_frames,
        )

    def _check(self, features: Floats, gmms: GmmSet) -> None:
        dim = len(self.linear)
        if features.ndim != 2 or features.shape[1] != dim or gmms.dim != dim:
            raise ValueError(
                f"features of shape {features.shape} and mixtures of dimension {gmms.dim} were "
                f"given to fMLLR statistics of dimension {dim}; expected all the same"
            )


def identity_transform(dim: int) -> Doubles:
    """Return the transform (D, D + 1) that changes nothing."""
    return np.eye(dim, dim + 1)


def apply_affine(transform: NDArray[np.floating], features: Floats) -> Floats:
    """Return A x + b of each frame (T, D), for a transform [A b]."""
    transformed = features @ transform[:, :-1].T + transform[:, -1]
    return np.ascontiguousarray(transformed, dtype=np.float32)


def rotate_affine(transform: Doubles, matrix: Doubles) -> Doubles:
    """Return what gives of M x what M is of (A x + b): [M A M^-1, M b], for a matrix M (D, D).

    >>> exchange = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> rotate_affine(np.array([[2.0, 0.0, 5.0], [0.0, 3.0, 7.0]]), exchange)
    array([[3., 0., 7.],
           [0., 2., 5.]])
    """
    linear = np.linalg.solve(matrix.T, (matrix @ transform[:, :-1]).T).T
    return np.column_stack([linear, matrix @ transform[:, -1]])


def estimate_fmllr(
    statistics: FmllrStatistics,
    least_frames: float = 500.0,
    start: Doubles | None = None,
    max_sweeps: int = 40,
) -> Fmllr:
    """Return the transform of most expected likelihood.

    Args:
        statistics: of the features that it is to be applied to.
        least_frames: a speaker with fewer keeps `start`; the reason is told.
        start: (D, D + 1) what to begin with, and to compare with; by default the identity.
        max_sweeps: how often, at most, each row is updated.
    """
    num_frames = statistics.num_frames
    initial = identity_transform(len(statistics.linear)) if start is None else start
    if num_frames < max(least_frames, 1e-10):
        few = f"{num_frames:.0f} frames are too few, of {least_frames:.0f} at least"
        return Fmllr(initial, 0.0, num_frames, few)
    if not (np.isfinite(statistics.linear).all() and np.isfinite(statistics.quadratic).all()):
        return Fmllr(initial, 0.0, num_frames, "features of the speaker are not finite")
    problem = (num_frames, statistics.linear, unpack(statistics.quadratic))
    transform = maximize_by_rows(*problem, initial, max_sweeps)
    gain = gain_of_rows(*problem, initial, transform) / num_frames
    if not gain >= 0:  # or not a number
        worse = "no better transform was found: are the features of some dimensions constant?"
        return Fmllr(initial, 0.0, num_frames, worse)
    return Fmllr(transform, gain, num_frames)
