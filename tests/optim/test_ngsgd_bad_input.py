"""NaN and infinity: the step is refused, the error says where, and nothing is spoiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD, NonFiniteError
from natgrad.optim import refusal
from tests.optim.models import (
    OPTIONS,
    bits,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    train,
)

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")

bad_values = pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])


class Spoil(torch.autograd.Function):
    """The identity, whose derivative has one bad element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bad: float) -> Tensor:
        ctx.bad = bad
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone()
        grad[0, 1] = ctx.bad
        return grad, None


def bad_in_input(model: Any, bad: float) -> Tensor:
    x = randn(12, 6, seed=50)
    x[2, 3] = bad
    x = x - x.mean(dim=0)  # also an infinity becomes NaN, which no tanh makes finite
    return torch.as_tensor(model(x).square().sum())


def bad_in_loss(model: Any, bad: float) -> Tensor:
    return network_loss(model, 50) * bad


def bad_in_derivative_of_last(model: Any, bad: float) -> Tensor:
    return torch.as_tensor(Spoil.apply(model(randn(12, 6, seed=50)), bad).square().sum())  # type: ignore[no-untyped-call]


def bad_in_derivative_of_first(model: Any, bad: float) -> Tensor:
    """Layer 3, behind it in the backward pass, and layer norm 2 have good derivatives."""
    x = Spoil.apply(model[0](randn(12, 6, seed=50)), bad)  # type: ignore[no-untyped-call]
    return torch.as_tensor(model[1:](x).square().sum())


def bad_in_plain_parameter(model: Any, bad: float) -> Tensor:
    """Beside a good loss, a term that only layer norm 2 sees."""
    return torch.as_tensor(network_loss(model, 50) + model[2].weight.sum() * bad)


# What is bad, and the first layer (or parameter) that meets it.
SOURCES: dict[str, tuple[Callable[[Any, float], Tensor], str]] = {
    "input": (bad_in_input, "layer '3'"),
    "loss": (bad_in_loss, "layer '3'"),
    "derivative of last": (bad_in_derivative_of_last, "layer '3'"),
    "derivative of first": (bad_in_derivative_of_first, "layer '0'"),
    "plain parameter": (bad_in_plain_parameter, "parameter '2.weight'"),
}
sources = pytest.mark.parametrize("source", SOURCES)


@bad_values
@sources
@methods
def test_refused_step_names_the_place_and_leaves_no_trace(
    source: str, method: str, bad: float
) -> None:
    make_loss, place = SOURCES[source]
    model, undisturbed = network(), network()
    optimizer = NGSGD(model, **OPTIONS, method=method)
    train(model, optimizer, network_loss, range(3))
    before = bits([model.state_dict(), optimizer.state_dict()])
    optimizer.zero_grad()
    make_loss(model, bad).backward()
    message = (
        rf"refused\. {place}: .*NaN or infinite.* No parameter and no Fisher factor has changed"
    )
    with pytest.raises(NonFiniteError, match=message):
        optimizer.step()
    assert bits([model.state_dict(), optimizer.state_dict()]) == before
    train(model, optimizer, network_loss, range(3, 16))
    train(undisturbed, NGSGD(undisturbed, **OPTIONS, method=method), network_loss, range(16))
    assert bits(model.state_dict()) == bits(undisturbed.state_dict())


# With fused=True: what has changed before the bad value is met.
UPDATED = {
    "input": set(),
    "loss": set(),
    "derivative of last": set(),
    "derivative of first": {"3"},
    "plain parameter": {"3"},
}


@bad_values
@sources
@methods
def test_fused_step_lists_what_was_updated_and_leaves_the_rest(
    source: str, method: str, bad: float
) -> None:
    make_loss, place = SOURCES[source]
    updated = UPDATED[source]
    model = network()
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=True)
    train(model, optimizer, network_loss, range(3))
    before, state = bits(model.state_dict()), bits(optimizer.state_dict()["state"])
    optimizer.zero_grad()
    make_loss(model, bad).backward()
    if updated:
        names = ", ".join(sorted(updated, reverse=True))
        consequence = f"these layers had been updated before it was met: {names};"
    else:
        consequence = "No parameter and no Fisher factor has changed"
    with pytest.raises(NonFiniteError, match=rf"{place}: .*NaN or infinite.*{consequence}"):
        optimizer.step()
    for name, value in bits(model.state_dict()).items():
        assert (value != before[name]) == (name.split(".")[0] in updated), name
    index = {"0": 0, "3": 4}
    for layer, i in index.items():
        assert (bits(optimizer.state_dict()["state"][i]) != state[i]) == (layer in updated), layer
    train(model, optimizer, network_loss, range(3, 6))
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert bits(model.state_dict())["0.weight"] != before["0.weight"]


