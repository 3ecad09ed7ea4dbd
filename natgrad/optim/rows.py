"""A minibatch of preconditioned row vectors that is only formed where it is needed.

The update of a weight matrix is X_bar^T Y_bar. X_bar, the preconditioned derivatives at a layer's
output, is the widest matrix of the step (N x 12000 for a large softmax layer), and writing it out
would cost as much as the arithmetic that makes it. So a preconditioner hands out `Rows`: what is
needed to form any block of rows of the product X_bar^T Y, in the cache, beside the norms of X_bar,
which are known without forming it.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# For each thread, a block of columns of X_bar and its product with Y have at most so many elements
# (1 MiB of float32): both stay in a core's cache until they are used. LOG.md: so X_bar^T Y is added
# to the weights in less time than torch takes for X^T Y and its own addition.
BLOCK_ELEMENTS = 2**18
MIN_BLOCK_COLUMNS = 256


class NonFiniteError(FloatingPointError):
    """A gradient, or an input of a layer, holds NaN or infinity."""


class Term(NamedTuple):
    """One term left^T right of a product.

    left(begin, end) returns those columns, in memory that the next call may overwrite.
    """

    left: Callable[[int, int], Tensor]
    right: Tensor


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
        return [Term(columns_of(self.X), Y)]

    def hat(self) -> Tensor:
        """Return X."""
        return self.X

    def squared_row_norms(self) -> Tensor:
        """Return ||x_i||^2."""
        squared: Tensor = torch.linalg.vector_norm(self.X, dim=1).square_()
        return squared


class _Scratch(threading.local):
    """Memory that is used again and again: fresh memory would cost a page fault per 4 KiB."""

    def __init__(self) -> None:
        self.memory: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def matrix(self, like: Tensor, num_rows: int, num_columns: int) -> Tensor:
        """Return a (num_rows, num_columns) matrix of the type and on the device of `like`."""
        key, size = (like.dtype, like.device), num_rows * num_columns
        memory = self.memory.get(key)
        if memory is None or memory.numel() < size:
            memory = self.memory[key] = like.new_empty(size)
        return memory[:size].view(num_rows, num_columns)


block_memory = _Scratch()
_product_memory = _Scratch()


def columns(matrix: Tensor, begin: int, end: int) -> Tensor:
    """Return columns begin to end, without the cost of a slice where they are all."""
    return matrix if end - begin == matrix.shape[1] else matrix[:, begin:end]


def _elements(values: Tensor, begin: int, end: int) -> Tensor:
    """Return elements (or rows) begin to end, without the cost of a slice where they are all."""
    return values if end - begin == values.shape[0] else values[begin:end]


def columns_of(X: Tensor) -> Callable[[int, int], Tensor]:
    """Return what gives blocks of columns of X, close together in memory.

    A product that reads along columns is slow where they are far apart.
    """

    def block(begin: int, end: int) -> Tensor:
        if end - begin == X.shape[1]:
            return X
        return block_memory.matrix(X, X.shape[0], end - begin).copy_(X[:, begin:end])

    return block


def squared_frobenius_norm(X: Tensor) -> float:
    """Return tr(X^T X) as a float, or raise `NonFiniteError` saying what X holds."""
    # Row by row: the float32 norm of all of a large matrix at once is wrong by 2e-4 (512 x 12000).
    squared: float = torch.linalg.vector_norm(torch.linalg.vector_norm(X, dim=1)).item() ** 2
    if not math.isfinite(squared):
        raise NonFiniteError(_describe_non_finite(X))
    return squared


def _describe_non_finite(X: Tensor) -> str:
    num_nan, num_inf = int(X.isnan().sum()), int(X.isinf().sum())
    if num_nan or num_inf:
        return f"{num_nan} NaN and {num_inf} infinite values of {X.numel()}"
    return f"values up to {float(X.abs().max()):.3g}, whose squares overflow {X.dtype}"


def add_product_(
    weight: Tensor, biases: Sequence[Tensor], X: Rows, Y: Tensor, *, scale: float, keep: bool
) -> None:
    """Set [weight biases] to keep * [weight biases] + scale X_bar^T Y, in place.

    The last columns of Y belong to the biases, one to each; usually there is one, or none. Block by
    block, each formed in the cache and used at once. `keep=False` overwrites whatever the memory
    held.
    """
    num_rows, num_columns = X.X.shape
    num_inputs = Y.shape[1] - len(biases)
    scale *= X.gamma
    bias_columns = range(num_inputs, Y.shape[1])
    terms = [
        # A column between others, or a matrix with one more column, makes products far slower.
        (left, columns(right, 0, num_inputs), [right[:, i].contiguous() for i in bias_columns])
        for left, right in X.terms(Y)
    ]
    step = _block_columns(num_columns, max(num_rows, num_inputs, 1))
    for begin in range(0, num_columns, step):
        end = min(begin + step, num_columns)
        target = _elements(weight, begin, end)
        bias_targets = [_elements(bias, begin, end) for bias in biases]
        # Products straight into weights that are not in the cache would fetch them many times.
        aside = keep and step < num_columns
        product = _product_memory.matrix(target, *target.shape) if aside else target
        for number, (left, matrix, vectors) in enumerate(terms):
            block, beta = left(begin, end).t(), float(keep or number > 0)
            if aside:
                product.addmm_(block, matrix, beta=float(number > 0))
            else:
                product.addmm_(block, matrix, alpha=scale, beta=beta)
            for bias, vector in zip(bias_targets, vectors, strict=True):
                bias.addmv_(block, vector, alpha=scale, beta=beta)
        if aside:
            target.add_(product, alpha=scale)


def _block_columns(num_columns: int, elements_per_column: int) -> int:
    """Return how many columns to take at once: all, where blocks would save little."""
    columns_in_cache = BLOCK_ELEMENTS * torch.get_num_threads() // elements_per_column
    if num_columns <= 2 * columns_in_cache:
        return max(num_columns, 1)
    return max(MIN_BLOCK_COLUMNS, columns_in_cache)
