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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.optim.native import kernels_in_use
from natgrad.optim.one_thread import one_thread
from natgrad.optim.product import linear, times
from natgrad.optim.rows import squared_frobenius_norm

MAX_NATIVE_RANK = 200  # of larger matrices LAPACK finds the eigenvalues in less time
MAX_ETA = 0.9  # as in Kaldi: some of the past stays, however large the minibatch
RELATIVE_FLOOR = 5e-4  # as in Kaldi: d and rho stay above this part of the largest sqrt(c)
ABSOLUTE_FLOOR = 1e-35  # the smallest tr(T) that float32 arithmetic carries through an update
MIN_EIGENVALUE = 1e-30  # of Z / tr(T)^2: with it, R stays finite where F is negligible beside X
# How much Z's round-off may be amplified in R before orthogonality is checked. In float32, the
# largest element of R R^T - I was up to 22 eps times as large as that (rank 90, D = 1500).
MAX_LOSS = 40.0
# Of an element of R R^T - I, in units of sqrt(eps): above it, R is repaired (1e-4 in float32).
MAX_NON_ORTHOGONALITY = 0.3
MAX_START_SIZE = 1024  # the largest eigenproblem that a start may solve
MIN_LEFT = 1e-3  # of tr(X^T X), which sums of rows keep in the mean: below it, they have cancelled


@dataclass(frozen=True)
class FisherFactor:
    """F = R^T diag(d) R + rho I; R (rank, D) has orthonormal rows, d (rank,) > 0, rho > 0."""

    R: Tensor
    d: Tensor
    rho: float

    @cached_property
    def trace(self) -> float:
        """tr(F)."""
        return self.rho * self.R.shape[1] + math.fsum(self.d.tolist())

    def beta(self, alpha: float) -> float:
        """Return rho (1 + alpha) + (alpha/D) tr(D): the identity's multiple in G, eqn:beta2."""
        return self.rho + alpha / self.R.shape[1] * self.trace

    def removed(self, alpha: float) -> Tensor:
        """Return e (rank,): G^-1 = (I - R^T diag(e) R) / beta, by the Woodbury identity.

        e_i = 1 / (beta / d_i + 1)                   eqn:etii

        The inputs are scaled by 1 - e_i in direction i: e close to one takes nearly all of it out.
        """
        return self.d / (self.d + self.beta(alpha))


def start(X: Tensor, rank: int) -> FisherFactor:
    """Return the factor closest to the covariance of the first minibatch ("Initialization").

    The top eigenvectors of S = X^T X / N come from the smaller of X^T X and X X^T, which have the
    same spectrum; where both are larger than `MAX_START_SIZE`, from that many sums of rows.
    Directions that X does not reach are filled up with any orthonormal ones. X must not be zero,
    and rank < D.
    """
    norm = math.sqrt(squared_frobenius_norm(X))
    covariance_scale = norm**2 / X.shape[0]
    # tr(X^T X) = 1, so that nothing below over- or underflows.
    X = X / norm if min(X.shape) <= MAX_START_SIZE else _sums_of_rows(X, MAX_START_SIZE, norm)
    num_rows, num_columns = X.shape
    is_wide = num_rows < num_columns
    # In float64: in float32, LAPACK may fail or return NaN where many rows are zero.
    gram = (X @ X.t() if is_wide else X.t() @ X).to("cpu", torch.float64)
    eigenvalues, U = (found.to(X) for found in torch.linalg.eigh(gram))
    top = U.t().flip(0)[:rank]
    directions = top @ X if is_wide else top
    num_found = directions.shape[0]
    filled = X.new_zeros(rank, num_columns)
    filled[:num_found] = directions
    # Householder QR keeps the leading directions as they are and completes the missing ones.
    R = torch.linalg.qr(filled.t()).Q.t().contiguous()
    lambdas = X.new_zeros(rank)
    lambdas[:num_found] = eigenvalues.flip(0)[:rank].clamp_min(0.0)
    floor = RELATIVE_FLOOR * float(lambdas[0])
    rho = max((1.0 - float(lambdas.sum())) / (num_columns - rank), floor)
    d = (lambdas - rho).clamp_min(floor)
    return FisherFactor(R, d * covariance_scale, rho * covariance_scale)


