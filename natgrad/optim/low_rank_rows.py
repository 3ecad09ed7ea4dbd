"""Rows from which the online method has taken a part of what they have in a few directions.

Letters as in `natgrad.optim.factor`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from natgrad.optim.factor import FisherFactor, alike, column
from natgrad.optim.product import add_times, times
from natgrad.optim.product_sum import Term
from natgrad.optim.rows import DenseRows, Rows, squared_frobenius_norm

MIN_SHRINKAGE = 1e-2  # of ||X_hat||^2 / ||X||^2: below it, X_hat is formed for its norm


@dataclass(frozen=True)
class Removal:
    """What a factor takes out of rows: X_hat = X - H diag(e) R, with H = X R^T (eqn:ht).

    R: (rank, D), the factor's
    e: (rank,), of eqn:etii
    lost: (rank,), sqrt(2 e - e^2): as R is orthonormal, ||x_hat||^2 = ||x||^2 - ||lost * h||^2
    alpha: by which the factor was smoothed
    """

    R: Tensor
    e: Tensor
    lost: Tensor
    alpha: float

    @cached_property
    def minus_taken(self) -> Tensor:
        """-diag(e) R, (rank, D)."""
        return self.R * -self.e.unsqueeze(1)

    @cached_property
    def taken_transposed(self) -> Tensor:
        """R^T diag(e), (D, rank), row by row in memory: a transposed matrix slows products."""
        return torch.mul(self.R.t(), self.e, out=self.R.new_empty(self.R.shape[::-1]))


def removals(factors: Sequence[FisherFactor], alphas: Sequence[float]) -> list[Removal]:
    """Return what each factor takes out of rows, if it is smoothed by its alpha.

    Each e is what `FisherFactor.removed` returns, to the last bit, in less time: factors of one
    rank share the operations.
    """
    found: dict[int, Removal] = {}
    for indices in alike(factors):
        d = torch.stack([factors[index].d for index in indices])
        beta = column([factors[index].beta(alphas[index]) for index in indices], like=d)
        e = d / (d + beta)
        lost = (2.0 - e).mul_(e).sqrt_()
        for index, own_e, own_lost in zip(indices, e.unbind(), lost.unbind(), strict=True):
            found[index] = Removal(factors[index].R, own_e, own_lost, alphas[index])
    return [found[index] for index in range(len(factors))]


class LowRankRows(Rows):
    """X_hat = beta X G^-1 = X - H diag(e) R (eqn:hatxt:compute:2), H = X R^T (eqn:ht)."""

    def __init__(self, X: Tensor, squared_norm: float, H: Tensor, removal: Removal) -> None:
        self.X = X
        self.squared_norm = squared_norm
        self._H, self._removal = H, removal
        self._lost = H * removal.lost
        # ||X_hat||^2, for eqn:gammat. Not by one sum over all: with many rows, that has few digits.
        self._squared = squared_norm - squared_frobenius_norm(self._lost)
        self.gamma = math.sqrt(squared_norm / self._squared) if self._squared > 0.0 else 1.0

    @property
    def knows_its_norm(self) -> bool:
        """Whether enough is left of X that the difference has not lost its digits."""
        return self._squared > MIN_SHRINKAGE * self.squared_norm

    def terms(self, Y: Tensor) -> list[Term]:
        """Return X_hat^T Y in whichever form is less arithmetic.

        As X^T Y - R^T diag(e) (H^T Y) where Y has fewer columns than rows, else as
        (X - H diag(e) R)^T Y, of which each block of X_hat is formed when it is needed.
        """
        if Y.shape[1] < Y.shape[0]:
            return [Term(self.X, Y), Term(self._removal.minus_taken, times(self._H.t(), Y))]
        return [Term(self.X, Y, taken=(self._H, self._removal.taken_transposed))]

    def hat(self) -> Tensor:
        """Return X_hat."""
        return add_times(self.X, self._H, self._removal.minus_taken)

    def squared_row_norms(self) -> Tensor:
        """Return gamma^2 p_i, with p_i = ||x_hat_i||^2 (eqn:pi)."""
        squared: Tensor = torch.linalg.vector_norm(self.X, dim=1).square_()
        squared -= torch.linalg.vector_norm(self._lost, dim=1).square_()
        return squared.clamp_min_(0.0).mul_(self.gamma**2)


def low_rank_rows(
    X: Tensor, squared_norm: float, H: Tensor, removal: Removal, is_formed: bool = False
) -> Rows:
    """Return X without what is removed; X_hat is formed if it `is_formed` anyway, or has to be."""
    if not is_formed:
        rows = LowRankRows(X, squared_norm, H, removal)
        if rows.knows_its_norm:
            return rows
    return DenseRows(X, squared_norm, add_times(X, H, removal.minus_taken))
