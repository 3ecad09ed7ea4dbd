"""The arithmetic that a training step cannot do without, and nothing else.

Matrix products (and the decompositions of small matrices) of all linear layers of a network, on
random numbers: no nonlinearity, no bias, no norm, no check, no change of a weight. It tells how
much of a method's time is arithmetic. Products are done as in `natgrad.optim`, by the faster
library or natively, and in blocks that fit the cache; "torch" does those of SGD plainly, with
`torch.mm`, into memory that is already there.

Letters as in `natgrad.optim`: X (N, D_out) are the derivatives at a layer's output, Y (N, D_in) its
inputs, W (D_out, D_in) its weights.

>>> network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
>>> step = arithmetic_of(network, minibatch=16, method="online")
>>> step()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import signature

import torch
from torch import Tensor, nn

from natgrad import NGSGD
from natgrad.optim.factor import eigh
from natgrad.optim.inverse import inverse_with_identity
from natgrad.optim.product import (
    add_times,
    linear,
    linear_in_any_order,
    minus_transposed,
    times,
)
from natgrad.optim.product_sum import Term, add_products_
from natgrad.optim.simple import lower_gram

__all__ = ["METHODS", "arithmetic_of"]

_DEFAULTS = signature(NGSGD).parameters
RANK_IN, RANK_OUT, UPDATE_PERIOD = (
    _DEFAULTS[name].default for name in ("rank_in", "rank_out", "update_period")
)
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
        self.gradient = torch.empty_like(weight)

    @abstractmethod
    def compute_outputs(self) -> None:
        """Compute Y W^T."""

    @abstractmethod
    def compute_input_derivatives(self) -> None:
        """Compute X W."""

    @abstractmethod
    def compute_gradient(self) -> None:
        """Compute the gradient."""


class TorchLayer(Layer):
    """SGD: X^T Y, by torch's product."""

    def __init__(self, weight: Tensor, minibatch: int) -> None:
        super().__init__(weight, minibatch)
        self._outputs = torch.empty_like(self.X)
        self._input_derivatives = torch.empty_like(self.Y)

    def compute_outputs(self) -> None:
        """Compute Y W^T."""
        torch.mm(self.Y, self.W.t(), out=self._outputs)

    def compute_input_derivatives(self) -> None:
        """Compute X W."""
        torch.mm(self.X, self.W, out=self._input_derivatives)

    def compute_gradient(self) -> None:
        """Compute the gradient."""
        torch.mm(self.X.t(), self.Y, out=self.gradient)


class FastLayer(Layer):
    """Products as in `natgrad.optim`."""

    def compute_outputs(self) -> None:
        """Compute Y W^T."""
        linear(self.Y, self.W)

    def compute_input_derivatives(self) -> None:
        """Compute X W."""
        times(self.X, self.W)

    def put_gradient(self, *terms: Term) -> None:
        """Let the gradient be the sum of the terms."""
        add_products_(self.gradient, [], terms, keep=False)


class PlainLayer(FastLayer):
    """SGD: X^T Y."""

    def compute_gradient(self) -> None:
        """Compute the gradient."""
        self.put_gradient(Term(self.X, self.Y))


class OnlineLayer(FastLayer):
    """The online method: both sides lose a part of what is in the directions of their R."""

    def __init__(self, weight: Tensor, minibatch: int) -> None:
        super().__init__(weight, minibatch)
        self.outputs = _Factor(self.X, RANK_OUT)
        self.inputs = _Factor(self.Y, RANK_IN)
        self._num_minibatches = 0

    def compute_gradient(self) -> None:
        """Compute the gradient, in whichever way is less arithmetic; update R when it is time."""
        self.outputs.project()
        self.inputs.project()
        H = self.outputs.H
        Y_hat = add_times(self.Y, self.inputs.H, self.inputs.minus_taken)
        if self.Y.shape[1] < self.Y.shape[0]:  # X^T Y_hat - (e R)^T (H^T Y_hat)
            last = Term(self.outputs.minus_taken, times(H.t(), Y_hat))
            self.put_gradient(Term(self.X, Y_hat), last)
        else:  # (X - H (e R))^T Y_hat
            self.put_gradient(Term(self.X, Y_hat, taken=(H, self.outputs.taken_transposed)))
        if self._num_minibatches % UPDATE_PERIOD == 0:
            self.outputs.update()
            self.inputs.update()
        self._num_minibatches += 1


class _Factor:
    """The Fisher factor of one side; it stays as it is, as what an update gives is not used."""

    def __init__(self, X: Tensor, rank: int) -> None:
        num_columns = X.shape[1]
        directions = torch.randn(num_columns, min(rank, num_columns - 1))
        self.X = X
        self.R = torch.linalg.qr(directions).Q.t().contiguous()
        self.minus_taken = -REMOVED * self.R
        self.taken_transposed = minus_transposed(self.minus_taken)
        self.H = X @ self.R.t()

    def project(self) -> None:
        """H = X R^T."""
        self.H = linear_in_any_order(self.X, self.R)

    def update(self) -> None:
        """Y = H^T X, Z = Y Y^T = U diag(c) U^T, R' = U^T Y, and its transpose."""
        Y = times(self.H.t(), self.X)
        _, Ut = eigh((Y @ Y.t()).double().unsqueeze(0))
        minus_transposed(times(Ut[0].to(Y.dtype), Y))


class SimpleLayer(FastLayer):
    """The simple method: both sides are multiplied by the inverse of a matrix of their own."""

    def compute_gradient(self) -> None:
        """Compute the gradient, with the inverse in row space or column space."""
        Y = _mixed(self.Y)
        if _is_wide(self.X):
            self.put_gradient(Term(self.X, times(_inverse(self.X), Y)))
        else:
            self.put_gradient(Term(_mixed(self.X), Y))


def _is_wide(X: Tensor) -> bool:
    return X.shape[0] <= X.shape[1]


def _mixed(X: Tensor) -> Tensor:
    return times(_inverse(X), X) if _is_wide(X) else times(X, _inverse(X.t()))


def _inverse(X: Tensor) -> Tensor:
    """(I + X X^T)^-1, with `REGULARIZED`."""
    return inverse_with_identity(lower_gram(X), REGULARIZED)


METHODS: dict[str, type[Layer]] = {
    "torch": TorchLayer,
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
            layer.compute_outputs()
        for layer in reversed(layers):
            if layer is not layers[0]:
                layer.compute_input_derivatives()
            layer.compute_gradient()

    return step
