"""The Fisher factor of the online method: low rank plus a multiple of the identity (appendix B).

    F = R^T diag(d) R + rho I                                     eqn:low:rank

tracks the uncentered covariance of row vectors that come in minibatches X (N, D), and X is
multiplied by the inverse of its smoothed version G = F + (alpha/D) tr(F) I.

Legend (the paper's letters):
    R      (rank, D)  orthonormal rows          S    X^T X / N, the covariance of this minibatch
    d      (rank,)    what they add to rho      T    eta S + (1 - eta) F, the next F's aim
    rho    scalar     the identity's multiple   H    X R^T, (N, rank)
    e      (rank,)    how much of each          Y    R T, (rank, D): one step of the power method
           direction is taken out               Z    Y Y^T = U diag(c) U^T

We keep R itself where the paper keeps W = E^1/2 R, and form Z directly instead of from J, K and L:
that saves the product for L, by either of the paper's strategies, and half of the symbols (LOG.md
has the times).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.optim.one_thread import one_thread
from natgrad.optim.product import linear, times
from natgrad.optim.rows import squared_frobenius_norm

MAX_ETA = 0.9  # as in Kaldi: some of the past stays, however large the minibatch
RELATIVE_FLOOR = 5e-4  # as in Kaldi: d and rho stay above this part of the largest sqrt(c)
ABSOLUTE_FLOOR = 1e-35  # the smallest tr(T) that float32 arithmetic carries through an update
MIN_EIGENVALUE = 1e-30  # of Z / tr(T)^2: with it, R stays finite where F is negligible beside X
MAX_LOSS = 1e3  # how much Z's round-off may be amplified in R before orthogonality is checked
MAX_NON_ORTHOGONALITY = 1e-3  # of an element of R R^T - I: above it, R is repaired
MAX_START_SIZE = 1024  # the largest eigenproblem that a start may solve


@dataclass(frozen=True)
class FisherFactor:
    """F = R^T diag(d) R + rho I; R (rank, D) has orthonormal rows, d (rank,) > 0, rho > 0."""

    R: Tensor
    d: Tensor
    rho: float

    @property
    def trace(self) -> float:
        """tr(F)."""
        return self.rho * self.R.shape[1] + math.fsum(self.d.tolist())

    def removed(self, alpha: float) -> Tensor:
        """Return e (rank,): G^-1 = (I - R^T diag(e) R) / beta, by the Woodbury identity.

        beta = rho (1 + alpha) + (alpha/D) tr(D)     eqn:beta2
        e_i  = 1 / (beta / d_i + 1)                  eqn:etii

        The inputs are scaled by 1 - e_i in direction i: e close to one takes nearly all of it out.
        """
        beta = self.rho + alpha / self.R.shape[1] * self.trace
        return self.d / (self.d + beta)


def start(X: Tensor, rank: int) -> FisherFactor:
    """Return the factor closest to the covariance of the first minibatch ("Initialization").

    The top eigenvectors of S = X^T X / N come from the smaller of X^T X and X X^T, which have the
    same spectrum; where both are larger than `MAX_START_SIZE`, from that many rows, evenly chosen.
    Directions that X does not reach are filled up with any orthonormal ones. X must not be zero,
    and rank < D.
    """
    num_columns = X.shape[1]
    if min(X.shape) > MAX_START_SIZE:
        X = X[:: -(-X.shape[0] // MAX_START_SIZE)]
    num_rows = X.shape[0]
    norm = math.sqrt(squared_frobenius_norm(X))
    if norm == 0.0:  # the chosen rows happen to be zero: nothing is known of the directions yet
        return FisherFactor(torch.eye(rank, num_columns, dtype=X.dtype, device=X.device),
                            X.new_full((rank,), ABSOLUTE_FLOOR), ABSOLUTE_FLOOR)  # fmt: skip
    X = X / norm  # tr(X^T X) = 1, so that nothing below over- or underflows
    if num_rows < num_columns:
        eigenvalues, U = torch.linalg.eigh(X @ X.t())
        directions = U.t().flip(0)[:rank] @ X
    else:
        eigenvalues, U = torch.linalg.eigh(X.t() @ X)
        directions = U.t().flip(0)[:rank]
    num_found = directions.shape[0]
    filled = X.new_zeros(rank, num_columns)
    filled[:num_found] = directions
    # Householder QR keeps the leading directions as they are and completes the missing ones.
    R = torch.linalg.qr(filled.t()).Q.t().contiguous()
    lambdas = X.new_zeros(rank)
    lambdas[:num_found] = eigenvalues.flip(0)[:rank].clamp_min(0.0)
    covariance_scale = norm**2 / num_rows
    floor = RELATIVE_FLOOR * float(lambdas[0])
    rho = max((1.0 - float(lambdas.sum())) / (num_columns - rank), floor)
    d = (lambdas - rho).clamp_min(floor)
    return FisherFactor(R, d * covariance_scale, rho * covariance_scale)


def eta_of(num_samples: int, num_samples_history: float) -> float:
    """Return the weight of a minibatch, 1 - exp(-N/S) (eqn:eta:ns), at most `MAX_ETA`."""
    return min(MAX_ETA, -math.expm1(-num_samples / num_samples_history))


def update(
    factor: FisherFactor,
    X: Tensor,
    H: Tensor,
    squared_norm: float,
    eta: float,
    absolute_floor: float = 0.0,
) -> FisherFactor:
    """Return the factor after seeing X, by one step of the power method on T = eta S + (1 - eta) F.

    Y = R T = (eta/N) H^T X + (1 - eta) diag(d + rho) R           eqn:yt
    Z = Y Y^T = U diag(c) U^T,  c >= ((1 - eta) rho)^2            eqn:zt:def, eqn:zt:eig:repeat
    R' = diag(c)^-1/2 U^T Y                                       eqn:rt1:def
    rho' = (tr(T) - tr(c^1/2)) / (D - rank)                       eqn:rhodash2
    d' = max(c^1/2 - rho', floor),  rho' = max(rho', floor)       eqn:dt1, eqn:rhot1

    H = X R^T and squared_norm = tr(X X^T) are known from preconditioning. All is computed in units
    of tr(T), so that the fourth powers in Z neither over- nor underflow and the result is
    equivariant to the scale of X. `absolute_floor` (in the units of X^2) is only there to reproduce
    the reference implementation, whose floor is 1e-10.

    Z is decomposed in float64: in float32 the error, eps max(c), is not small beside min(c), and R
    loses its orthogonality (measured: 0.2 instead of 1e-6). What is left is the round-off of Z
    itself, eps |y_i| |y_j|, which U and c^-1/2 amplify by at most max_k sum_i Z_ii U_ik^2 / c_k: 1
    at convergence, max(c)/min(c) at worst. Where it is large, orthogonality is checked. (The
    paper's test, max(c) > 1e6 min(c), misses errors of 2e-3 and makes the check at every update of
    ordinary ill-conditioned data.)

    Cost: 2 N D rank + 4 D rank^2 operations and one eigendecomposition of (rank, rank).
    """
    rank, num_columns = factor.R.shape
    weight_new = eta / X.shape[0]
    unit = weight_new * squared_norm + (1.0 - eta) * factor.trace  # tr(T)
    if unit < ABSOLUTE_FLOOR:  # zeros only, for a very long time: keep what was known
        return factor
    previous = (factor.d + factor.rho).mul_((1.0 - eta) / unit).unsqueeze(1)
    Y = times((H * (weight_new / unit)).t(), X).addcmul_(factor.R, previous)
    Z = linear(Y, Y).to("cpu", torch.float64)  # small: faster there than on an accelerator
    with one_thread():
        eigenvalues, U = torch.linalg.eigh(Z)  # in ascending order
    c_floor = max(((1.0 - eta) * factor.rho / unit) ** 2, MIN_EIGENVALUE)
    c = eigenvalues.clamp_min(c_floor)
    sqrt_c = c.sqrt()
    R = times((U / sqrt_c).flip(1).to(Y).t(), Y)
    amplified = (U.square_().t() @ Z.diagonal()).div_(c)
    if eigenvalues[0].item() < c_floor or amplified.max().item() > MAX_LOSS:
        R = orthonormalize(R)
    rho = (1.0 - sqrt_c.sum().item()) / (num_columns - rank)
    floor = max(absolute_floor / unit, RELATIVE_FLOOR * sqrt_c[-1].item())
    d = sqrt_c.flip(0).sub_(rho).clamp_min_(floor).mul_(unit)
    return FisherFactor(R, d.to(factor.d), max(rho, floor) * unit)


def orthonormalize(R: Tensor) -> Tensor:
    """Return R with its rows made orthonormal, if round-off has made them less so.

    Section "Maintaining orthogonality": R <- C^-1 R with R R^T = C C^T; by Householder QR where the
    Cholesky decomposition fails.
    """
    gram = R @ R.t()
    identity = torch.eye(gram.shape[0], dtype=R.dtype, device=R.device)
    if float((gram - identity).abs().max()) <= MAX_NON_ORTHOGONALITY:
        return R
    cholesky, info = torch.linalg.cholesky_ex(gram)
    if int(info) == 0:
        repaired: Tensor = torch.linalg.solve_triangular(cholesky, R, upper=False)
        if float((repaired @ repaired.t() - identity).abs().max()) <= MAX_NON_ORTHOGONALITY:
            return repaired
    Q: Tensor = torch.linalg.qr(R.t()).Q
    return Q.t().contiguous()
