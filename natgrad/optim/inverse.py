"""The inverse of a positive definite matrix, by products."""

from __future__ import annotations

import torch
from torch import Tensor

from natgrad.optim.product import linear, minus_transposed, times

# LAPACK takes matrices of up to this size; larger ones are put together by products, which take
# about half of its time at 512 x 512 (LOG.md).
MAX_LAPACK_SIZE = 128


def inverse(lower: Tensor) -> Tensor:
    """Return the inverse of the positive definite matrix (N, N) whose lower triangle is given.

    By halves: with A = L L^T, P = L^-1, T = C P^T, U = T P = C A^-1, and S = D - T T^T,

        [A  C^T]^-1     [P^T P + U^T S^-1 U   -U^T S^-1]
        [C  D  ]     =  [     -S^-1 U            S^-1   ]

    The first half is factored, and not inverted: S from A^-1 itself would lose the digits of the
    condition number twice.

    >>> inverse(torch.tensor([[2.0, 0.0], [1.0, 1.0]]))
    tensor([[ 1.0000, -1.0000],
            [-1.0000,  2.0000]])
    """
    size, half = lower.shape[0], lower.shape[0] // 2
    if size <= MAX_LAPACK_SIZE:
        return torch.cholesky_inverse(torch.linalg.cholesky(lower))
    P, U, S = _eliminate(lower, half)
    S_inverse = inverse(S)
    corner = times(S_inverse, U)
    P_transposed = minus_transposed(P)  # twice, so that its sign does not matter
    result = torch.empty_like(lower)
    torch.add(linear(P_transposed, P_transposed), times(U.t(), corner), out=result[:half, :half])
    torch.neg(corner, out=result[half:, :half])
    minus_transposed(corner, out=result[:half, half:])
    result[half:, half:] = S_inverse
    return result


def _inverse_factor(lower: Tensor) -> Tensor:
    """Return the inverse of the Cholesky factor L of a matrix L L^T: [P 0; -Q U Q], Q of S."""
    size, half = lower.shape[0], lower.shape[0] // 2
    if size <= MAX_LAPACK_SIZE:
        identity = torch.eye(size, dtype=lower.dtype, device=lower.device)
        P: Tensor = torch.linalg.solve_triangular(
            torch.linalg.cholesky(lower), identity, upper=False
        )
        return P
    P, U, S = _eliminate(lower, half)
    Q = _inverse_factor(S)
    result = torch.zeros_like(lower)
    result[:half, :half] = P
    result[half:, half:] = Q
    torch.neg(times(Q, U), out=result[half:, :half])
    return result


def _eliminate(lower: Tensor, half: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, U and the lower triangle of S."""
    P = _inverse_factor(lower[:half, :half])
    T = linear(lower[half:, :half], P)
    return P, times(T, P), lower[half:, half:] - linear(T, T)
