"""What NGSGD cannot precondition gets exactly the step of plain SGD."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    assert_same_change,
    fused_or_not,
    randn,
    seeded,
    train,
    weights,
)


class Attention(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


class Scaled(nn.Linear):
    """Its derivative by the weight is not the product of rows that nn.Linear's is."""

    def forward(self, x: Tensor) -> Tensor:
        return 3.0 * super().forward(x)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * x


def weight_norm() -> nn.Module:
    layer = nn.Linear(6, 5)
    nn.utils.parametrizations.weight_norm(layer)
    return layer


def parametrized_bias() -> nn.Module:
    layer = nn.Linear(6, 5)
    nn.utils.parametrize.register_parametrization(layer, "bias", Doubled())
    return layer


def layer_with_a_forward_of_its_own() -> nn.Module:
    layer: Any = nn.Linear(6, 5)
    layer.forward = lambda x: nn.functional.linear(x, layer.weight.square(), layer.bias)
    return layer  # type: ignore[no-any-return]


FLOATS = (4, 6)
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...] | None]] = {
    "layer norm": (lambda: nn.LayerNorm(6), FLOATS),
    "batch norm": (lambda: nn.BatchNorm1d(6), FLOATS),
    "embedding": (lambda: nn.Embedding(7, 3), None),
    "sparse embedding": (lambda: nn.Embedding(7, 3, sparse=True), None),
    "attention": (lambda: Attention(6, 2), FLOATS),
    "grouped convolution": (lambda: nn.Conv1d(4, 6, 3, groups=2), (3, 4, 6)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 2), (2, 2, 3, 3)),
    "recurrent": (lambda: nn.RNN(6, 3), FLOATS),
    "subclass with its own forward": (lambda: Scaled(6, 5), FLOATS),
    "layer with its own forward": (layer_with_a_forward_of_its_own, FLOATS),
    "weight norm": (weight_norm, FLOATS),
    "parametrized bias": (parametrized_bias, FLOATS),
}


@fused_or_not
def test_complex_layer_gets_plain_sgd(fused: bool) -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = torch.complex(randn(4, 6, seed=t), randn(4, 6, seed=t + 50))
        return torch.as_tensor((model(x) - 1.0).abs().square().sum())

    model, plain = (seeded(lambda: nn.Linear(6, 5, dtype=torch.complex128)) for _ in range(2))
    train(model, NGSGD(model, **OPTIONS, fused=fused), loss_of, range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), loss_of, range(4))
    torch.testing.assert_close(weights(model), weights(plain))


@fused_or_not
@pytest.mark.parametrize("layout", ["sparse", "nested"])
def test_layer_whose_input_is_no_matrix_of_rows_gets_plain_sgd(layout: str, fused: bool) -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = randn(4, 6, seed=t).relu()
        if layout == "sparse":
            return torch.as_tensor((model(x.to_sparse()) - 1.0).square().sum())
        nested = torch.nested.nested_tensor([x[:1], x[1:]], layout=torch.jagged)
        return torch.as_tensor((model(nested).values() - 1.0).square().sum())

    model, plain = (seeded(lambda: nn.Linear(6, 5)).double() for _ in range(2))
    train(model, NGSGD(model, **OPTIONS, fused=fused), loss_of, range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), loss_of, range(4))
    torch.testing.assert_close(weights(model), weights(plain))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layer_without_outputs_does_no_harm() -> None:
    model = nn.Sequential(nn.Linear(3, 0), nn.Linear(0, 2))
    optimizer = NGSGD(model, **OPTIONS)
    model(torch.ones(4, 3)).square().sum().backward()
    optimizer.step()
    assert model[1].weight.shape == (2, 0)


@fused_or_not
@pytest.mark.parametrize("name", MODULES)
def test_other_modules_get_plain_sgd(name: str, fused: bool) -> None:
    make, input_shape = MODULES[name]

    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = torch.arange(t, t + 4) % 7 if input_shape is None else randn(*input_shape, seed=t)
        output = model(x)
        output = output[0] if isinstance(output, tuple) else output
        return torch.as_tensor((output - 1.0).square().sum())

    model, plain = (seeded(make).double() for _ in range(2))
    before = weights(model)
    train(model, NGSGD(model, **OPTIONS, fused=fused), loss_of, range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), loss_of, range(4))
    assert any(not torch.equal(before[key], p) for key, p in model.named_parameters())
    assert_same_change(before, model, plain, 1e-12)


class Tied(nn.Module):
    """An output layer with the weights of the input embedding, and perhaps a stray call of it."""

    def __init__(self, sparse: bool, stray: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 3, sparse=sparse)
        self.output = nn.Linear(3, 7)
        self.output.weight = self.embedding.weight
        self.stray = stray

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x).tanh()
        if self.stray:
            self.kept = self.output(x)
        return torch.as_tensor(self.output(x))


def tied_loss(model: nn.Module, t: int) -> Tensor:
    return nn.functional.cross_entropy(
        model(torch.arange(t, t + 4) % 7), torch.arange(4), reduction="sum"
    )


@fused_or_not
@pytest.mark.parametrize("stray", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_output_layer_tied_to_an_embedding_is_plain_sgd_by_method_none(
    sparse: bool, stray: bool, fused: bool
) -> None:
    """Its weight gets the product of rows, and the gradient that the embedding adds to it."""
    model, plain = (seeded(lambda: Tied(sparse, stray)).double() for _ in range(2))
    before = weights(model)
    options = OPTIONS | {"method": "none", "max_change_per_sample": None}
    train(model, NGSGD(model, **options, fused=fused), tied_loss, range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), tied_loss, range(4))
    assert_same_change(before, model, plain, 1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_part_of_the_embedding_in_a_tied_gradient_stays_plain(sparse: bool) -> None:
    model, untied = (seeded(lambda: Tied(sparse, False)).double() for _ in range(2))
    untied.embedding.weight = nn.Parameter(untied.embedding.weight.detach().clone())
    optimizers = [NGSGD(each, **OPTIONS) for each in (model, untied)]
    for each in (model, untied):
        tied_loss(each, 0).backward()
    embedding, output = untied.embedding.weight.grad, untied.output.weight.grad
    assert embedding is not None
    assert output is not None
    embedding = embedding.to_dense() if sparse else embedding
    assert float(embedding.abs().max()) > 0.1
    torch.testing.assert_close(model.output.weight.grad, output + embedding, rtol=1e-12, atol=0)
    for optimizer in optimizers:
        optimizer.step()


def test_functional_call_with_other_parameters_gives_plain_gradients() -> None:
    """Parameters that the optimizer does not know must get their gradients all the same."""
    model = nn.Linear(4, 3).double()
    plain = copy.deepcopy(model)
    optimizer = NGSGD(model)
    for name in ("weight", "bias"):
        given = [randn(*model.get_parameter(name).shape, seed=5).requires_grad_() for _ in range(2)]
        for each, parameter in zip((model, plain), given, strict=True):
            output = torch.func.functional_call(each, {name: parameter}, (randn(5, 4, seed=0),))
            output.square().sum().backward()
        assert given[0].grad is not None
        torch.testing.assert_close(given[0].grad, given[1].grad)
    optimizer.step()