@fused_or_not
@methods
@pytest.mark.parametrize("side", ["inputs", "derivatives at its output"])
def test_one_bad_side_of_a_layer_leaves_both_its_factors(
    side: str, method: str, fused: bool
) -> None:
    model = nn.Linear(6, 4).double()
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=fused)
    x, derivative = randn(9, 6, seed=0), randn(9, 4, seed=1)
    for is_bad in (False, True):
        before = bits([model.state_dict(), optimizer.state_dict()["state"]])
        optimizer.zero_grad()
        if is_bad:
            (x if side == "inputs" else derivative)[1, 1] = torch.nan
        model(x).backward(derivative)
        if is_bad:
            with pytest.raises(
                NonFiniteError, match=rf"layer 'Linear': 1 of the \d+ {side} are NaN"
            ):
                optimizer.step()
        else:
            optimizer.step()
        assert (bits([model.state_dict(), optimizer.state_dict()["state"]]) == before) == is_bad


class Clean(torch.autograd.Function):
    """The identity, whose derivative is without bad elements."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ones_like(grad)


@methods
def test_good_layers_behind_a_refusing_one_stay_too(method: str) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, method=method, fused=True)
    train(model, optimizer, network_loss, range(2))
    before = bits([model.state_dict(), optimizer.state_dict()])
    hidden = Clean.apply(model[:2](randn(12, 6, seed=50)))  # type: ignore[no-untyped-call]
    Spoil.apply(model[2:](hidden), torch.nan).sum().backward()  # type: ignore[no-untyped-call]
    with pytest.raises(NonFiniteError, match=r"layer '3': .*No parameter and no Fisher factor has"):
        optimizer.step()
    assert bits([model.state_dict(), optimizer.state_dict()]) == before


@fused_or_not
@methods
def test_bad_first_minibatch_leaves_no_trace(method: str, fused: bool) -> None:
    model, undisturbed = network(), network()
    options = OPTIONS | {"method": method, "fused": fused}
    optimizer = NGSGD(model, **options)
    bad_in_loss(model, torch.nan).backward()
    with pytest.raises(NonFiniteError):
        optimizer.step()
    train(model, optimizer, network_loss, range(4))
    train(undisturbed, NGSGD(undisturbed, **options), network_loss, range(4))
    assert bits(model.state_dict()) == bits(undisturbed.state_dict())


def test_error_counts_the_bad_values() -> None:
    model = network()
    optimizer = NGSGD(model)
    bad_in_derivative_of_first(model, torch.nan).backward()
    with pytest.raises(
        NonFiniteError, match="layer '0': 1 of the 96 derivatives at its output are NaN"
    ):
        optimizer.step()
    optimizer.zero_grad()
    x = randn(12, 6, seed=0)
    x[:2, 3] = torch.inf
    model[0](x).sum().backward()
    with pytest.raises(NonFiniteError, match="layer '0': 2 of the 72 inputs are NaN or infinite"):
        optimizer.step()


def test_bad_pass_among_good_ones_refuses_the_step_and_takes_all_back() -> None:
    model, undisturbed = network(), network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    optimizer.zero_grad()
    for t in range(10, 12):
        network_loss(model, t).backward()
    bad_in_loss(model, torch.nan).backward()
    network_loss(model, 12).backward()
    with pytest.raises(NonFiniteError, match="No parameter and no Fisher factor has changed"):
        optimizer.step()
    train(model, optimizer, network_loss, range(2, 5))
    train(undisturbed, NGSGD(undisturbed, **OPTIONS), network_loss, range(5))
    assert bits(model.state_dict()) == bits(undisturbed.state_dict())


def test_bad_gradient_that_a_user_put_there_is_refused() -> None:
    model = network()
    optimizer = NGSGD(model)
    network_loss(model, 0).backward()
    assert model[3].weight.grad is not None
    model[3].weight.grad[0, 0] = torch.nan
    with pytest.raises(NonFiniteError, match=r"parameter '3\.weight': 1 of the 32 elements"):
        optimizer.step()


def test_gradients_of_a_model_that_was_released_are_its_own_affair() -> None:
    """And of one whose optimizer is gone: nothing looks at them, and nothing is kept alive."""
    model = network()
    looked_at: list[str] = []

    def look_at(parameter: Tensor, name: str) -> None:
        looked_at.append(name)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(refusal, "bad_gradient", look_at)
        optimizer = NGSGD(model, fused=True)
        network_loss(model, 0).backward()
        assert {"2.weight", "2.bias"} < set(looked_at)
        optimizer.step()
        looked_at.clear()
        optimizer.release()
        network_loss(model, 1).backward()
        optimizer = NGSGD(model, fused=True)
        del optimizer
        network_loss(model, 2).backward()
        assert not looked_at
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_plain_parameter_that_was_thawed_since_stops_the_layers_after_it() -> None:
    model = network()
    model[2].requires_grad_(False)
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    assert not any(parameter.requires_grad for parameter in model[2].parameters())
    model[2].requires_grad_(True)
    bad_in_plain_parameter(model, torch.nan).backward()
    with pytest.raises(NonFiniteError, match=r"had been updated before it was met: 3;"):
        optimizer.step()


def test_change_that_would_be_multiplied_beyond_float32_is_refused() -> None:
    model = nn.Linear(30, 20)
    before = bits(model.state_dict())
    options = {"method": "simple", "alpha": 0.1, "max_change_per_sample": None}
    optimizer = NGSGD(model, lr=3e38, fused=True, **options)  # type: ignore[arg-type]
    (model(randn(40, 30, seed=1).float()).square().sum() * 1e-30).backward()
    with pytest.raises(NonFiniteError, match="its change would be multiplied by -"):
        optimizer.step()
    assert bits(model.state_dict()) == before


def test_bad_sparse_gradient_is_refused() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    optimizer = NGSGD(model)
    (model(torch.tensor([1, 1, 4])).sum() * torch.nan).backward()
    with pytest.raises(NonFiniteError, match="parameter 'weight': 6 of the 6 elements"):
        optimizer.step()


def test_gradient_whose_sum_overflows_is_finite() -> None:
    model = nn.LayerNorm(4)
    optimizer = NGSGD(model, lr=1e-38)
    (model.weight * 3e38).sum().backward()
    optimizer.step()
    torch.testing.assert_close(model.weight.detach(), torch.full((4,), 1.0 - 3.0))


@fused_or_not
@methods
@pytest.mark.parametrize("max_change_per_sample", [0.05, None])
@pytest.mark.parametrize(
    ("x_scale", "derivative_scale"), [(1e30, 1.0), (1.0, 1e30), (3e18, 3e18), (2e17, 2e17)]
)
def test_values_too_large_for_float32_are_refused_or_stay_finite(
    x_scale: float,
    derivative_scale: float,
    max_change_per_sample: float | None,
    method: str,
    fused: bool,
) -> None:
    """At 3e18, each square is finite, but a sum over samples is not."""
    model = nn.Linear(3, 2)
    before = bits(model.state_dict())
    options = OPTIONS | {"max_change_per_sample": max_change_per_sample, "method": method}
    optimizer = NGSGD(model, **options, fused=fused)
    model(torch.ones(2000, 3) * x_scale).backward(torch.ones(2000, 2) * derivative_scale)
    refusal = ""
    try:
        optimizer.step()
    except NonFiniteError as error:
        refusal = str(error)
    largest = max(x_scale, derivative_scale)
    assert bool(refusal) or largest < 1e30
    assert not refusal or largest > 1e18
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert (bits(model.state_dict()) == before) == bool(refusal)


@fused_or_not
def test_zero_grad_drops_a_refusal(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    bad_in_input(model, torch.nan).backward()
    train(model, optimizer, network_loss, range(2))
