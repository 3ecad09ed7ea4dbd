"""The bare arithmetic of a step is that of the methods, apart from scales and norms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from benchmarks.arithmetic import (
    METHODS,
    REGULARIZED,
    REMOVED,
    Layer,
    OnlineLayer,
    arithmetic_of,
)

# (D_out, D_in, N): fewer rows than columns, more than inputs, more than both; many blocks.
SHAPES = [(90, 30, 16), (90, 30, 50), (40, 30, 60), (9000, 120, 32), (9000, 120, 150)]


def made(method: str, num_outputs: int, num_inputs: int, minibatch: int) -> Layer:
    torch.manual_seed(0)
    layer = METHODS[method](torch.randn(num_outputs, num_inputs), minibatch)
    layer.compute_gradient()
    return layer


def shortened(X: Tensor, R: Tensor) -> Tensor:
    return X - REMOVED * (X @ R.t()) @ R


def mixed(X: Tensor) -> Tensor:
    solved: Tensor = torch.linalg.solve(torch.eye(len(X)) + REGULARIZED * X @ X.t(), X)
    return solved


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_the_online_method_are_its_gradient(shape: tuple[int, int, int]) -> None:
    layer = made("online", *shape)
    assert isinstance(layer, OnlineLayer)
    X, Y = shortened(layer.X, layer.outputs.R), shortened(layer.Y, layer.inputs.R)
    torch.testing.assert_close(layer.gradient, X.t() @ Y, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES)
def test_products_of_the_simple_method_are_its_gradient(shape: tuple[int, int, int]) -> None:
    layer = made("simple", *shape)
    expected = mixed(layer.X).t() @ mixed(layer.Y)
    torch.testing.assert_close(layer.gradient, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("method", ["torch", "none"])
def test_products_of_sgd_are_the_gradient(method: str) -> None:
    layer = made(method, *SHAPES[0])
    torch.testing.assert_close(layer.gradient, layer.X.t() @ layer.Y)


@pytest.mark.parametrize("method", METHODS)
def test_arithmetic_is_of_all_linear_layers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, tuple[int, ...]]] = []
    for what in ("compute_outputs", "compute_input_derivatives", "compute_gradient"):

        def note(layer: Layer, what: str = what) -> None:
            done.append((what, tuple(layer.W.shape)))

        monkeypatch.setattr(METHODS[method], what, note)
    arithmetic_of(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5)), 8, method)()
    assert done == [
        ("compute_outputs", (4, 3)),
        ("compute_outputs", (5, 4)),
        ("compute_input_derivatives", (5, 4)),
        ("compute_gradient", (5, 4)),
        ("compute_gradient", (4, 3)),  # the first: nothing needs the derivatives at its inputs
    ]
