"""Several backward passes before a step."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    assert_same_change,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    seeded,
    train,
    weights,
)


def part_loss(model: nn.Module, t: int, part: slice) -> Tensor:
    x, y = randn(12, 6, seed=t), torch.arange(12) % 4
    return F.cross_entropy(model(x[part]), y[part], reduction="sum")


PARTS = (slice(0, 3), slice(3, 4), slice(4, 12))


def whole_loss(model: nn.Module, t: int) -> Tensor:
    return part_loss(model, t, slice(0, 12))


@fused_or_not
@methods
@pytest.mark.parametrize("last_inside", [False, True], ids=["last outside", "last inside"])
def test_accumulated_passes_are_one_minibatch(method: str, fused: bool, last_inside: bool) -> None:
    model = network()
    before, other = weights(model), copy.deepcopy(model)
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    for t in range(4):
        optimizer.zero_grad()
        with optimizer.accumulate():
            for part in PARTS[:2]:
                part_loss(model, t, part).backward()
            if last_inside:
                part_loss(model, t, PARTS[2]).backward()
        if not last_inside:
            part_loss(model, t, PARTS[2]).backward()
        optimizer.step()
    train(other, NGSGD(other, **OPTIONS, method=method, fused=fused), whole_loss, range(4))
    assert_same_change(before, model, other, 1e-10)
    assert optimizer.layer_statistics()["0"]["num_minibatches"] == 4


@fused_or_not
def test_layer_that_only_an_accumulating_pass_reaches_is_trained(fused: bool) -> None:
    model = seeded(lambda: nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])).double()
    before = weights(model)
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    with optimizer.accumulate():
        model[0](randn(5, 3, seed=0)).square().sum().backward()
    model[1](randn(5, 3, seed=0)).square().sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert not torch.equal(before[name], parameter), name


@fused_or_not
def test_accumulated_rows_do_not_change_with_the_tensors_they_came_from(fused: bool) -> None:
    """An input buffer that is filled anew for each pass, and a derivative that is handed in."""
    model = nn.Linear(3, 2).double()
    before, other = weights(model), copy.deepcopy(model)
    options = OPTIONS | {"max_change_per_sample": None, "method": "none"}
    optimizer = NGSGD(model, **options, fused=fused)
    x, derivative = randn(5, 3, seed=0), randn(5, 2, seed=1)
    expected = torch.optim.SGD(other.parameters(), lr=OPTIONS["lr"])
    other(x.clone()).backward(derivative.clone())
    with optimizer.accumulate():
        model(x).backward(derivative)
    x.zero_()
    derivative.zero_()
    model(x).backward(derivative)
    optimizer.step()
    expected.step()
    assert_same_change(before, model, other, 1e-12)


@methods
def test_passes_without_accumulate_are_minibatches_whose_gradients_add_up(method: str) -> None:
    """The Fisher factors learn as in separate steps; with lr 0 those leave the weights alone."""
    model = network()
    other = copy.deepcopy(model)
    options = OPTIONS | {"max_change_per_sample": None, "lr": 0.0, "method": method}
    optimizer, separate = NGSGD(model, **options), NGSGD(other, **options)
    total = {name: torch.zeros_like(p) for name, p in other.named_parameters()}
    for t, part in enumerate(PARTS):
        part_loss(model, t, part).backward()
        separate.zero_grad()
        part_loss(other, t, part).backward()
        for name, parameter in other.named_parameters():
            assert parameter.grad is not None
            total[name] += parameter.grad
        separate.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, total[name], rtol=1e-12, atol=1e-14)
    optimizer.step()
    assert optimizer.layer_statistics()["0"]["num_minibatches"] == len(PARTS)


def test_second_backward_pass_before_the_step_is_refused_with_fused() -> None:
    model = network()
    optimizer = NGSGD(model, fused=True)
    network_loss(model, 0).backward()
    with pytest.raises(
        RuntimeError, match=r"layer '3' before optimizer.step.*accumulate\(\).*fused=False"
    ):
        network_loss(model, 1).backward()
    optimizer.step()
    train(model, optimizer, network_loss, range(2))


def test_zero_grad_forgets_what_was_accumulated() -> None:
    model = network()
    other = copy.deepcopy(model)
    optimizer = NGSGD(model, **OPTIONS)
    with optimizer.accumulate():
        network_loss(model, 7).backward()
    optimizer.zero_grad()
    train(model, optimizer, network_loss, range(3))
    train(other, NGSGD(other, **OPTIONS), network_loss, range(3))
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