def _sums_of_rows(X: Tensor, num_sums: int, norm: float) -> Tensor:
    """Return so many sums of rows, scaled to the norm 1; `norm` is that of X.

    Their covariance is that of X in expectation, but for the scale. Each row goes, with a sign,
    into one sum, and both are drawn: some of the rows alone might leave out just those that are not
    zero, as of sequences with a loss on their last frame.
    """
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(X.shape[0], generator=generator).to(X.device)
    signs = torch.randint(2, (X.shape[0],), generator=generator).to(X) * 2.0 - 1.0
    sums = X.new_zeros(num_sums, X.shape[1])
    for rows, sign in zip(order.split(num_sums), signs.split(num_sums), strict=True):
        sums[: len(rows)].addcmul_(X[rows], (sign / norm).unsqueeze(1))
    squared_norm = squared_frobenius_norm(sums)
    if squared_norm < MIN_LEFT:  # two rows that are alike, say, have had the bad luck to meet
        largest = int(torch.linalg.vector_norm(X, dim=1).argmax())
        sums = X[largest : largest + 1] / norm
        squared_norm = squared_frobenius_norm(sums)
    unit: Tensor = sums / math.sqrt(squared_norm)
    return unit


def eta_of(num_samples: int, num_samples_history: float) -> float:
    """Return the weight of a minibatch, 1 - exp(-N/S) (eqn:eta:ns), at most `MAX_ETA`."""
    return min(MAX_ETA, -math.expm1(-num_samples / num_samples_history))


class Observation(NamedTuple):
    """A minibatch that a factor is to learn from.

    factor: what X was preconditioned with
    X: (N, D)
    H: X R^T, (N, rank), which is known from preconditioning
    squared_norm: tr(X X^T), which is too
    eta: the weight of this minibatch
    """

    factor: FisherFactor
    X: Tensor
    H: Tensor
    squared_norm: float
    eta: float

    @property
    def weight(self) -> float:
        """eta / N: that of each row."""
        return self.eta / self.X.shape[0]

    def trace(self) -> float:
        """Return tr(T)."""
        return self.weight * self.squared_norm + (1.0 - self.eta) * self.factor.trace


def update(observation: Observation, absolute_floor: float = 0.0) -> FisherFactor:
    """Return the factor after seeing X, by one step of the power method on T = eta S + (1 - eta) F.

    Y = R T = (eta/N) H^T X + (1 - eta) diag(d + rho) R           eqn:yt
    Z = Y Y^T = U diag(c) U^T,  c >= ((1 - eta) rho)^2            eqn:zt:def, eqn:zt:eig:repeat
    R' = diag(c)^-1/2 U^T Y                                       eqn:rt1:def
    rho' = (tr(T) - tr(c^1/2)) / (D - rank)                       eqn:rhodash2
    d' = max(c^1/2 - rho', floor),  rho' = max(rho', floor)       eqn:dt1, eqn:rhot1

    All is computed in units of tr(T), so that the fourth powers in Z neither over- nor underflow
    and the result is equivariant to the scale of X. `absolute_floor` (in the units of X^2) is only
    there to reproduce the reference implementation, whose floor is 1e-10.

    Z is decomposed in float64: in float32 the error, eps max(c), is not small beside min(c), and R
    loses its orthogonality (measured: 0.2 instead of 1e-6). What is left is the round-off of Z
    itself, eps |y_i| |y_j|, which U and c^-1/2 amplify by at most max_k sum_i Z_ii U_ik^2 / c_k: 1
    at convergence, max(c)/min(c) at worst. Where it is large, orthogonality is checked. (The
    paper's test, max(c) > 1e6 min(c), misses errors of 2e-3 and makes the check at every update of
    ordinary ill-conditioned data.)

    Cost: 2 N D rank + 4 D rank^2 operations and one eigendecomposition of (rank, rank).
    """
    return update_all([observation], absolute_floor)[0]


def update_all(
    observations: Sequence[Observation], absolute_floor: float = 0.0
) -> list[FisherFactor]:
    """Return what `update` returns for each observation, to the last bit, in less time.

    Factors of one rank, as those of all layers' outputs mostly are, go through the many operations
    on small matrices and vectors together.
    """
    updated = [observation.factor for observation in observations]
    units = [observation.trace() for observation in observations]
    for indices in alike(updated):
        # Below the floor there were zeros only, for a very long time: what was known is kept.
        learning = [index for index in indices if units[index] >= ABSOLUTE_FLOOR]
        if learning:
            chosen = [observations[index] for index in learning]
            factors = _update_alike(chosen, [units[index] for index in learning], absolute_floor)
            for index, factor in zip(learning, factors, strict=True):
                updated[index] = factor
    return updated


