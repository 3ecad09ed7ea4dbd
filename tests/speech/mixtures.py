"""Random mixtures, and what they are by definition, in float64."""

import math

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.mixtures import GmmSet

Doubles = NDArray[np.float64]


def draw_mixtures(
    sizes: list[int], dim: int, seed: int, scale: float = 1.0, centre: float = 0.0
) -> GmmSet:
    random = np.random.default_rng(seed)
    weights = [random.dirichlet(np.ones(size)) for size in sizes]
    shape = sum(sizes), dim
    return GmmSet(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.log(np.concatenate(weights)),
        centre + scale * random.standard_normal(shape),
        scale**2 * random.uniform(0.3, 3.0, shape),
    )


def literal_scores(gmms: GmmSet, features: NDArray[np.float32]) -> Doubles:
    """(T, G): log of the weight times the density of each Gaussian."""
    scores = np.empty((len(features), gmms.num_gaussians))
    for t, frame in enumerate(features.astype(np.float64)):
        for g in range(gmms.num_gaussians):
            deviations = (frame - gmms.means[g]) ** 2 / gmms.variances[g]
            peaks = np.log(2 * math.pi * gmms.variances[g])
            scores[t, g] = gmms.log_weights[g] - 0.5 * (deviations + peaks).sum()
    return scores
