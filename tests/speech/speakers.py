"""Mixtures, and frames that were drawn from them and then distorted: as another speaker's are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.mixtures import GmmSet

Doubles = NDArray[np.float64]


class Speaker(NamedTuple):
    gmms: GmmSet
    features: NDArray[np.float32]  # (T, D) distorted
    pdfs: NDArray[np.int32]  # (T,)
    distortion: Doubles  # (D, D)
    offset: Doubles  # (D,)


def random_gmms(rng: np.random.Generator, dim: int, num_pdfs: int) -> GmmSet:
    sizes = rng.integers(1, 4, num_pdfs)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    shares = rng.uniform(0.2, 1, first[-1])
    totals = np.add.reduceat(shares, first[:-1])
    log_weights = np.log(shares / np.repeat(totals, sizes))
    means = rng.normal(0, 2, (first[-1], dim))
    return GmmSet(first, log_weights, means, rng.uniform(0.3, 1.5, (first[-1], dim)))


def draw(rng: np.random.Generator, gmms: GmmSet, pdfs: NDArray[np.int32]) -> Doubles:
    ends = gmms.first[pdfs + 1]
    weights = np.exp(gmms.log_weights)
    gaussian = [
        rng.choice(np.arange(gmms.first[p], end), p=weights[gmms.first[p] : end])
        for p, end in zip(pdfs, ends, strict=True)
    ]
    noise = rng.normal(size=(len(pdfs), gmms.dim))
    return np.asarray(gmms.means[gaussian] + noise * np.sqrt(gmms.variances[gaussian]))


def random_speaker(
    seed: int, dim: int = 3, num_pdfs: int = 4, num_frames: int = 600, strength: float = 0.2
) -> Speaker:
    rng = np.random.default_rng(seed)
    gmms = random_gmms(rng, dim, num_pdfs)
    pdfs = rng.integers(0, num_pdfs, num_frames).astype(np.int32)
    distortion = np.eye(dim) + rng.normal(0, strength, (dim, dim))
    offset = rng.normal(0, strength, dim)
    features = draw(rng, gmms, pdfs) @ distortion.T + offset
    return Speaker(gmms, features.astype(np.float32), pdfs, distortion, offset)


def literal_posteriors(speaker: Speaker) -> list[tuple[int, int, float]]:
    """(frame, Gaussian, posterior) by the definition."""
    rows = []
    for t, (x, pdf) in enumerate(
        zip(speaker.features.astype(np.float64), speaker.pdfs, strict=True)
    ):
        numbers = range(speaker.gmms.first[pdf], speaker.gmms.first[pdf + 1])
        scores = [
            speaker.gmms.log_weights[g]
            - 0.5
            * sum(
                np.log(2 * np.pi * v) + (a - m) ** 2 / v
                for a, m, v in zip(x, speaker.gmms.means[g], speaker.gmms.variances[g], strict=True)
            )
            for g in numbers
        ]
        shares = np.exp(np.array(scores) - max(scores))
        rows += [(t, g, share) for g, share in zip(numbers, shares / shares.sum(), strict=True)]
    return rows
