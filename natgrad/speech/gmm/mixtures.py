"""Gaussian mixtures with diagonal covariances, one mixture for each pdf, all in one set of arrays.

    p(x | pdf) = sum_g w_g N(x; mu_g, diag(v_g)),   over the Gaussians g of the pdf

The logarithm of a weighted Gaussian is linear in (x, x^2, 1):

    log w_g + log N(x; mu_g, v_g) = x . (mu_g / v_g) - x^2 . 1 / (2 v_g) + c_g
    c_g = log w_g - 1/2 sum_d (log(2 pi v_gd) + mu_gd^2 / v_gd)

so that those of all Gaussians and a few dozens of frames are one matrix product. It is done in
float32 on features from which the centre of all means was taken, as x^2 would cancel otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.run.model_file import read_of_kind, write_model
from natgrad.speech.gmm.kernels import fill_posteriors, log_sum_exp_by_segment

__all__ = ["GaussianPosteriors", "GmmSet"]

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]

CHUNK_FRAMES = 64  # of 16 to 256, the fastest: scores of 15 000 Gaussians then fit in a cache
KIND = "gaussian mixtures"


class GaussianPosteriors(NamedTuple):
    """How much each Gaussian of a frame's own pdf explains the frame; N pairs of the two."""

    frame: NDArray[np.int32]  # (N,) ascending
    gaussian: NDArray[np.int32]  # (N,) its number in the set
    posterior: Doubles  # (N,) sums to the frame's weight over each frame's Gaussians
    log_likelihood: Doubles  # (T,) log p(x | pdf) of each frame


