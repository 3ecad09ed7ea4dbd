"""Layers called more than once, with shared weights, or frozen: their rows are one minibatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    LiteralNGSGD,
    assert_same_change,
    assert_trains_literally,
    fused_or_not,
    methods,
    randn,
    seeded,
    train,
    weights,
)


class Chain(nn.Module):
    """Layers in a row, the same ones several times over, some without effect on the output."""

    def __init__(
        self, layers: Sequence[nn.Module], order: Sequence[int], unused: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.order, self.unused = order, unused

    def forward(self, x: Tensor) -> Tensor:
        for index in self.unused:
            self.kept = self.layers[index](x)  # its graph lives on, and nobody derives by it
        for index in self.order:
            x = torch.tanh(self.layers[index](x))
        return x


def chain_loss(model: nn.Module, t: int) -> Tensor:
    return torch.as_tensor((model(randn(7, 4, seed=t)) - 0.5).square().sum())


def linears(*has_bias: bool) -> list[nn.Linear]:
    return [nn.Linear(4, 4, bias=bias) for bias in has_bias]


def chain_of_repeated() -> nn.Module:
    return Chain(linears(True, True), order=(0, 1, 0, 0))


def chain_of_repeated_convolutions() -> nn.Module:
    class Images(Chain):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.reshape(7, 2, 1, 2))

    return Images([nn.Conv2d(2, 2, 3, padding=1)], order=(0, 0))


def chain_sharing_weight_and_bias() -> nn.Module:
    layers = linears(True, True)
    layers[1].weight, layers[1].bias = layers[0].weight, layers[0].bias
    return Chain(layers, order=(0, 1))


def chain_sharing_weight() -> nn.Module:
    layers = linears(True, True, True)
    layers[2].weight = layers[0].weight
    return Chain(layers, order=(0, 1, 2, 2))


def chain_sharing_weight_with_a_layer_without_bias() -> nn.Module:
    layers = linears(True, False)
    layers[1].weight = layers[0].weight
    return Chain(layers, order=(0, 1))


def chain_of_which_only_the_layer_without_bias_is_used() -> nn.Module:
    layers = linears(True, False)
    layers[1].weight = layers[0].weight
    return Chain(layers, order=(1,))


def chain_sharing_weight_one_bias_frozen() -> nn.Module:
    layers = linears(True, True)
    layers[1].weight = layers[0].weight
    layers[0].bias.requires_grad_(False)
    return Chain(layers, order=(0, 1))


def chain_of_which_only_the_frozen_bias_is_used() -> nn.Module:
    layers = linears(True, True)
    layers[1].weight = layers[0].weight
    layers[1].bias.requires_grad_(False)
    return Chain(layers, order=(1,))


def chain_with_unused_output() -> nn.Module:
    return Chain(linears(True, True), order=(0, 1), unused=(0, 1))


def chain_with_unused_layer() -> nn.Module:
    return Chain(linears(True, True), order=(0,), unused=(1,))


def chain_with_frozen_weight() -> nn.Module:
    layers = linears(True, True)
    layers[0].weight.requires_grad_(False)
    return Chain(layers, order=(0, 1))


def chain_with_frozen_bias() -> nn.Module:
    layers = linears(True, True)
    layers[1].bias.requires_grad_(False)
    return Chain(layers, order=(0, 1))


def chain_with_frozen_layer() -> nn.Module:
    layers = linears(True, True)
    layers[1].requires_grad_(False)
    return Chain(layers, order=(0, 1))


CHAINS = [
    chain_of_repeated,
    chain_of_repeated_convolutions,
    chain_sharing_weight_and_bias,
    chain_sharing_weight,
    chain_sharing_weight_with_a_layer_without_bias,
    chain_of_which_only_the_layer_without_bias_is_used,
    chain_sharing_weight_one_bias_frozen,
    chain_of_which_only_the_frozen_bias_is_used,
    chain_with_unused_output,
    chain_with_unused_layer,
    chain_with_frozen_weight,
    chain_with_frozen_bias,
    chain_with_frozen_layer,
]


@fused_or_not
@methods
@pytest.mark.parametrize("chain", CHAINS)
def test_chain_trains_literally(chain: Callable[[], nn.Module], method: str, fused: bool) -> None:
    assert_trains_literally(lambda: seeded(chain).double(), chain_loss, method=method, fused=fused)


@fused_or_not
@methods
def test_freezing_and_unfreezing_on_the_way_trains_literally(method: str, fused: bool) -> None:
    model, copied = (seeded(chain_of_repeated).double() for _ in range(2))
    before = weights(model)
    literal = LiteralNGSGD(copied, method=method, **OPTIONS)
    optimizer = NGSGD(model, method=method, fused=fused, **OPTIONS)
    plan = {1: ("layers.0.bias", False), 3: ("layers.0.bias", True), 4: ("layers.1.weight", False),
            6: ("layers.1.weight", True)}  # fmt: skip
    for t in range(8):
        if t in plan:
            name, requires_grad = plan[t]
            for each in (model, copied):
                each.get_parameter(name).requires_grad_(requires_grad)
        at_start = weights(model)
        train(model, optimizer, chain_loss, [t])
        literal.step(chain_loss, t)
        for name, parameter in model.named_parameters():
            assert torch.equal(at_start[name], parameter) != parameter.requires_grad
    assert_same_change(before, model, copied, 1e-9)


def test_two_forward_passes_before_their_backward_passes_are_two_minibatches() -> None:
    """Both graphs are open at once, and each holds three calls of layer 0."""
    model, other = (seeded(chain_of_repeated).double() for _ in range(2))
    optimizer, expected = NGSGD(model, **OPTIONS), NGSGD(other, **OPTIONS)
    losses = [chain_loss(model, t) for t in range(2)]
    for loss in losses:
        loss.backward()
    for t in range(2):
        chain_loss(other, t).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, other.get_parameter(name).grad, rtol=1e-12, atol=0
        )
    optimizer.step()
    expected.step()
    for o in (optimizer, expected):
        assert o.layer_statistics()["layers.0"]["num_minibatches"] == 2


def test_second_pass_through_a_retained_graph_is_one_minibatch_too() -> None:
    model = seeded(chain_of_repeated).double()
    optimizer = NGSGD(model, **OPTIONS)
    loss = chain_loss(model, 0)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    assert optimizer.layer_statistics()["layers.0"]["num_minibatches"] == 2


@fused_or_not
@methods
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_does_not_change_the_result(
    use_reentrant: bool, method: str, fused: bool
) -> None:
    def checkpointed_loss(model: nn.Module, t: int) -> Tensor:
        x = randn(7, 4, seed=t).requires_grad_()
        output = checkpoint(model, x, use_reentrant=use_reentrant)
        return torch.as_tensor((output - 0.5).square().sum())

    model, plain = (seeded(chain_of_repeated).double() for _ in range(2))
    before = weights(model)
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    train(model, optimizer, checkpointed_loss, range(4))
    train(plain, NGSGD(plain, **OPTIONS, method=method, fused=fused), chain_loss, range(4))
    assert_same_change(before, model, plain, 1e-12)
    assert optimizer.layer_statistics()["layers.0"]["num_minibatches"] == 4
