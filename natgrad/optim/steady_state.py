"""What the online update converges to when the covariance does not change (section 5.3).

The rows have a covariance Sigma with eigenvalues lambda_1 >= ... >= lambda_D. The update commutes
with rotations, so we stay in the basis of its eigenvectors, where Sigma is diagonal.

*Infinite minibatches* (S = Sigma). If R' spans what R spans, that space is invariant under T and
under F, so under Sigma: every fixed point is a set of eigenvectors, with f_i = d_i + rho the
eigenvalue of each, and rho the mean of the others. A part epsilon of eigenvector j in row i
becomes, to first order, in one update

    epsilon' = epsilon (eta lambda_j + (1 - eta) f_i) / (eta lambda_i + (1 - eta) f_i)
             = epsilon (1 - eta (1 - lambda_j / lambda_i))        where f_i = lambda_i

so that a set other than the top one is not stable, and the top one is, if lambda_R > lambda_R+1
(`convergence_rate`). The eigenvalues follow with rate 1 - eta. The top set is the best that an F of
this form (d >= 0) can be, in Frobenius norm; also in likelihood: it is the factor of probabilistic
principal component analysis (Tipping and Bishop, 1999). Its trace is Sigma's. The floors of
`natgrad.optim.factor` keep d and rho above 5e-4 of the largest eigenvalue; `limit_factor` has them.

*Finite minibatches* (N rows that are independent and Gaussian). To first order in the noise s of S,
epsilon' = epsilon (1 - eta (1 - lambda_j / lambda_i)) + eta s_ij / lambda_i, and elsewhere F is the
mean of S with exponential weights. `expected_noise` is what this settles to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.optim.diagnose import dense, smoothed
from natgrad.optim.factor import RELATIVE_FLOOR, FisherFactor, Observation, update

__all__ = [
    "Distance",
    "Noise",
    "best_factor",
    "convergence_rate",
    "distance",
    "exact_minibatch",
    "expected_noise",
    "limit_factor",
    "step",
]

NUM_FLOOR_ITERATIONS = 60  # each brings the floor closer to its limit by a factor of 1000


def best_factor(eigenvalues: Tensor, rank: int) -> FisherFactor:
    """Return the low-rank-plus-identity matrix that is closest to diag(eigenvalues), descending.

    >>> best_factor(torch.tensor([5.0, 3.0, 2.0, 0.0]), rank=1)
    FisherFactor(R=tensor([[1., 0., 0., 0.]]), d=tensor([3.3333]), rho=1.6666666666666667)
    """
    _check(eigenvalues, rank)
    rho = math.fsum(eigenvalues[rank:].tolist()) / (len(eigenvalues) - rank)
    R = torch.eye(rank, len(eigenvalues), dtype=eigenvalues.dtype)
    return FisherFactor(R, eigenvalues[:rank] - rho, rho)


def limit_factor(eigenvalues: Tensor, rank: int, eta: float) -> FisherFactor:
    """Return the fixed point of the update with S = diag(eigenvalues): the best, but for floors.

    With floors f, it has d_i = max(lambda_i - rho*, f) and rho = max(rho*, f), rho* being the best;
    f is `RELATIVE_FLOOR` of T's largest eigenvalue, which is Sigma's, and f more where rho is at f.
    """
    best = best_factor(eigenvalues, rank)
    floor = 0.0
    for _ in range(NUM_FLOOR_ITERATIONS):
        d, rho = best.d.clamp_min(floor), max(best.rho, floor)
        largest = eta * float(eigenvalues[0]) + (1.0 - eta) * (float(d[0]) + rho)
        floor = RELATIVE_FLOOR * largest
    return FisherFactor(best.R, best.d.clamp_min(floor), max(best.rho, floor))


def convergence_rate(eigenvalues: Tensor, rank: int, eta: float) -> float:
    """Return the factor by which an update brings R's space closer to the top one, in the end.

    It is 1 - eta (1 - lambda_R+1 / lambda_R), and closer to 1 where floors hold f_R up.

    >>> convergence_rate(torch.tensor([4.0, 4.0, 2.0, 1.0]), rank=2, eta=0.5)
    0.75
    """
    limit = limit_factor(eigenvalues, rank, eta)
    kept = (1.0 - eta) * (limit.d + limit.rho)
    return float(((eta * eigenvalues[rank] + kept) / (eta * eigenvalues[:rank] + kept)).max())


def exact_minibatch(eigenvalues: Tensor) -> Tensor:
    """Return X (D, D) with X^T X / D = diag(eigenvalues): what an infinite minibatch teaches.

    >>> X = exact_minibatch(torch.tensor([4.0, 1.0]))
    >>> X.T @ X / 2
    tensor([[4.0000, 0.0000],
            [0.0000, 1.0000]])
    """
    return torch.diag((len(eigenvalues) * eigenvalues).sqrt())


def step(factor: FisherFactor, X: Tensor, eta: float) -> FisherFactor:
    """Return the factor after one update of the online method, the very one that NGSGD makes."""
    return update(Observation(factor, X, X @ factor.R.t(), float(X.square().sum()), eta))


@dataclass(frozen=True)
class Noise:
    """Expected squares of what is left of the error, in the steady state.

    space: the sum of squared sines of the angles between R's space and the top one
    factor: ||F - F*||^2 (Frobenius), with F* the best
    """

    space: float
    factor: float


def expected_noise(eigenvalues: Tensor, rank: int, eta: float, num_samples: int) -> Noise:
    """Return the noise of the steady state, to first order in 1/N; infinite without a gap.

    With i among the top and j among the rest, g_ij = 1 - lambda_j / lambda_i, and
    k = eta / ((2 - eta) N), which is about 1 / 2S where N is small beside S:

        E epsilon_ij^2 = eta lambda_j / (N (2 - eta g_ij) (lambda_i - lambda_j))
        E ||F - F*||^2 = k (sum_i sum_i' lambda_i lambda_i' + sum_i lambda_i^2)
                         + 2 sum_ij d_i^2 E epsilon_ij^2 + 2 k sum_j lambda_j^2 / (D - R)
    """
    _check(eigenvalues, rank)
    top, rest = eigenvalues[:rank].double().unsqueeze(1), eigenvalues[rank:].double()
    k = eta / ((2.0 - eta) * num_samples)
    gap = 1.0 - rest / top
    epsilon = eta * rest / (num_samples * (2.0 - eta * gap) * (top - rest))
    d = top - rest.mean()
    tracked = float(top.sum() ** 2 + top.square().sum() + 2.0 * rest.square().mean())
    return Noise(
        space=float(epsilon.sum()),
        factor=k * tracked + 2.0 * float((d.square() * epsilon).nan_to_num(nan=math.inf).sum()),
    )


@dataclass(frozen=True)
class Distance:
    """How far a factor is from the best one, or from the covariance.

    space: the sum of squared sines of the angles between R's space and the top one
    largest_sine: of these angles
    values: relative error of the top eigenvalues d + rho, as a vector
    rho: relative error of rho
    factor: ||F - F*|| / ||F*|| (Frobenius)
    excess: (||F - Sigma|| - ||F* - Sigma||) / ||Sigma||: zero for every best factor, if ties at the
        cut make several
    divergence: of the Gaussian of covariance Sigma from that of F, in nats, less what F* has
    trace: relative error of the trace
    inverse: ||G^-1 - G*^-1|| / ||G*^-1||, of the smoothed matrices that gradients meet
    """

    space: float
    largest_sine: float
    values: float
    rho: float
    factor: float
    excess: float
    divergence: float
    trace: float
    inverse: float


def distance(factor: FisherFactor, eigenvalues: Tensor, alpha: float = 4.0) -> Distance:
    """Return how far a factor is from the best for diag(eigenvalues), with its rank."""
    rank = factor.R.shape[0]
    best = best_factor(eigenvalues, rank)
    if best.rho <= 0.0:
        raise ValueError(
            f"all eigenvalues but the first {rank} are zero: the best factor is singular then, and "
            "no distance from it is finite"
        )
    F, F_best, Sigma = dense(factor), dense(best), torch.diag(eigenvalues.double())
    outside = factor.R[:, rank:].double()
    inverse, inverse_best = (torch.linalg.inv(smoothed(M, alpha)) for M in (F, F_best))
    values = (factor.d + factor.rho - eigenvalues[:rank]).double()
    norm = torch.linalg.matrix_norm
    return Distance(
        space=float(outside.square().sum()),
        largest_sine=float(norm(outside, 2)),
        values=float(values.norm() / eigenvalues[:rank].double().norm()),
        rho=abs(factor.rho - best.rho) / best.rho,
        factor=float(norm(F - F_best) / norm(F_best)),
        excess=float((norm(F - Sigma) - norm(F_best - Sigma)) / norm(Sigma)),
        divergence=_cross_entropy(Sigma, F) - _cross_entropy(Sigma, F_best),
        trace=abs(factor.trace / float(Sigma.trace()) - 1.0),
        inverse=float(norm(inverse - inverse_best) / norm(inverse_best)),
    )


def _cross_entropy(Sigma: Tensor, F: Tensor) -> float:
    """Return -E[log density of N(0, F)] over N(0, Sigma), but for a constant."""
    cholesky = torch.linalg.cholesky(F)
    log_determinant = 2.0 * float(cholesky.diagonal().log().sum())
    return 0.5 * (float(torch.cholesky_solve(Sigma, cholesky).trace()) + log_determinant)


def _check(eigenvalues: Tensor, rank: int) -> None:
    if eigenvalues.dim() != 1 or not 0 < rank < len(eigenvalues):
        raise ValueError(
            f"expected a vector of eigenvalues and a rank from 1 to one less than there are, but "
            f"got shape {tuple(eigenvalues.shape)} and rank {rank}"
        )
    if bool((eigenvalues.diff() > 0).any()) or not float(eigenvalues[-1]) >= 0.0:
        raise ValueError(
            "expected eigenvalues from the largest to the least, none below zero, but got "
            f"{eigenvalues.tolist()}"
        )
