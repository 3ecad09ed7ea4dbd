"""A minibatch of preconditioned row vectors that is only formed where it is needed.

The update of a weight matrix is X_bar^T Y_bar. X_bar, the preconditioned derivatives at a layer's
output, is the widest matrix of the step (N x 12000 for a large softmax layer), and writing it out
would cost as much as the arithmetic that makes it. So a preconditioner hands out `Rows`: the terms
whose sum is X_bar^T Y, beside the norms of X_bar, which are known without forming it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import SupportsFloat

import torch
from torch import Tensor

from natgrad.optim.product_sum import Term


def as_rows(name: str, X: Tensor) -> Tensor:
    """Return X in the precision that it is computed in, or say what is wrong with it."""
    if not isinstance(X, Tensor):
        raise TypeError(
            f"{name} takes a torch.Tensor, but got {type(X).__name__}: use torch.as_tensor(X)"
        )
    if X.dim() != 2:
        raise ValueError(
            f"{name} takes a matrix (N, D), one row per sample, but got shape {tuple(X.shape)}: "
            "use X.reshape(-1, X.shape[-1])"
        )
    if not X.is_floating_point():
        raise TypeError(f"{name} takes a floating-point matrix, but got {X.dtype}: use X.float()")
    return X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().float()


def is_number(value: object) -> bool:
    """Whether a value is one number: text, None and tensors of several numbers are not."""
    if not isinstance(value, SupportsFloat):
        return False
    try:
        float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False
    return True


class NonFiniteError(FloatingPointError):
    """A gradient, or an input of a layer, holds NaN or infinity."""


class Rows(ABC):
    """X_bar = gamma X_hat (N, D), with the Frobenius norm of X.

    Attributes:
        X: the rows before preconditioning, (N, D).
        squared_norm: ||X||_F^2, which is ||X_bar||_F^2 too.
        gamma: the factor that restores the norm of X after preconditioning, eqn:gammat.
    """

    X: Tensor
    squared_norm: float
    gamma: float

    @abstractmethod
    def terms(self, Y: Tensor) -> list[Term]:
        """Return the terms whose sum is X_hat^T Y (before `gamma`), for Y (N, any)."""

    @abstractmethod
    def hat(self) -> Tensor:
        """Return X_hat itself, (N, D)."""

    @abstractmethod
    def squared_row_norms(self) -> Tensor:
        """Return ||x_bar_i||^2 for each row i, (N,)."""

    def dense(self) -> Tensor:
        """Return X_bar itself, (N, D)."""
        return self.hat() if self.gamma == 1.0 else self.hat() * self.gamma


class PlainRows(Rows):
    """X_bar = X: what plain SGD uses."""

    def __init__(self, X: Tensor, squared_norm: float | None = None) -> None:
        self.X = X
        self.squared_norm = squared_frobenius_norm(X) if squared_norm is None else squared_norm
        self.gamma = 1.0

    def terms(self, Y: Tensor) -> list[Term]:
        """Return the one term X^T Y."""
        return [Term(self.X, Y)]

    def hat(self) -> Tensor:
        """Return X."""
        return self.X

    def squared_row_norms(self) -> Tensor:
        """Return ||x_i||^2."""
        squared: Tensor = torch.linalg.vector_norm(self.X, dim=1).square_()
        return squared


class DenseRows(Rows):
    """X_hat as it is, where it had to be formed; gamma is computed unless it is known."""

    def __init__(
        self, X: Tensor, squared_norm: float, X_hat: Tensor, gamma: float | None = None
    ) -> None:
        self.X = X
        self.X_hat = X_hat
        self.squared_norm = squared_norm
        if gamma is None:
            squared = squared_frobenius_norm(X_hat)
            gamma = math.sqrt(squared_norm / squared) if squared > 0.0 else 1.0
        self.gamma = gamma

    def terms(self, Y: Tensor) -> list[Term]:
        """Return the one term X_hat^T Y."""
        return [Term(self.X_hat, Y)]

    def hat(self) -> Tensor:
        """Return X_hat."""
        return self.X_hat

    def squared_row_norms(self) -> Tensor:
        """Return ||x_bar_i||^2."""
        squared: Tensor = torch.linalg.vector_norm(self.X_hat, dim=1).square_()
        return squared.mul_(self.gamma**2)


def squared_frobenius_norm(X: Tensor) -> float:
    """Return tr(X^T X) as a float, or raise `NonFiniteError` saying what X holds."""
    # Row by row: the float32 norm of all of a large matrix at once is wrong by 2e-4 (512 x 12000).
    squared: float = torch.linalg.vector_norm(torch.linalg.vector_norm(X, dim=1)).item() ** 2
    if not math.isfinite(squared):
        raise NonFiniteError(describe_non_finite(X))
    return squared


def describe_non_finite(X: Tensor) -> str:
    """Return what makes the squared norm of X infinite, or not a number."""
    num_nan, num_inf = int(X.isnan().sum()), int(X.isinf().sum())
    if num_nan or num_inf:
        return f"{num_nan} NaN and {num_inf} infinite values of {X.numel()}"
    return f"values up to {float(X.abs().max()):.3g}, whose squares overflow {X.dtype}"
