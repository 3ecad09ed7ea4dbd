"""The online update with finite minibatches of Gaussian rows, whose covariance stays the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, fields
from statistics import fmean

import torch
from torch import Tensor

from natgrad.optim.diagnose import dense
from natgrad.optim.factor import FisherFactor, eta_of, start
from natgrad.optim.steady_state import Distance, best_factor, distance, expected_noise, step
from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.reproduce.online_update.curve_marks import curve_marks

__all__ = ["WARM_UP", "WINDOW", "finite", "from_start"]

# In units of 1/eta updates, of which the slowest direction needs a few times 1/gap.
WARM_UP, WINDOW = 15.0, 35.0
METHODS = ("online", "eigenvectors")


def finite(
    eigenvalues: Tensor,
    rank: int,
    alpha: float,
    seed: int,
    batch_sizes: Sequence[int],
    histories: Sequence[float],
) -> Found:
    """Return the errors of the steady state, measured and expected, for each N and S."""
    cells = []
    for batch_size in batch_sizes:
        for history in histories:
            is_middle = (batch_size, history) == (
                batch_sizes[len(batch_sizes) // 2],
                histories[len(histories) // 2],
            )
            for method in METHODS if is_middle else METHODS[:1]:
                generator = torch.Generator().manual_seed(seed)
                cell = _steady_state(
                    eigenvalues, rank, alpha, batch_size, history, method, generator
                )
                cells.append(
                    {"batch_size": batch_size, "history": history, "method": method, **cell}
                )
    return {"cells": cells}


def _steady_state(
    eigenvalues: Tensor,
    rank: int,
    alpha: float,
    batch_size: int,
    history: float,
    method: str,
    generator: torch.Generator,
) -> Found:
    eta = eta_of(batch_size, history)
    factor = best_factor(eigenvalues, rank)
    norm = float(dense(factor).norm())
    first, last = round(WARM_UP / eta), round((WARM_UP + WINDOW) / eta)
    every = max(1, round(0.2 / eta))
    seen: list[Distance] = []
    for t in range(last):
        X = _rows(eigenvalues, batch_size, generator)
        advance = step if method == "online" else _by_eigenvectors
        factor = advance(factor, X, eta)
        if t >= first and t % every == 0:
            seen.append(distance(factor, eigenvalues, alpha))
    noise = expected_noise(eigenvalues, rank, eta, batch_size)
    has_gap = float(eigenvalues[rank - 1]) > float(eigenvalues[rank])
    divergences = sorted(one.divergence for one in seen)
    half = len(seen) // 2
    return {
        "eta": eta,
        "means": {f.name: fmean(getattr(one, f.name) for one in seen) for f in fields(Distance)},
        "factor_rms": math.sqrt(fmean(one.factor**2 for one in seen)),
        "expected_space": noise.space if has_gap else None,
        "expected_factor_rms": math.sqrt(noise.factor) / norm if has_gap else None,
        "divergence_5_95": [divergences[len(seen) // 20], divergences[-1 - len(seen) // 20]],
        "divergence_halves": [fmean(one.divergence for one in part)
                              for part in (seen[:half], seen[half:])],
    }  # fmt: skip


def _by_eigenvectors(factor: FisherFactor, X: Tensor, eta: float) -> FisherFactor:
    """Return the best factor for T, which the paper calls the obvious way and too slow."""
    rank = factor.R.shape[0]
    T = (eta / len(X)) * X.t() @ X + (1.0 - eta) * dense(factor)
    eigenvalues, V = torch.linalg.eigh(T)
    best = best_factor(eigenvalues.flip(0), rank)
    return FisherFactor(V.flip(1)[:, :rank].t().contiguous(), best.d, best.rho)


def from_start(
    eigenvalues: Tensor,
    rank: int,
    alpha: float,
    seed: int,
    batch_size: int,
    histories: Sequence[float],
    num_samples: int,
) -> Found:
    """Return how the errors fall from the first minibatch on, for each S."""
    curves: Found = {}
    for history in histories:
        generator = torch.Generator().manual_seed(seed)
        eta = eta_of(batch_size, history)
        factor: FisherFactor | None = None
        num_updates = num_samples // batch_size
        marks, curve = set(curve_marks(num_updates)), []
        for t in range(num_updates + 1):
            X = _rows(eigenvalues, batch_size, generator)
            factor = start(X, rank) if factor is None else factor
            if t in marks:
                curve.append(
                    {
                        "samples": (t + 1) * batch_size,
                        **asdict(distance(factor, eigenvalues, alpha)),
                    }
                )
            factor = step(factor, X, eta)
        curves[f"{history:g}"] = curve
    return {"curves": curves, "batch_size": batch_size}


def _rows(eigenvalues: Tensor, num: int, generator: torch.Generator) -> Tensor:
    noise = torch.randn(num, len(eigenvalues), generator=generator, dtype=torch.float64)
    return noise * eigenvalues.sqrt()
