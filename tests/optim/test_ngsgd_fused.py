"""`fused=True` and `fused=False` are two ways to the same weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    assert_same_change,
    fisher_bits,
    methods,
    network,
    network_loss,
    train,
    weights,
)


@methods
def test_both_give_the_same_weights_over_thirty_steps(method: str) -> None:
    models = [network(), network()]
    before = weights(models[0])
    limited = []
    for model, fused in zip(models, (False, True), strict=True):
        optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
        train(model, optimizer, network_loss, range(30))
        limited.append({k: v["num_limited"] for k, v in optimizer.layer_statistics().items()})
    assert_same_change(before, models[0], models[1], 1e-10)
    assert limited[0] == limited[1]


def test_fused_leaves_grad_none_in_tapped_layers_only() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    network_loss(model, 0).backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == {"0.weight", "0.bias", "3.weight", "3.bias"}
    optimizer.step()


def test_fused_changes_tapped_layers_in_backward_and_the_rest_in_step() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    before = weights(model)
    network_loss(model, 0).backward()
    halfway = weights(model)
    optimizer.step()
    after = weights(model)
    for name in before:
        in_backward = not torch.equal(before[name], halfway[name])
        in_step = not torch.equal(halfway[name], after[name])
        is_tapped = not name.startswith("2.")
        assert (in_backward, in_step) == (is_tapped, not is_tapped), name


@methods
def test_unfused_grad_times_lr_is_the_change(method: str) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, method=method)
    train(model, optimizer, network_loss, range(3))
    before = weights(model)
    optimizer.zero_grad()
    network_loss(model, 3).backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
    optimizer.step()
    for name, parameter in model.named_parameters():
        expected = before[name] - OPTIONS["lr"] * grads[name]
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-14, atol=1e-15)


def test_clipped_natural_gradient_is_what_step_adds() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    before = weights(model)
    network_loss(model, 0).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.01)
    optimizer.step()
    change = torch.cat([(before[name] - p).flatten() for name, p in model.named_parameters()])
    assert float(norm) > 0.02
    assert float(change.detach().norm()) == pytest.approx(OPTIONS["lr"] * 0.01, rel=1e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_lr_zero_changes_no_weight_but_the_fisher_factors_learn(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS | {"lr": 0.0}, fused=fused)
    before = weights(model)
    train(model, optimizer, network_loss, range(1))
    factors = fisher_bits(optimizer)
    train(model, optimizer, network_loss, range(1, 2))
    assert fisher_bits(optimizer) != factors
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())
