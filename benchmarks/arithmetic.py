"""The arithmetic that a training step cannot do without, and nothing else.

Matrix products (and the decompositions of small matrices) of all linear layers of a network, on
random numbers, into memory that is already there (but for inverses and eigenvectors): no
nonlinearity, no bias, no norm, no check, no change of a weight. It tells how much of a method's
time is arithmetic. It is no bound: where a product is done in blocks that fit the cache, as
`natgrad.optim` does it and as is done here in one case only, it takes less time.

Letters as in `natgrad.optim`: X (N, D_out) are the derivatives at a layer's output, Y (N, D_in) its
inputs, W (D_out, D_in) its weights.

>>> network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
>>> step = arithmetic_of(network, minibatch=16, method="online")
>>> step()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from natgrad.optim.rows import BLOCK_ELEMENTS
from natgrad.optim.simple import lower_gram

__all__ = ["METHODS", "arithmetic_of"]

RANK_IN, RANK_OUT, UPDATE_PERIOD = 20, 80, 4  # as by default in NGSGD
REMOVED = 0.5  # by which part derivatives and inputs are shortened in the directions of R
REGULARIZED = 1e-3  # times X X^T, added to the identity


class Layer(ABC):
    """One layer in a step: its outputs, the derivatives at its inputs, and its weights' gradient.

    Attributes:
        gradient: where the gradient is put, X_hat^T Y_hat (D_out, D_in).
    """

    def __init__(self, weight: Tensor, minibatch: int) -> None:
        num_outputs, num_inputs = weight.shape
        self.W = weight
        self.X = torch.randn(minibatch, num_outputs)
        self.Y = torch.randn(minibatch, num_inputs)
        self._output = torch.empty_like(self.X)
        self._input_derivative = torch.empty_like(self.Y)
        self.gradient = torch.empty_like(weight)

    def forward(self) -> None:
        """Compute the outputs."""
        torch.mm(self.Y, self.W.t(), out=self._output)

    def backward(self, is_first: bool) -> None:
        """Compute the gradient and, but for the first layer, the derivatives at the inputs."""
        if not is_first:
            torch.mm(self.X, self.W, out=self._input_derivative)
        self.compute_gradient()

    @abstractmethod
    def compute_gradient(self) -> None:
        """Compute the gradient."""


class PlainLayer(Layer):
    """SGD: X^T Y."""

    def compute_gradient(self) -> None:
        """Compute the gradient."""
        torch.mm(self.X.t(), self.Y, out=self.gradient)


class OnlineLayer(Layer):
    """The online method: both sides lose a part of what is in the directions of their R."""

    def __init__(self, weight: Tensor, minibatch: int) -> None:
        super().__init__(weight, minibatch)
        self.outputs = _Factor(self.X, RANK_OUT)
        self.inputs = _Factor(self.Y, RANK_IN)
        self._Y_hat = torch.empty_like(self.Y)
        self._P = torch.empty(len(self.outputs.R), weight.shape[1])
        self._block_columns = max(1, BLOCK_ELEMENTS // max(minibatch, weight.shape[1]))
        self._block = torch.empty(minibatch * min(weight.shape[0], self._block_columns))
        self._num_minibatches = 0

    def compute_gradient(self) -> None:
        """Compute the gradient, in whichever way is less arithmetic; update R when it is time."""
        self.outputs.project()
        self.inputs.project()
        R, H = self.outputs.R, self.outputs.H
        torch.addmm(self.Y, self.inputs.H, self.inputs.R, alpha=-REMOVED, out=self._Y_hat)
        if self.Y.shape[1] < self.Y.shape[0]:  # X^T Y_hat - R^T (H^T Y_hat)
            torch.mm(H.t(), self._Y_hat, out=self._P)
            torch.mm(self.X.t(), self._Y_hat, out=self.gradient)
            self.gradient.addmm_(R.t(), self._P, alpha=-REMOVED)
        else:  # (X - H R)^T Y_hat, so many columns of X at a time as the cache holds
            for begin in range(0, self.X.shape[1], self._block_columns):
                some = slice(begin, begin + self._block_columns)
                X = self.X[:, some]
                X_hat = self._block[: X.numel()].view(X.shape)
                torch.addmm(X, H, R[:, some], alpha=-REMOVED, out=X_hat)
                torch.mm(X_hat.t(), self._Y_hat, out=self.gradient[some])
        if self._num_minibatches % UPDATE_PERIOD == 0:
            self.outputs.update()
            self.inputs.update()
        self._num_minibatches += 1


class _Factor:
    """The Fisher factor of one side; it stays as it is, as what an update gives is not used."""

    def __init__(self, X: Tensor, rank: int) -> None:
        num_rows, num_columns = X.shape
        rank = min(rank, num_columns - 1)
        self.X = X
        self.R = torch.linalg.qr(torch.randn(num_columns, rank)).Q.t().contiguous()
        self.H = X.new_empty(num_rows, rank)
        self._Y = X.new_empty(rank, num_columns)
        self._Z = X.new_empty(rank, rank)
        self._next = X.new_empty(rank, num_columns)

    def project(self) -> None:
        """H = X R^T."""
        torch.mm(self.X, self.R.t(), out=self.H)

    def update(self) -> None:
        """Y = H^T X, Z = Y Y^T = U diag(c) U^T, R' = U^T Y."""
        torch.mm(self.H.t(), self.X, out=self._Y)
        torch.mm(self._Y, self._Y.t(), out=self._Z)
        _, U = torch.linalg.eigh(self._Z.double())
        torch.mm(U.t().to(self._Y.dtype), self._Y, out=self._next)


class SimpleLayer(Layer):
    """The simple method: both sides are multiplied by the inverse of a matrix of their own."""

    def compute_gradient(self) -> None:
        """Compute the gradient, with the inverse in row space or column space."""
        Y = _inverse(self.Y) @ self.Y if _is_wide(self.Y) else self.Y @ _inverse(self.Y.t())
        if _is_wide(self.X):
            torch.mm(self.X.t(), _inverse(self.X) @ Y, out=self.gradient)
        else:
            torch.mm(_inverse(self.X.t()), self.X.t() @ Y, out=self.gradient)


def _is_wide(X: Tensor) -> bool:
    return X.shape[0] <= X.shape[1]


def _inverse(X: Tensor) -> Tensor:
    """(I + X X^T)^-1, with `REGULARIZED`."""
    gram = lower_gram(X).mul_(REGULARIZED)
    gram.diagonal().add_(1.0)
    return torch.cholesky_inverse(torch.linalg.cholesky(gram))


METHODS: dict[str, type[Layer]] = {
    "none": PlainLayer,
    "online": OnlineLayer,
    "simple": SimpleLayer,
}


def arithmetic_of(model: nn.Module, minibatch: int, method: str) -> Callable[[], None]:
    """Return the arithmetic of one step of a method, for the linear layers of a network."""
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Linear)]
    layers = [METHODS[method](weight, minibatch) for weight in weights]

    def step() -> None:
        for layer in layers:
            layer.forward()
        for number in reversed(range(len(layers))):
            layers[number].backward(is_first=number == 0)

    return step
