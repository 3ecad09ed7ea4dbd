"""Limits in which NGSGD is plain SGD, the scale of the loss, and the limit on a layer's change."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    LiteralNGSGD,
    assert_same_change,
    assert_trains_literally,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    train,
    weights,
)

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")


@fused_or_not
@pytest.mark.parametrize(
    "options",
    [
        {"method": "online", "alpha": math.inf},
        {"method": "simple", "alpha": math.inf},
        {"method": "online", "rank_in": 0, "rank_out": 0},
    ],
    ids=["online, alpha=inf", "simple, alpha=inf", "rank 0"],
)
def test_limit_is_torch_sgd(options: dict[str, Any], fused: bool) -> None:
    model = network()
    before, plain = weights(model), copy.deepcopy(model)
    all_options = OPTIONS | {"max_change_per_sample": None} | options
    train(model, NGSGD(model, **all_options, fused=fused), network_loss, range(12))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), network_loss, range(12))
    assert_same_change(before, model, plain, 1e-10)


@fused_or_not
@methods
def test_minibatches_of_one_sample_train_literally(method: str, fused: bool) -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        return network_loss(model, t, num_samples=1)

    assert_trains_literally(
        network, loss_of, num_steps=12, method=method, fused=fused, tolerance=1e-7
    )


def test_simple_method_on_one_sample_is_torch_sgd() -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        return network_loss(model, t, num_samples=1)

    model = network()
    before, plain = weights(model), copy.deepcopy(model)
    options = OPTIONS | {"max_change_per_sample": None, "method": "simple"}
    train(model, NGSGD(model, **options), loss_of, range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=OPTIONS["lr"]), loss_of, range(4))
    assert_same_change(before, model, plain, 1e-12)


@fused_or_not
@methods
def test_mean_loss_times_the_number_of_samples_is_the_sum(method: str, fused: bool) -> None:
    def mean_loss(model: nn.Module, t: int) -> Tensor:
        x, y = randn(12, 6, seed=t, dtype=torch.float32).double(), torch.arange(12).add(t) % 4
        return 12 * F.cross_entropy(model(x), y, reduction="mean")

    models = [network(), network()]
    before = weights(models[0])
    for model, loss_of in zip(models, (mean_loss, network_loss), strict=True):
        train(model, NGSGD(model, **OPTIONS, method=method, fused=fused), loss_of, range(12))
    assert_same_change(before, models[0], models[1], 1e-10)


@fused_or_not
@methods
@pytest.mark.parametrize("lr", [0.01, 1.0, 1e6])
def test_no_layer_changes_by_more_than_its_limit(lr: float, method: str, fused: bool) -> None:
    limit, num_samples = 0.01, 12
    model = network()
    options = OPTIONS | {"lr": lr, "max_change_per_sample": limit, "method": method}
    optimizer = NGSGD(model, **options, fused=fused)
    for t in range(6):
        before = weights(model)
        # Deriving by a plain layer's parameters would let it explode: it has no limit.
        model[2].requires_grad_(False)
        train(model, optimizer, network_loss, [t])
        for layer in ("0", "3"):
            changes = [
                model.get_parameter(f"{layer}.{p}") - before[f"{layer}.{p}"]
                for p in ("weight", "bias")
            ]
            change = math.sqrt(sum(float(c.detach().square().sum()) for c in changes))
            assert 0.0 < change <= num_samples * limit * (1 + 1e-9)
    if lr > 0.5:
        assert all(s["num_limited"] > 0 for s in optimizer.layer_statistics().values())


@fused_or_not
@methods
def test_num_limited_counts_the_minibatches_whose_change_was_limited(
    method: str, fused: bool
) -> None:
    model, copied = network(), network()
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    literal = LiteralNGSGD(copied, **OPTIONS, method=method)
    train(model, optimizer, network_loss, range(10))
    for t in range(10):
        literal.step(network_loss, t)
    statistics = optimizer.layer_statistics().values()
    assert sum(s["num_limited"] for s in statistics) == literal.num_limited
    assert 0 < literal.num_limited < 20
    assert [s["num_minibatches"] for s in statistics] == [10, 10]


@fused_or_not
def test_max_change_none_switches_the_limit_off(fused: bool) -> None:
    model = network()
    options = OPTIONS | {"lr": 1e3, "max_change_per_sample": None}
    optimizer = NGSGD(model, **options, fused=fused)
    before = weights(model)
    train(model, optimizer, network_loss, range(1))
    assert float((model[3].weight - before["3.weight"]).detach().norm()) > 100.0
    assert all(s["num_limited"] == 0 for s in optimizer.layer_statistics().values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@fused_or_not
@methods
@given(log_scale=st.integers(-13, 12))
@settings(max_examples=12, deadline=None)
def test_any_scale_of_the_loss_gives_finite_weights(
    dtype: torch.dtype, method: str, fused: bool, log_scale: int
) -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        return network_loss(model, t, scale=10.0**log_scale)

    model = network(dtype)
    model[2].requires_grad_(False)
    before = weights(model)
    train(
        model, NGSGD(model, **OPTIONS | {"lr": 1.0}, method=method, fused=fused), loss_of, range(12)
    )
    for name, parameter in model.named_parameters():
        assert bool(parameter.isfinite().all())
        if log_scale > -5 and parameter.requires_grad:
            assert not torch.equal(before[name], parameter)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e3, 1e9])
def test_natural_gradient_is_proportional_to_the_loss(scale: float) -> None:
    """With lr divided by the same factor, the weights are the same."""
    models = [network(), network()]
    before = weights(models[0])
    options = OPTIONS | {"max_change_per_sample": None}
    for model, factor in zip(models, (1.0, scale), strict=True):

        def loss_of(model: nn.Module, t: int, factor: float = factor) -> Tensor:
            return network_loss(model, t, scale=factor)

        train(model, NGSGD(model, **options | {"lr": 0.01 / factor}), loss_of, range(12))
    assert_same_change(before, models[0], models[1], 1e-8)


class Rows(nn.Module):
    """Layers whose rows are given: inputs as they are, derivatives by the loss below."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.layer(x))


