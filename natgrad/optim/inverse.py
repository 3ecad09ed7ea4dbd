"""The inverse of a positive definite matrix, by LAPACK up to a size, and by products above it.

Or by native kernels, where they are in use.
"""

from __future__ import annotations

import torch
from torch import Tensor

from natgrad.optim.native import kernels_in_use
from natgrad.optim.one_thread import one_thread
from natgrad.optim.product import linear, minus_transposed, times

# Up to these sizes LAPACK is faster than products (LOG.md has the times).
MAX_LAPACK_SIZE = 256  # for an inverse
MAX_TRIANGLE_SIZE = 64  # for the inverse of a triangle
# MKL factors 128 x 128 in 86 us and 136 x 136 in 33: it takes a matrix of up to 128 rows for small.
MAX_UNPADDED_SIZE = 96  # of those below, it is right
MIN_PADDED_SIZE = 136
# Columns this far apart, or a multiple of it, meet in the cache: 292 us for 256 x 256, 132 for 264.
BAD_SIZE = 256
PADDING = 8


def inverse_with_identity(lower: Tensor, weight: float) -> Tensor:
    """Return (I + weight A)^-1 for A (N, N), positive semidefinite, whose lower triangle is given.

    >>> inverse_with_identity(torch.tensor([[1.0, 0.0], [1.0, 1.0]]), weight=2.0)
    tensor([[ 0.6000, -0.4000],
            [-0.4000,  0.6000]])
    """
    size = lower.shape[0]
    kernels = kernels_in_use()
    if kernels is not None and kernels.suit(lower, lower):
        return kernels.inverse_with_identity(lower, weight)
    if size > MAX_LAPACK_SIZE:
        whole = lower * weight
        whole.diagonal().add_(1.0)
        return inverse(whole)
    padded = _identity(_padded_size(lower), like=lower)
    padded[:size, :size].add_(lower, alpha=weight)
    return _inverse_by_lapack(padded, size)


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
        return _inverse_by_lapack(_with_padding(lower), size)
    P, U, S = _eliminate(lower, half)
    S_inverse = inverse(S)
    S_inverse_U = times(S_inverse, U)
    minus_P_transposed = minus_transposed(P)  # of its square, the sign does not matter
    result = torch.empty_like(lower)
    corner = minus_transposed(S_inverse_U, out=result[:half, half:])
    squared = linear(minus_P_transposed, minus_P_transposed)
    torch.sub(squared, times(corner, U), out=result[:half, :half])
    torch.neg(S_inverse_U, out=result[half:, :half])
    result[half:, half:] = S_inverse
    return result


def _inverse_factor(lower: Tensor) -> Tensor:
    """Return the inverse of the Cholesky factor L of a matrix L L^T: [P 0; -Q U Q], Q of S."""
    size, half = lower.shape[0], lower.shape[0] // 2
    if size <= MAX_LAPACK_SIZE:
        with one_thread():
            return _inverse_triangle(torch.linalg.cholesky(_with_padding(lower))[:size, :size])
    P, U, S = _eliminate(lower, half)
    Q = _inverse_factor(S)
    return _lower_blocks(P, times(Q, U), Q)


def _eliminate(lower: Tensor, half: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return P, U and the lower triangle of S."""
    P = _inverse_factor(lower[:half, :half])
    T = linear(lower[half:, :half], P)
    return P, times(T, P), lower[half:, half:] - linear(T, T)


def _inverse_triangle(L: Tensor) -> Tensor:
    """Return the inverse of a lower triangle: [P 0; -Q C P Q], P and Q of its halves' own."""
    size, half = L.shape[0], L.shape[0] // 2
    if size <= MAX_TRIANGLE_SIZE:
        # From the right, torch has less to copy.
        result: Tensor = torch.linalg.solve_triangular(
            L, _identity(size, like=L), upper=False, left=False
        )
        return result
    P, Q = _inverse_triangle(L[:half, :half]), _inverse_triangle(L[half:, half:])
    return _lower_blocks(P, times(Q, times(L[half:, :half], P)), Q)


def _lower_blocks(first: Tensor, minus_corner: Tensor, last: Tensor) -> Tensor:
    """Return [first 0; -minus_corner last]."""
    half, size = first.shape[0], first.shape[0] + last.shape[0]
    result = first.new_zeros(size, size)
    result[:half, :half] = first
    torch.neg(minus_corner, out=result[half:, :half])
    result[half:, half:] = last
    return result


def _inverse_by_lapack(padded: Tensor, size: int) -> Tensor:
    """Return the inverse of the first `size` rows and columns; what is below and beside is zero."""
    with one_thread():
        L = torch.linalg.cholesky(padded)[:size, :size]
        # LAPACK's columns are our rows, and the result is symmetric.
        return torch.cholesky_inverse(L).t()


def _with_padding(lower: Tensor) -> Tensor:
    """Return the matrix as a part of a larger one, where another size suits MKL better."""
    size, padded_size = lower.shape[0], _padded_size(lower)
    if padded_size == size:
        return lower
    padded = _identity(padded_size, like=lower)
    padded[:size, :size] = lower
    return padded


def _identity(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def _padded_size(matrix: Tensor) -> int:
    size = matrix.shape[0]
    if size <= MAX_UNPADDED_SIZE or matrix.device.type != "cpu":
        return size
    return max(size + PADDING if size % BAD_SIZE == 0 else size, MIN_PADDED_SIZE)
