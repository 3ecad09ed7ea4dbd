"""The online update with infinite minibatches: the covariance of each is the true one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import torch
from torch import Tensor

from natgrad.optim.diagnose import dense
from natgrad.optim.factor import FisherFactor
from natgrad.optim.steady_state import (
    best_factor,
    convergence_rate,
    distance,
    exact_minibatch,
    limit_factor,
    step,
)
from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.reproduce.online_update.curve_marks import curve_marks

__all__ = ["infinite", "wrong_start"]

RATE_RANGE = (1e-11, 1e-4)  # of the largest sine, in which its rate of convergence is measured
RATE_PERIOD = 20  # updates between two looks at it
PERTURBATION = 1e-8  # of the wrong fixed point


def infinite(
    eigenvalues: Tensor,
    rank: int,
    alpha: float,
    eta: float,
    num_updates: int,
    seeds: Sequence[int],
) -> Found:
    """Return where random factors go: their distances from the best one and from the limit."""
    X = exact_minibatch(eigenvalues)
    limit = dense(limit_factor(eigenvalues, rank, eta))
    curves, rates = [], []
    for seed in seeds:
        start = _random_factor(eigenvalues, rank, seed)
        curve: list[dict[str, float]] = []
        sines: list[tuple[int, float]] = []
        for t, is_mark, factor in _followed(start, X, eta, num_updates):
            if is_mark:
                curve.append({"t": t, **_error(factor, eigenvalues, alpha, limit)})
            if t % RATE_PERIOD == 0:
                sines.append((t, float(torch.linalg.matrix_norm(factor.R[:, rank:], 2))))
        curves.append(curve)
        rates.append(_rate(sines))
    return {
        "curves": curves,
        "rates": rates,
        "predicted_rate": convergence_rate(eigenvalues, rank, eta),
        "limit_from_best": float(
            (limit - dense(best_factor(eigenvalues, rank))).norm() / limit.norm()
        ),
    }


def wrong_start(
    eigenvalues: Tensor,
    rank: int,
    alpha: float,
    eta: float,
    num_updates: int,
    seeds: Sequence[int],
) -> Found:
    """Return the way from the fixed point of the next eigenvectors: exactly, and disturbed."""
    X = exact_minibatch(eigenvalues)
    limit = dense(limit_factor(eigenvalues, rank, eta))
    dimension = len(eigenvalues)
    wrong = torch.eye(dimension, dtype=eigenvalues.dtype)[rank : 2 * rank]
    mean = float(eigenvalues.mean())
    found: Found = {}
    for seed in (None, *seeds):
        R = wrong
        if seed is not None:
            generator = torch.Generator().manual_seed(seed)
            noise = torch.randn(rank, dimension, generator=generator, dtype=torch.float64)
            R = torch.linalg.qr((wrong + PERTURBATION * noise).t()).Q.t().contiguous()
        start = FisherFactor(R, torch.full((rank,), 1e-3 * mean, dtype=R.dtype), mean)
        found["exact" if seed is None else f"seed-{seed}"] = [
            {"t": t, **_error(factor, eigenvalues, alpha, limit)}
            for t, is_mark, factor in _followed(start, X, eta, num_updates)
            if is_mark
        ]
    return found


def _followed(
    factor: FisherFactor, X: Tensor, eta: float, num_updates: int
) -> Iterator[tuple[int, bool, FisherFactor]]:
    """Yield how many updates were made, whether a curve has a point there, and the factor."""
    marks = set(curve_marks(num_updates))
    for t in range(num_updates + 1):
        yield t, t in marks, factor
        factor = step(factor, X, eta)


def _random_factor(eigenvalues: Tensor, rank: int, seed: int) -> FisherFactor:
    """Return a factor that knows the mean of the eigenvalues and nothing else."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(eigenvalues), rank, generator=generator, dtype=torch.float64)
    mean = float(eigenvalues.mean())
    d = torch.full((rank,), mean, dtype=torch.float64)
    return FisherFactor(torch.linalg.qr(noise).Q.t().contiguous(), d, mean)


def _error(
    factor: FisherFactor, eigenvalues: Tensor, alpha: float, limit: Tensor
) -> dict[str, float]:
    """Return the distance from the best factor, and two from the limit.

    beyond_limit: how much farther F is from the covariance than the limit is, for where ties make
    several limits
    """
    F, Sigma = dense(factor), torch.diag(eigenvalues)
    return {
        **asdict(distance(factor, eigenvalues, alpha)),
        "from_limit": float((F - limit).norm() / limit.norm()),
        "beyond_limit": float(((F - Sigma).norm() - (limit - Sigma).norm()) / Sigma.norm()),
    }


def _rate(sines: Sequence[tuple[int, float]]) -> float | None:
    """Return the factor per update, within the range; None if that was passed too quickly."""
    low, high = RATE_RANGE
    inside = [(t, sine) for t, sine in sines if low < sine < high]
    if len(inside) < 2:
        return None
    (t, sine), (t_last, sine_last) = inside[0], inside[-1]
    return math.exp(math.log(sine_last / sine) / (t_last - t))
