"""The mean of several Fisher factors, as a factor (letters as in `natgrad.optim.factor`).

The mean of F_i = R_i^T diag(d_i) R_i + rho_i I with weights w_i that sum to one,

    M = sum_i w_i F_i = B^T B + (sum_i w_i rho_i) I,    B: the rows of all (w_i diag(d_i))^1/2 R_i

is of rank N R plus identity. The factor of rank R that is closest to it (in the Frobenius norm, and
as the covariance of a Gaussian in likelihood) has M's greatest eigenvalues with their directions,
and the mean of all others instead of these:

    M r_k  = lambda_k r_k,   lambda_1 >= lambda_2 >= ...
    rho    = (tr(M) - sum_{k <= R} lambda_k) / (D - R)        so that the trace is kept
    d_k    = lambda_k - rho

which is also how a factor starts from its first minibatch. The eigenvectors come from the smaller
of B B^T (N R, N R) and B^T B (D, D).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad.optim.factor import RELATIVE_FLOOR, FisherFactor, orthonormalize

__all__ = ["average_factors"]


@torch.no_grad()
def average_factors(factors: Sequence[FisherFactor], weights: Sequence[float]) -> FisherFactor:
    """Return the factor closest to the weighted mean, of the greatest rank among them.

    One factor comes back as it is. As in `update`, d and rho stay above a small part of the largest
    eigenvalue; where that floor is met, the trace is a little above the mean's. All is computed in
    float64, and returned in the factors' type.

    Cost: an eigendecomposition of size m = min(N R, D), and 2 (m + R) N R D operations.

    >>> x, y = torch.eye(3)[:1], torch.eye(3)[1:2]
    >>> one = FisherFactor(x, torch.tensor([6.0]), 1.0)
    >>> mean = average_factors([one, FisherFactor(y, torch.tensor([2.0]), 1.0)], [1.0, 1.0])
    >>> mean.R.abs(), mean.d, mean.rho
    (tensor([[1., 0., 0.]]), tensor([2.5000]), 1.5)
    """
    _check(factors, weights)
    if len(factors) == 1:
        return factors[0]
    shares = [weight / math.fsum(weights) for weight in weights]
    rank = max(factor.R.shape[0] for factor in factors)
    num_columns = factors[0].R.shape[1]
    trace = math.fsum(w * f.trace for w, f in zip(shares, factors, strict=True))
    unit = trace / num_columns  # so that nothing below over- or underflows
    mean_rho = math.fsum(w * f.rho for w, f in zip(shares, factors, strict=True)) / unit
    B = torch.cat(
        [
            f.R.double() * (f.d.double() * (w / unit)).sqrt().unsqueeze(1)
            for w, f in zip(shares, factors, strict=True)
        ]
    )
    eigenvalues, directions = _greatest(B, rank)
    lambdas = eigenvalues + mean_rho
    floor = RELATIVE_FLOOR * float(lambdas[0])
    rho = max((num_columns - math.fsum(lambdas.tolist())) / (num_columns - rank), floor)
    d = (lambdas - rho).clamp_min(floor) * unit
    like = factors[0].R
    return FisherFactor(directions.to(like), d.to(like), rho * unit)


def _greatest(B: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return the greatest eigenvalues of B^T B (rank,), and their directions (rank, D)."""
    if B.shape[0] < B.shape[1]:
        eigenvalues, U = torch.linalg.eigh(B @ B.t())
        top = eigenvalues.flip(0)[:rank].clamp_min(0.0)
        # B^T u has the length lambda^1/2; where that is nothing, QR fills in any other direction.
        directions = U.flip(1)[:, :rank].t() @ B
        directions = torch.linalg.qr(directions.t()).Q.t()
    else:
        eigenvalues, U = torch.linalg.eigh(B.t() @ B)
        top = eigenvalues.flip(0)[:rank].clamp_min(0.0)
        directions = U.flip(1)[:, :rank].t()
    return top, orthonormalize(directions.contiguous())


def _check(factors: Sequence[FisherFactor], weights: Sequence[float]) -> None:
    if not factors or len(factors) != len(weights):
        raise ValueError(f"{len(weights)} weights for {len(factors)} factors: one each is needed")
    for weight in weights:
        if not 0.0 < weight < math.inf:
            raise ValueError(f"a weight is {weight}: weights must be positive and finite")
    dimensions = {factor.R.shape[1] for factor in factors}
    if len(dimensions) > 1:
        raise ValueError(
            f"factors of vectors of dimensions {sorted(dimensions)} have no mean: average those of "
            "the same side of the same layer"
        )
