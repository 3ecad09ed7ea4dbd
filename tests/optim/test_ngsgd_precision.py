"""Models of other types than float32, and autocast."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    seeded,
    train,
    weights,
)
from tests.optim.samples import relative_error

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")


def image_network() -> nn.Module:
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same"), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 5, 3)
        )
    )


def image_loss(model: nn.Module, t: int) -> Tensor:
    x = randn(6, 2, 4, 5, seed=t, dtype=torch.float32)
    return nn.functional.cross_entropy(model(x), torch.arange(6) % 3, reduction="sum")


def autocast_loss(model: nn.Module, t: int) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return image_loss(model, t)


@fused_or_not
@methods
@pytest.mark.parametrize("backward_inside", [False, True])
def test_autocast_trains_float32_weights_nearly_as_without(
    method: str, fused: bool, backward_inside: bool
) -> None:
    model, expected = image_network(), image_network()
    before = weights(model)
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    if backward_inside:
        for t in range(5):  # not around all: autocast keeps the weights it has cast until it ends
            with torch.autocast("cpu", dtype=torch.bfloat16):
                train(model, optimizer, image_loss, [t])
    else:
        train(model, optimizer, autocast_loss, range(5))
    train(expected, NGSGD(expected, **OPTIONS, method=method, fused=fused), image_loss, range(5))
    for name, parameter in weights(model).items():
        assert parameter.dtype == torch.float32
        error = relative_error(parameter - before[name], weights(expected)[name] - before[name])
        assert 1e-6 < error < 0.1, f"{name}: {error}"  # not zero: bfloat16 was indeed used


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_output_under_autocast_has_the_type_and_bits_of_the_plain_layer(dtype: torch.dtype) -> None:
    """Autocast leaves float64 alone."""
    for layer in (nn.Linear(6, 4), nn.Conv1d(6, 4, 1)):
        plain = layer.to(dtype)
        model = copy.deepcopy(plain)
        optimizer = NGSGD(model)
        x = (
            randn(6, 6, 1, seed=0, dtype=dtype)
            if isinstance(layer, nn.Conv1d)
            else randn(5, 6, seed=0, dtype=dtype)
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, expected = model(x), plain(x)
        assert output.dtype == expected.dtype
        assert torch.equal(output, expected)
        optimizer.step()


@fused_or_not
@methods
def test_bfloat16_model_trains_nearly_as_float32(method: str, fused: bool) -> None:
    """Few steps, large changes: a bfloat16 weight cannot take up small ones."""
    model, expected = network(torch.bfloat16), network(torch.bfloat16).float()
    before = weights(expected)
    options = OPTIONS | {"lr": 0.2, "max_change_per_sample": None, "method": method, "fused": fused}
    train(model, NGSGD(model, **options), network_loss, range(2))
    train(expected, NGSGD(expected, **options), network_loss, range(2))
    for name, parameter in weights(model).items():
        assert parameter.dtype == torch.bfloat16
        change = weights(expected)[name] - before[name]
        assert relative_error(parameter.float() - before[name], change) < 0.1, name


def test_fisher_factors_of_a_bfloat16_model_are_float32() -> None:
    model = network(torch.bfloat16)
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    state = optimizer.state_dict()["state"]
    factors = [entry[side] for entry in state.values() for side in ("fisher_in", "fisher_out")]
    assert len(factors) == 4
    assert all(factor["R"].dtype == factor["d"].dtype == torch.float32 for factor in factors)


@methods
def test_fused_and_not_are_close_in_float32(method: str) -> None:
    models = [image_network(), image_network()]
    before = weights(models[0])
    for model, fused in zip(models, (False, True), strict=True):
        train(model, NGSGD(model, **OPTIONS, method=method, fused=fused), image_loss, range(10))
    for name, change in weights(models[0]).items():
        other = weights(models[1])[name] - before[name]
        assert relative_error(change - before[name], other) < 1e-4


def test_factors_that_are_learned_within_autocast_are_not_rounded() -> None:
    """What is computed by the end of a pass, or by `step`, is within its region, too."""
    model = seeded(lambda: nn.Linear(6, 5))
    optimizer = NGSGD(model, **OPTIONS)
    for t in range(3):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            optimizer.zero_grad()
            kept = model(randn(12, 6, seed=t, dtype=torch.float32))  # its pass might still come
            model(randn(12, 6, seed=t, dtype=torch.float32)).float().square().sum().backward()
            with optimizer.accumulate():
                model(randn(12, 6, seed=t, dtype=torch.float32)).float().square().sum().backward()
            optimizer.step()
        del kept
    [state] = optimizer.state_dict()["state"].values()
    for side in ("fisher_in", "fisher_out"):
        R = state[side]["R"]
        assert R.dtype == torch.float32
        torch.testing.assert_close(R @ R.t(), torch.eye(len(R)), rtol=0.0, atol=1e-5)
