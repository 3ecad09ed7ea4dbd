"""The simple method: each sample is preconditioned with the Fisher matrix of the others.

    G_i     = beta I + 1/(N-1) sum_{j != i} x_j x_j^T,    beta = alpha tr(X^T X) / (N D)
    x_hat_i = G_i^-1 x_i
    X_bar   = gamma X_hat, with the Frobenius norm of X

(Appendix A prints the definition of G_i with an inverse that must not be there.) Holding out a row
is a rank-one correction, which leaves x_hat_i = b_i q_i with Q = X G^-1, a_i = x_i^T q_i and
b_i = 1 + a_i / (N - 1 - a_i). In units of beta the row-space form is

    M = (I + X X^T / (beta (N-1)))^-1,   Q = M X,   a_i = (N-1) (1 - M_ii),   so   b_i = 1 / M_ii

and the rows' norms follow from M alone: ||q_i||^2 = beta (N-1) (M_ii - sum_j M_ij^2). So the
product X_hat^T Y = X^T M diag(b) Y needs only the (N, N) matrix M and never X_hat.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from natgrad.optim.full_precision import full_precision
from natgrad.optim.inverse import inverse_with_identity
from natgrad.optim.native import kernels_in_use
from natgrad.optim.product import linear, minus_transposed, times
from natgrad.optim.product_sum import Term
from natgrad.optim.rows import (
    DenseRows,
    NonFiniteError,
    PlainRows,
    Rows,
    as_rows,
    describe_non_finite,
    is_number,
)

GRAM_STRIP = 128  # rows: X X^T is symmetric, and only the strips below its diagonal are computed
MAX_LOSS = 1e4  # how much round-off may be amplified before the computation goes to float64
MIN_ALPHA = 1e-30  # far below it, what is inverted leaves even float64's range
MIN_SQUARED_NORM = 1e-30  # of X: below it, one over it, or its parts, leave float32's range
MAX_NORM_LOSS = 400.0  # how much round-off may be amplified in ||X_hat||^2 before X_hat is formed


def precondition_simple(X: Tensor, alpha: float = 4.0) -> Tensor:
    """Return X_bar (N, D): each row times the inverse smoothed Fisher matrix of the others.

    The Frobenius norm of X is kept. A single row, which has no others, is returned as it is.

    >>> X = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> X_bar = precondition_simple(X)
    >>> others = torch.cat([X[:2], X[3:]])
    >>> G_2 = 4.0 * X.square().sum() / (8 * 3) * torch.eye(3) + others.T @ others / 7
    >>> x_hat_2 = torch.linalg.solve(G_2, X[2])
    >>> torch.allclose(X_bar[2] / X_bar[2].norm(), x_hat_2 / x_hat_2.norm())
    True
    """
    wide = as_rows("precondition_simple", X)
    with full_precision(X):
        rows = simple_rows(wide, alpha, is_formed=True)
        return (rows.hat() * rows.gamma).to(X.dtype)


def simple_rows(X: Tensor, alpha: float, is_formed: bool = False) -> Rows:
    """Return the preconditioned X (N, D); if it `is_formed`, it is needed as a matrix."""
    check_alpha(alpha)
    num_rows, num_columns = X.shape
    if num_rows <= 1:
        return PlainRows(X)
    condition = num_columns / alpha  # of I + X^T X / (beta (N-1)) is at most about this
    is_exact = X.dtype == torch.float64
    if not is_exact and condition > MAX_LOSS:
        return _in_float64(X, alpha)
    # Where N = D, row space has its digits in float64, and column space sees in float32 that it
    # has lost them.
    is_wide = num_rows < num_columns or (is_exact and num_rows == num_columns)
    gram = lower_gram(X if is_wide else X.t())
    squared_norm = gram.diagonal().sum(dtype=torch.float64).item()  # spares a pass over X
    if not math.isfinite(squared_norm):
        raise NonFiniteError(describe_non_finite(X))
    if not is_exact and squared_norm < MIN_SQUARED_NORM:
        return _in_float64(X, alpha)
    if squared_norm == 0.0:
        return PlainRows(X, squared_norm)
    unit = alpha * squared_norm / (num_rows * num_columns) * (num_rows - 1)  # beta (N-1)
    M = inverse_with_identity(gram, 1.0 / unit)
    if is_wide:
        return _mixed_rows(X, squared_norm, M, unit, is_formed)
    Q = times(X, M)  # in column space, about 3 N D^2 + O(D^3)
    inverse_b = 1.0 - torch.linalg.vecdot(X, Q) / unit
    if not is_exact and condition > MAX_LOSS * float(inverse_b.min()):
        return _in_float64(X, alpha)
    return DenseRows(X, squared_norm, Q / inverse_b.unsqueeze(1))


def check_alpha(alpha: float) -> None:
    """Raise ValueError for an alpha that leaves nothing to invert."""
    if not (is_number(alpha) and alpha >= MIN_ALPHA):
        raise ValueError(
            f"the simple method needs alpha > 0, and not below {MIN_ALPHA:g}, as the Fisher matrix "
            f"of N - 1 samples may be singular; but got {alpha!r}"
        )


def _in_float64(X: Tensor, alpha: float) -> Rows:
    rows = simple_rows(X.double(), alpha)
    return DenseRows(X, rows.squared_norm, rows.dense().to(X.dtype), gamma=1.0)


def lower_gram(X: Tensor) -> Tensor:
    """Return X X^T (N, N), of which only the lower triangle is meant to be read."""
    kernels = kernels_in_use()
    if kernels is not None and kernels.suit(X, X.t()):
        return kernels.multiply(X, X.t(), is_lower=True)
    if not X.is_contiguous():
        X = minus_transposed(X.t())  # the sign does not matter
    num_rows = X.shape[0]
    if num_rows <= GRAM_STRIP:
        return linear(X, X)
    gram = X.new_zeros(num_rows, num_rows)
    for begin in range(0, num_rows, GRAM_STRIP):
        end = min(begin + GRAM_STRIP, num_rows)
        gram[begin:, begin:end] = linear(X[begin:], X[begin:end])
    return gram


class _MixedRows(Rows):
    """X_hat = diag(b) M X, in row space; `unit` is beta (N-1)."""

    def __init__(self, X: Tensor, squared_norm: float, M: Tensor, unit: float) -> None:
        self.X = X
        self.squared_norm = squared_norm
        diagonal, norms = M.diagonal(), torch.linalg.vector_norm(M, dim=1)
        self._M, self._unit, self._norms = M, unit, norms
        self._b = diagonal.reciprocal()
        self._difference = torch.addcmul(diagonal, norms, norms, value=-1.0)
        squared = unit * self._difference.dot(self._b.square()).item()
        self.gamma = math.sqrt(squared_norm / squared) if squared > 0.0 else 1.0

    @property
    def knows_its_norm(self) -> bool:
        """Whether the difference has its digits: not with samples all alike, or a huge alpha.

        To round I + X X^T / unit, whose elements are about size, changes M_ii, and so the
        difference, by about eps size sqrt(N) sum_j M_ij^2; to round M, by eps sum_j M_ij^2. In the
        sum of N rows, 1 / sqrt(N) of that is left.
        """
        num_rows = self.X.shape[0]
        size = self.squared_norm / (self._unit * num_rows)  # of the diagonal, in the mean
        squared = torch.linalg.vector_norm(self._norms).item() ** 2  # sum_ij M_ij^2
        lost = (1.0 / math.sqrt(num_rows) + size) * squared
        return bool(lost <= MAX_NORM_LOSS * self._difference.sum().item())

    def terms(self, Y: Tensor) -> list[Term]:
        """Return X_hat^T Y = X^T (M diag(b) Y)."""
        return [Term(self.X, times(self._M, Y * self._b.unsqueeze(1)))]

    def squared_row_norms(self) -> Tensor:
        """Return ||x_bar_i||^2."""
        scale = self._unit * self.gamma**2
        return self._difference.clamp_min(0.0).mul_(self._b.square()).mul_(scale)

    def hat(self) -> Tensor:
        """Return X_hat."""
        return _mixed(self._M, self.X)


def _mixed_rows(X: Tensor, squared_norm: float, M: Tensor, unit: float, is_formed: bool) -> Rows:
    if not is_formed:
        rows = _MixedRows(X, squared_norm, M, unit)
        if rows.knows_its_norm:
            return rows
    return DenseRows(X, squared_norm, _mixed(M, X))


def _mixed(M: Tensor, X: Tensor) -> Tensor:
    """Return diag(b) M X."""
    return times(M, X).div_(M.diagonal().unsqueeze(1))