@dataclass(frozen=True, eq=False)
class GmmSet:
    """P mixtures: pdf p has the Gaussians first[p] to before first[p + 1] of G in all.

    >>> gmms = GmmSet.single(means=np.array([[0.0], [3.0]]), variances=np.ones((2, 1)))
    >>> gmms.log_likelihoods(np.array([[0.0], [2.0]], dtype=np.float32)).round(2)
    array([[-0.92, -5.42],
           [-2.92, -1.42]], dtype=float32)
    """

    first: NDArray[np.int64]  # (P + 1,)
    log_weights: Doubles  # (G,)
    means: Doubles  # (G, D)
    variances: Doubles  # (G, D)

    def __post_init__(self) -> None:
        sizes = np.diff(self.first)
        num_gaussians = int(self.first[-1])
        shapes = (self.log_weights.shape, self.means.shape, self.variances.shape)
        expected = ((num_gaussians,), *(2 * [(num_gaussians, *self.means.shape[1:])]))
        if self.means.ndim != 2 or shapes != expected or self.first[0] != 0 or (sizes < 1).any():
            raise ValueError(
                f"mixtures of {num_gaussians} Gaussians have log_weights, means and variances of "
                f"shapes {shapes}, and {(sizes < 1).sum()} of {len(sizes)} pdfs are empty; "
                "expected (G,), (G, D), (G, D), and one Gaussian or more for each pdf"
            )

    def __reduce__(self) -> tuple[Any, ...]:  # without what is computed from the four arrays
        return GmmSet, (self.first, self.log_weights, self.means, self.variances)

    @staticmethod
    def single(means: Doubles, variances: Doubles) -> GmmSet:
        """Return pdfs of one Gaussian each, from (P, D) means and variances."""
        first = np.arange(len(means) + 1, dtype=np.int64)
        return GmmSet(first, np.zeros(len(means)), means, variances)

    @staticmethod
    def flat(mean: Doubles, variance: Doubles, num_pdfs: int) -> GmmSet:
        """Return pdfs that are all the same Gaussian, for a flat start."""
        return GmmSet.single(np.tile(mean, (num_pdfs, 1)), np.tile(variance, (num_pdfs, 1)))

    @property
    def num_pdfs(self) -> int:
        """P."""
        return len(self.first) - 1

    @property
    def num_gaussians(self) -> int:
        """G."""
        return len(self.log_weights)

    @property
    def dim(self) -> int:
        """D, the dimension of the features."""
        return int(self.means.shape[1])

    @cached_property
    def pdf_of_gaussian(self) -> NDArray[np.int32]:
        """(G,) the pdf that each Gaussian belongs to."""
        return np.repeat(np.arange(self.num_pdfs, dtype=np.int32), np.diff(self.first))

    @cached_property
    def precisions(self) -> Doubles:
        """(G, D) one over the variances."""
        return np.asarray(1.0 / self.variances)

    @cached_property
    def _log_peaks(self) -> Doubles:
        """(G,) the logarithm of each weighted Gaussian at its mean."""
        logs = np.log(2 * math.pi * self.variances)
        return np.asarray(self.log_weights - 0.5 * logs.sum(axis=1))

    @cached_property
    def _centre(self) -> Doubles:
        return np.asarray(self.means.mean(axis=0))

    @cached_property
    def _coefficients(self) -> Floats:
        """(G, 2 D + 1): the linear function of (x, x^2, 1) that each Gaussian's logarithm is."""
        means = self.means - self._centre
        linear = means * self.precisions
        constants = self._log_peaks - 0.5 * (linear * means).sum(axis=1)
        rows = np.concatenate([linear, -0.5 * self.precisions, constants[:, None]], axis=1)
        return rows.astype(np.float32)

    def log_likelihoods(self, features: Floats) -> Floats:
        """Return log p(x | pdf), (T, P), of T frames and all pdfs."""
        self._check(features)
        centred = features - self._centre.astype(np.float32)
        ones = np.ones((len(features), 1), dtype=np.float32)
        expanded = np.concatenate([centred, centred**2, ones], axis=1, dtype=np.float32)
        result = np.empty((len(features), self.num_pdfs), dtype=np.float32)
        for begin in range(0, len(features), CHUNK_FRAMES):
            scores = self._coefficients @ expanded[begin : begin + CHUNK_FRAMES].T
            result[begin : begin + CHUNK_FRAMES] = log_sum_exp_by_segment(scores, self.first).T
        return result

    def restricted_to(self, pdfs: NDArray[np.int32]) -> GmmSet:
        """Return the mixtures of some pdfs, which are numbered anew in the order given.

        >>> gmms = GmmSet.single(means=np.array([[0.0], [3.0], [5.0]]), variances=np.ones((3, 1)))
        >>> gmms.restricted_to(np.array([2, 0])).means[:, 0]
        array([5., 0.])
        """
        gaussians = self._gaussians_of(pdfs)
        first = np.concatenate([[0], np.cumsum(np.diff(self.first)[pdfs])])
        values = (self.log_weights, self.means, self.variances)
        return GmmSet(first, *(value[gaussians] for value in values))

    def posteriors(
        self, features: Floats, pdfs: NDArray[np.int32], weights: Doubles | None = None
    ) -> GaussianPosteriors:
        """Return how much the Gaussians of each frame's pdf explain it; in float64.

        Args:
            features: (T, D).
            pdfs: (T,) the pdf of each frame.
            weights: (T,) what the posteriors of a frame sum to; by default 1.
        """
        self._check(features)
        pdfs = np.ascontiguousarray(pdfs, dtype=np.int32)
        if pdfs.shape != (len(features),) or (
            len(pdfs) and not 0 <= pdfs.min() <= pdfs.max() < self.num_pdfs
        ):
            raise ValueError(
                f"pdfs of shape {pdfs.shape} for {len(features)} frames; expected one for each "
                f"frame, from 0 to before {self.num_pdfs}: are they of another model or tree?"
            )
        frame = np.repeat(np.arange(len(pdfs), dtype=np.int32), np.diff(self.first)[pdfs])
        gaussian = self._gaussians_of(pdfs)
        posterior, log_likelihood = np.empty(len(frame)), np.empty(len(pdfs))
        fill_posteriors(
            *(np.ascontiguousarray(features, dtype=np.float32), pdfs, self.first),
            *(self.means, self.precisions, self._log_peaks, posterior, log_likelihood),
        )
        if weights is not None:
            posterior *= weights[frame]
        return GaussianPosteriors(frame, gaussian, posterior, log_likelihood)

    def _gaussians_of(self, pdfs: NDArray[np.int32]) -> NDArray[np.int32]:
        """The numbers of the Gaussians of the first of these pdfs, then of the next, and so on."""
        sizes = np.diff(self.first)[pdfs]
        offsets = self.first[pdfs] - (np.cumsum(sizes) - sizes)
        return np.asarray(np.arange(sizes.sum()) + np.repeat(offsets, sizes), dtype=np.int32)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that these mixtures are."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> GmmSet:
        """Return the mixtures that `to_arrays` gave the arrays of; other arrays are ignored."""
        return GmmSet(**{field.name: arrays[field.name] for field in fields(GmmSet)})

    def write(self, path: str | Path) -> None:
        """Write a model file."""
        tensors = {name: torch.from_numpy(array) for name, array in self.to_arrays().items()}
        write_model(path, tensors, {"kind": KIND})

    @staticmethod
    def read(path: str | Path) -> GmmSet:
        """Read the model file that `write` wrote."""
        return read_of_kind(
            path,
            KIND,
            lambda model: GmmSet.from_arrays(
                {name: t.numpy() for name, t in model.tensors.items()}
            ),
        )

    def _check(self, features: Floats) -> None:
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise ValueError(
                f"features of shape {features.shape} given to mixtures of dimension {self.dim}; "
                f"expected (frames, {self.dim}): do they come from another front end?"
            )
