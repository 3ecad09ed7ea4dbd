"""Each kind of layer, alone: what NGSGD makes of it is what the definitions say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    assert_same_change,
    assert_trains_literally,
    fisher_bits,
    fused_or_not,
    network,
    network_loss,
    randn,
    seeded,
    train,
    weights,
)

# What torch says of the plain layer.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning"),
    pytest.mark.usefixtures("by_torch_and_by_kernels"),
]


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    input_shape: tuple[int, ...]


CASES = {
    "linear": Case(lambda: nn.Linear(5, 4), (9, 5)),
    "linear without bias": Case(lambda: nn.Linear(5, 4, bias=False), (9, 5)),
    "linear 1-D": Case(lambda: nn.Linear(5, 4), (5,)),
    "linear 3-D": Case(lambda: nn.Linear(5, 4), (2, 3, 5)),
    "linear 4-D without bias": Case(lambda: nn.Linear(5, 4, bias=False), (2, 1, 3, 5)),
    "linear with one input": Case(lambda: nn.Linear(1, 4), (9, 1)),
    "linear with one input and no bias": Case(lambda: nn.Linear(1, 4, bias=False), (9, 1)),
    "linear with one output": Case(lambda: nn.Linear(5, 1), (9, 5)),
    "conv1d": Case(lambda: nn.Conv1d(2, 4, 3), (3, 2, 7)),
    "conv1d with everything": Case(
        lambda: nn.Conv1d(2, 4, 3, stride=2, padding=2, dilation=2, bias=False), (3, 2, 9)
    ),
    "conv1d same": Case(lambda: nn.Conv1d(2, 4, 4, padding="same"), (3, 2, 6)),
    "conv1d valid": Case(lambda: nn.Conv1d(2, 4, 3, padding="valid"), (3, 2, 6)),
    "conv1d circular": Case(
        lambda: nn.Conv1d(2, 4, 3, padding=2, padding_mode="circular"), (3, 2, 6)
    ),
    "conv1d unbatched": Case(lambda: nn.Conv1d(2, 4, 3, padding=1), (2, 7)),
    "conv2d": Case(lambda: nn.Conv2d(2, 4, 3), (2, 2, 5, 6)),
    "conv2d with everything": Case(
        lambda: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
        (2, 2, 5, 6),
    ),
    "conv2d same": Case(
        lambda: nn.Conv2d(2, 4, (2, 3), padding="same", dilation=(2, 1)), (2, 2, 5, 6)
    ),
    "conv2d same reflect": Case(
        lambda: nn.Conv2d(2, 4, 3, padding="same", padding_mode="reflect"), (2, 2, 4, 5)
    ),
    "conv2d replicate": Case(
        lambda: nn.Conv2d(2, 4, 3, padding=(1, 2), padding_mode="replicate", stride=2), (2, 2, 5, 6)
    ),
    "conv2d unbatched without bias": Case(lambda: nn.Conv2d(2, 4, 3, bias=False), (2, 5, 6)),
    "conv2d 1x1": Case(lambda: nn.Conv2d(3, 4, 1), (2, 3, 4, 4)),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def make(case: Case) -> nn.Module:
    return seeded(case.make).double()


def loss_on(case: Case) -> Callable[[nn.Module, int], Tensor]:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = randn(*case.input_shape, seed=t).requires_grad_()
        return torch.as_tensor((model(x) - 1.0).square().sum() / 2.0)

    return loss_of


@fused_or_not
@cases
def test_method_none_is_torch_sgd(case: Case, fused: bool) -> None:
    model = make(case)
    before, plain = weights(model), copy.deepcopy(model)
    optimizer = NGSGD(model, lr=0.02, method="none", max_change_per_sample=None, fused=fused)
    train(model, optimizer, loss_on(case), range(4))
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.02), loss_on(case), range(4))
    assert_same_change(before, model, plain, 1e-10)


@fused_or_not
@pytest.mark.parametrize("method", ["online", "simple"])
@cases
def test_natural_gradient_is_the_literal_one(case: Case, method: str, fused: bool) -> None:
    assert_trains_literally(lambda: make(case), loss_on(case), method=method, fused=fused)


@fused_or_not
@cases
def test_tapped_layer_gives_the_output_and_input_derivative_of_the_plain_one(
    case: Case, fused: bool
) -> None:
    model = make(case)
    plain = copy.deepcopy(model)
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    x, x_plain = (randn(*case.input_shape, seed=0).requires_grad_() for _ in range(2))
    output, expected = model(x), plain(x_plain)
    torch.testing.assert_close(output, expected, rtol=1e-12, atol=1e-12)
    output.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(x.grad, x_plain.grad, rtol=1e-12, atol=1e-12)
    optimizer.step()


@fused_or_not
@pytest.mark.parametrize("method", ["online", "simple"])
def test_whole_network_trains_literally_past_the_first_ten_minibatches(
    method: str, fused: bool
) -> None:
    def loss_of(model: nn.Module, t: int) -> Tensor:
        return network_loss(model, t, num_samples=5 + t % 3)

    assert_trains_literally(
        network, loss_of, num_steps=18, method=method, fused=fused, tolerance=1e-8
    )


def test_preconditioning_makes_a_difference() -> None:
    models = {method: network() for method in ("online", "simple", "none")}
    for method, model in models.items():
        train(model, NGSGD(model, **OPTIONS, method=method), network_loss, range(3))
    for a, b in (("online", "none"), ("simple", "none"), ("online", "simple")):
        change = (weights(models[a])["0.weight"] - weights(models[b])["0.weight"]).abs().max()
        assert change > 1e-3, f"{a} and {b} train alike"


@fused_or_not
def test_convolution_in_channels_last_memory_trains_literally(fused: bool) -> None:
    def make_channels_last() -> nn.Module:
        return make(CASES["conv2d"]).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = randn(2, 2, 5, 6, seed=t).contiguous(memory_format=torch.channels_last)
        return torch.as_tensor((model(x) - 1.0).square().sum())

    optimizer = assert_trains_literally(make_channels_last, loss_of, fused=fused)
    (weight, _) = optimizer.param_groups[0]["params"]
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


@fused_or_not
@pytest.mark.parametrize("name", ["linear", "linear 3-D", "conv1d", "conv2d"])
def test_expanded_derivatives_and_inputs_train_literally(name: str, fused: bool) -> None:
    """The derivative of a sum is one number, expanded: memory with strides of zero."""
    case = CASES[name]

    def loss_of(model: nn.Module, t: int) -> Tensor:
        x = randn(*case.input_shape[1:], seed=t).expand(case.input_shape)
        return torch.as_tensor(model(x).sum())

    assert_trains_literally(lambda: make(case), loss_of, fused=fused, tolerance=1e-7)


@fused_or_not
@pytest.mark.parametrize("method", ["online", "simple", "none"])
@pytest.mark.parametrize("name", ["linear", "linear 3-D", "conv1d", "conv2d"])
def test_minibatch_without_samples_changes_nothing(name: str, method: str, fused: bool) -> None:
    case = CASES[name]
    model = make(case)
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    train(model, optimizer, loss_on(case), range(2))
    before = weights(model)
    factors = fisher_bits(optimizer)
    optimizer.zero_grad()
    model(torch.zeros(0, *case.input_shape[1:]).double()).sum().backward()
    optimizer.step()
    assert all(torch.equal(before[key], value) for key, value in weights(model).items())
    assert fisher_bits(optimizer) == factors


@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_first_minibatch_may_be_empty(name: str) -> None:
    case = CASES[name]

    def loss_of(model: nn.Module, t: int) -> Tensor:
        if t == 0:
            return torch.as_tensor(model(torch.zeros(0, *case.input_shape[1:]).double()).sum())
        return loss_on(case)(model, t)

    assert_trains_literally(lambda: make(case), loss_of)


@fused_or_not
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 5, 6), (2, 3, 5, 6), (2, 64, 256)])
def test_output_may_be_changed_in_place(shape: tuple[int, ...], bias: bool, fused: bool) -> None:
    def make(inplace: bool) -> nn.Module:
        layers = nn.Linear(shape[-1], 300, bias=bias), nn.ReLU(inplace=inplace), nn.Linear(300, 1)
        return nn.Sequential(*layers)

    results = []
    for inplace in (False, True):
        model = seeded(partial(make, inplace))
        train(
            model,
            NGSGD(model, **OPTIONS, fused=fused),
            lambda m, t: m(randn(*shape, seed=t, dtype=torch.float32)).square().sum(),
            range(3),
        )
        results.append(weights(model))
    torch.testing.assert_close(results[1], results[0], rtol=0.0, atol=0.0)
