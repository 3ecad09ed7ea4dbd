"""What re-estimation needs of the data: the moments that each Gaussian has of its frames (EM).

    gamma_t(g) = p(g | x_t, pdf of t),    of the Gaussians g of the frame's own pdf
    count_g = sum_t gamma_t(g),   sum_g = sum_t gamma_t(g) x_t,   squares_g = sum_t gamma_t(g) x_t^2

from which the new weights, means and variances are those of the frames a Gaussian has:

    w_g = count_g / sum of its pdf's,   mu_g = sum_g / count_g,   v_g = squares_g / count_g - mu_g^2
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.kernels import add_moments
from natgrad.speech.gmm.mixtures import GmmSet

__all__ = ["VARIANCE_FLOOR", "GmmStatistics", "update"]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

VARIANCE_FLOOR = 1e-3  # a dimension that is constant must not make densities infinite


@dataclass(eq=False)
class GmmStatistics:
    """Counts, sums and sums of squares of the Gaussians of a GmmSet; those of parts add up.

    >>> gmms = GmmSet.flat(np.zeros(1), np.ones(1), num_pdfs=2)
    >>> statistics = GmmStatistics.zeros(gmms)
    >>> features = np.array([[1.0], [3.0], [7.0]], dtype=np.float32)
    >>> log_likelihood = statistics.add(features, np.array([0, 0, 1]), gmms)
    >>> statistics.pdf_counts, statistics.sums[:, 0]
    (array([2., 1.]), array([4., 7.]))
    """

    first: NDArray[np.int64]  # (P + 1,) as in the GmmSet
    counts: Doubles  # (G,)
    sums: Doubles  # (G, D)
    squares: Doubles  # (G, D)
    log_likelihood: float = 0.0  # of all frames, weighted
    num_frames: float = 0.0  # the sum of the frames' weights

    @staticmethod
    def zeros(gmms: GmmSet) -> GmmStatistics:
        """Return the statistics of no frames."""
        sums, squares = np.zeros_like(gmms.means), np.zeros_like(gmms.means)
        return GmmStatistics(gmms.first, np.zeros_like(gmms.log_weights), sums, squares)

    @property
    def pdf_counts(self) -> Doubles:
        """(P,) how many frames each pdf had."""
        return np.asarray(np.add.reduceat(self.counts, self.first[:-1]))

    def add(
        self,
        features: Floats,
        pdfs: NDArray[np.int32],
        gmms: GmmSet,
        weights: Doubles | None = None,
        moments_of: Floats | None = None,
    ) -> float:
        """Add frames, and return their (weighted) log-likelihood.

        Args:
            features: (T, D).
            pdfs: (T,) the pdf of each frame.
            gmms: the mixtures that say which Gaussian a frame is of.
            weights: (T,) how much each frame counts; by default 1.
            moments_of: (T, D) other features of the same frames, the moments of which are taken
                instead: so one gets mixtures of other features that fit these Gaussian by Gaussian.
        """
        posteriors = gmms.posteriors(features, pdfs, weights)
        data = features if moments_of is None else moments_of
        if data.shape != features.shape or self.sums.shape != gmms.means.shape:
            raise ValueError(
                f"features are of shape {features.shape} and those to take moments of "
                f"{data.shape}, the mixtures' means of {gmms.means.shape} and the statistics' of "
                f"{self.sums.shape}; expected the same shapes of both"
            )
        add_moments(
            np.ascontiguousarray(data, dtype=np.float32),
            *(posteriors.frame, posteriors.gaussian, posteriors.posterior),
            *(self.counts, self.sums, self.squares),
        )
        frame_weights = np.ones(len(features)) if weights is None else weights
        log_likelihood = float(frame_weights @ posteriors.log_likelihood)
        self.log_likelihood += log_likelihood
        self.num_frames += float(frame_weights.sum())
        return log_likelihood

    def __add__(self, other: GmmStatistics) -> GmmStatistics:
        if not np.array_equal(self.first, other.first):
            raise ValueError(
                f"statistics of {len(self.counts)} Gaussians were added to those of "
                f"{len(other.counts)}, or these are spread otherwise over pdfs; expected both of "
                "the same mixtures"
            )
        return GmmStatistics(
            self.first,
            self.counts + other.counts,
            self.sums + other.sums,
            self.squares + other.squares,
            self.log_likelihood + other.log_likelihood,
            self.num_frames + other.num_frames,
        )


def update(
    gmms: GmmSet,
    statistics: GmmStatistics,
    least_count: float = 10.0,
    least_weight: float = 1e-5,
    variance_floor: float | Doubles = VARIANCE_FLOOR,
) -> GmmSet:
    """Return the mixtures that make the statistics' frames more likely (the M step).

    The likelihood never falls, save for what the limits cost. Gaussians that have fewer frames
    than `least_count`, or less than `least_weight` of their pdf, are dropped; a pdf all of whose
    Gaussians would be is left as it was. Variances are raised to `variance_floor` (a number, or
    (D,)).
    """
    pdf = gmms.pdf_of_gaussian
    shares = statistics.counts / np.maximum(statistics.pdf_counts[pdf], 1e-300)
    is_kept = (statistics.counts >= max(least_count, 1e-10)) & (shares >= least_weight)
    is_updated = np.logical_or.reduceat(is_kept, gmms.first[:-1])
    counts = np.where(is_kept, statistics.counts, 1.0)
    means = statistics.sums / counts[:, None]
    variances = np.maximum(statistics.squares / counts[:, None] - means**2, variance_floor)
    totals = np.add.reduceat(np.where(is_kept, statistics.counts, 0.0), gmms.first[:-1])
    log_weights = np.log(counts / np.where(is_updated, totals, 1.0)[pdf])
    stays = ~is_updated[pdf]
    means[stays], variances[stays] = gmms.means[stays], gmms.variances[stays]
    log_weights[stays] = gmms.log_weights[stays]
    is_kept |= stays
    sizes = np.add.reduceat(is_kept.astype(np.int64), gmms.first[:-1])
    first = np.concatenate([[0], np.cumsum(sizes)])
    return GmmSet(first, log_weights[is_kept], means[is_kept], variances[is_kept])