def alike(factors: Sequence[FisherFactor]) -> list[list[int]]:
    """Return the places of factors that can share operations: of one rank, type and device."""
    places: dict[object, list[int]] = {}
    for index, factor in enumerate(factors):
        kind = (factor.R.shape[0], factor.R.dtype, factor.R.device)
        places.setdefault(kind, []).append(index)
    return list(places.values())


def _update_alike(
    observations: Sequence[Observation], units: Sequence[float], absolute_floor: float
) -> Iterator[FisherFactor]:
    """Yield the factor of each observation after it; all have one rank, and tr(T) is the unit.

    What has one dimension more here than in `update` has that of observations first.
    """
    Ys = _power_steps(observations, units)
    Z = torch.stack([linear(Y, Y) for Y in Ys])
    Z = Z.to("cpu", torch.float64)  # small: faster there than on an accelerator
    eigenvalues, Ut = eigh(Z)
    c_floor = [
        max(((1.0 - seen.eta) * seen.factor.rho / unit) ** 2, MIN_EIGENVALUE)
        for seen, unit in zip(observations, units, strict=True)
    ]
    c = torch.maximum(eigenvalues, column(c_floor, like=Z))
    sqrt_c = c.sqrt()
    rotations = (Ut / sqrt_c.unsqueeze(2)).flip(1).to(Ys[0])
    amplified = (Ut.square_() * Z.diagonal(dim1=1, dim2=2).unsqueeze(1)).sum(dim=2).div_(c)
    least, loss = eigenvalues[:, 0].tolist(), amplified.amax(dim=1).tolist()
    rho = [
        (1.0 - known) / (Y.shape[1] - Y.shape[0])
        for known, Y in zip(sqrt_c.sum(dim=1).tolist(), Ys, strict=True)
    ]
    floor = [
        max(absolute_floor / unit, RELATIVE_FLOOR * largest)
        for unit, largest in zip(units, sqrt_c[:, -1].tolist(), strict=True)
    ]
    d = torch.maximum(sqrt_c.flip(1).sub_(column(rho, like=Z)), column(floor, like=Z))
    d = d.mul_(column(units, like=Z)).to(Ys[0])
    for i, (rotation, Y, own_d) in enumerate(zip(rotations.unbind(), Ys, d.unbind(), strict=True)):
        R = times(rotation, Y)
        if least[i] < c_floor[i] or loss[i] > MAX_LOSS:
            R = orthonormalize(R)
        yield FisherFactor(R, own_d.clone(), max(rho[i], floor[i]) * units[i])


def eigh(Z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvalues of each matrix, ascending, and its U^T, row by row in memory."""
    kernels = kernels_in_use()
    if kernels is not None and Z.shape[-1] <= MAX_NATIVE_RANK:
        return kernels.eigh(Z)
    with one_thread():
        eigenvalues, U = torch.linalg.eigh(Z)
    return eigenvalues, U.transpose(1, 2)  # as LAPACK writes columns


def _power_steps(observations: Sequence[Observation], units: Sequence[float]) -> list[Tensor]:
    """Return each observation's Y = R T (eqn:yt), in its unit."""
    d = torch.stack([seen.factor.d for seen in observations])
    rho = column([seen.factor.rho for seen in observations], like=d)
    kept = [(1.0 - seen.eta) / unit for seen, unit in zip(observations, units, strict=True)]
    previous = (d + rho).mul_(column(kept, like=d)).unsqueeze(2)
    return [
        times((seen.H * (seen.weight / unit)).t(), seen.X).addcmul_(seen.factor.R, part)
        for seen, unit, part in zip(observations, units, previous, strict=True)
    ]


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """Return the values one below the other, (number of them, 1), in the type of another tensor."""
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)


def orthonormalize(R: Tensor) -> Tensor:
    """Return R with its rows made orthonormal, if round-off has made them less so.

    Section "Maintaining orthogonality": R <- C^-1 R with R R^T = C C^T; by Householder QR where the
    Cholesky decomposition fails.
    """
    gram = R @ R.t()
    identity = torch.eye(gram.shape[0], dtype=R.dtype, device=R.device)
    limit = MAX_NON_ORTHOGONALITY * math.sqrt(torch.finfo(R.dtype).eps)
    if float((gram - identity).abs().max()) <= limit:
        return R
    cholesky, info = torch.linalg.cholesky_ex(gram)
    if int(info) == 0:
        repaired: Tensor = torch.linalg.solve_triangular(cholesky, R, upper=False)
        if float((repaired @ repaired.t() - identity).abs().max()) <= limit:
            return repaired
    Q: Tensor = torch.linalg.qr(R.t()).Q
    return Q.t().contiguous()