@fused_or_not
@methods
@pytest.mark.parametrize(
    ("x", "derivative"),
    [
        (torch.zeros(5, 4), torch.zeros(5, 3)),
        (torch.ones(5, 4), torch.ones(5, 3)),
        (torch.ones(5, 4), torch.zeros(5, 3)),
        (torch.zeros(5, 4), torch.ones(5, 3)),
        (torch.eye(5, 4), torch.eye(5, 3)),
        (torch.full((5, 4), 1e12), torch.full((5, 3), 1e-13)),
        (torch.full((5, 4), 1e-13), torch.full((5, 3), 1e12)),
    ],
    ids=[
        "all zero",
        "identical rows",
        "zero derivatives",
        "zero inputs",
        "rank-deficient",
        "large inputs",
        "large derivatives",
    ],
)
def test_degenerate_minibatches_leave_finite_weights_and_training_goes_on(
    x: Tensor, derivative: Tensor, method: str, fused: bool
) -> None:
    model = Rows()
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    for _ in range(12):
        optimizer.zero_grad()
        model(x).backward(derivative)
        optimizer.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    before = weights(model)
    optimizer.zero_grad()
    model(randn(5, 4, seed=0, dtype=torch.float32)).backward(
        randn(5, 3, seed=1, dtype=torch.float32)
    )
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert bool(parameter.isfinite().all())
        assert not torch.equal(before[name], parameter)


@fused_or_not
@methods
def test_zero_softmax_layer_trains_literally_from_the_first_minibatch(
    method: str, fused: bool
) -> None:
    """The paper's own start: on the first minibatch, all hidden derivatives are exactly zero."""

    def make() -> Any:
        model = network()
        nn.init.zeros_(model[3].weight)
        nn.init.zeros_(model[3].bias)
        return model

    model = make()
    before = weights(model)
    train(model, NGSGD(model, **OPTIONS, method=method, fused=fused), network_loss, range(1))
    assert torch.equal(before["0.weight"], model.get_parameter("0.weight"))
    train(model, NGSGD(model, **OPTIONS, method=method, fused=fused), network_loss, range(1, 2))
    assert not torch.equal(before["0.weight"], model.get_parameter("0.weight"))
    assert_trains_literally(
        make, network_loss, num_steps=14, method=method, fused=fused, tolerance=1e-8
    )
