"""How an optimizer and a model live together, part, and are copied."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    bits,
    fisher_bits,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    seeded,
    train,
)


def plain_gradients(model: nn.Module, t: int) -> list[Tensor]:
    """Return the gradients of an untapped copy."""
    untouched = network()
    untouched.load_state_dict(model.state_dict())
    return list(torch.autograd.grad(network_loss(untouched, t), list(untouched.parameters())))


def gradients(model: nn.Module, t: int) -> list[Tensor | None]:
    model.zero_grad()
    network_loss(model, t).backward()
    return [parameter.grad for parameter in model.parameters()]


def assert_plain(model: nn.Module) -> None:
    for actual, expected in zip(gradients(model, 40), plain_gradients(model, 40), strict=True):
        assert actual is not None
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def by_pickle(model: nn.Module) -> nn.Module:
    copied = pickle.loads(pickle.dumps(model))
    assert isinstance(copied, nn.Module)
    return copied


def by_pickle_of_a_copy(model: nn.Module) -> nn.Module:
    return by_pickle(copy.deepcopy(by_pickle(model)))


@fused_or_not
@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle, by_pickle_of_a_copy])
def test_copy_of_a_tapped_model_is_plain_and_independent(
    duplicate: Callable[[nn.Module], nn.Module], fused: bool
) -> None:
    model, other = network(), network()
    options = OPTIONS | {"fused": fused}
    optimizer = NGSGD(model, **options)
    train(model, optimizer, network_loss, range(2))
    copied = duplicate(model)
    assert_plain(copied)
    train(copied, torch.optim.SGD(copied.parameters(), lr=0.1), network_loss, range(3))
    train(copied, NGSGD(copied, **options), network_loss, range(3))  # and it can be tapped
    train(model, optimizer, network_loss, range(2, 4))
    train(other, NGSGD(other, **options), network_loss, range(4))
    assert bits(model.state_dict()) == bits(other.state_dict())


@fused_or_not
@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
def test_copy_can_be_tapped_again(duplicate: Callable[[nn.Module], nn.Module], fused: bool) -> None:
    model = network()
    first = NGSGD(model, **OPTIONS, fused=fused)
    copied = duplicate(model)
    train(model, first, network_loss, range(3))
    train(copied, NGSGD(copied, **OPTIONS, fused=fused), network_loss, range(3))
    assert bits(copied.state_dict()) == bits(model.state_dict())


def test_older_of_two_optimizers_refuses_to_step() -> None:
    model = network()
    older = NGSGD(model, **OPTIONS)
    newer = NGSGD(model, **OPTIONS)
    network_loss(model, 0).backward()
    with pytest.raises(
        RuntimeError, match=r"layer '0' is no longer tapped by this NGSGD.*use the newer"
    ):
        older.step()
    newer.step()
    assert older.layer_statistics()["0"]["num_minibatches"] == 0
    assert newer.layer_statistics()["0"]["num_minibatches"] == 1


def test_dropped_optimizer_leaves_a_plain_model() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    del optimizer
    gc.collect()
    assert_plain(model)


def test_released_model_is_as_before() -> None:
    model = network()
    before = [(type(module), set(vars(module))) for module in model.modules()]
    optimizer = NGSGD(model, **OPTIONS)
    assert [(type(module), set(vars(module))) for module in model.modules()] != before
    assert str(model) == str(network())
    optimizer.release()
    assert [(type(module), set(vars(module))) for module in model.modules()] == before
    assert_plain(model)
    with pytest.raises(RuntimeError, match="release"):
        optimizer.step()


def test_release_of_the_older_leaves_the_taps_of_the_newer() -> None:
    model, other = network(), network()
    older = NGSGD(model, **OPTIONS)
    newer = NGSGD(model, **OPTIONS)
    older.release()
    train(model, newer, network_loss, range(2))
    train(other, NGSGD(other, **OPTIONS), network_loss, range(2))
    assert bits(model.state_dict()) == bits(other.state_dict())


@fused_or_not
def test_untapped_gives_plain_gradients_and_teaches_nothing(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(2))
    before = fisher_bits(optimizer)
    optimizer.zero_grad()
    with optimizer.untapped():
        assert_plain(model)
    assert fisher_bits(optimizer) == before
    optimizer.zero_grad()
    natural = gradients(model, 40)[0]
    assert natural is None or not torch.allclose(natural, plain_gradients(model, 40)[0])


def evaluate_without_grad(model: nn.Module) -> None:
    with torch.no_grad():
        network_loss(model, 30)


def evaluate_in_inference_mode(model: nn.Module) -> None:
    with torch.inference_mode():
        network_loss(model, 30)


def evaluate_with_grad(model: nn.Module) -> None:
    network_loss(model, 30)


def evaluate_and_keep_the_graph(model: nn.Module) -> None:
    model.kept = network_loss(model, 30)


def take_gradient_of_the_input(model: nn.Module) -> None:
    x = torch.ones(3, 6, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x).square().sum(), x)
    assert float(grad.abs().max()) > 0.0


def backward_to_the_input_only(model: nn.Module) -> None:
    x = torch.ones(3, 6, dtype=torch.float64, requires_grad=True)
    model(x).square().sum().backward(inputs=[x])
    assert x.grad is not None


def take_gradients_as_values(model: nn.Module) -> None:
    """They are the plain ones: what a user does with values is not a training step."""
    grads = torch.autograd.grad(network_loss(model, 30), list(model.parameters()))
    for actual, expected in zip(grads, plain_gradients(model, 30), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-14)


def take_gradient_of_a_bias(model: nn.Module) -> None:
    bias = model.get_parameter("0.bias")
    (grad,) = torch.autograd.grad(network_loss(model, 30), bias)
    torch.testing.assert_close(grad, plain_gradients(model, 30)[1], rtol=1e-12, atol=1e-14)


@fused_or_not
@methods
@pytest.mark.parametrize(
    "interlude",
    [
        evaluate_without_grad,
        evaluate_in_inference_mode,
        evaluate_with_grad,
        evaluate_and_keep_the_graph,
        take_gradient_of_the_input,
        backward_to_the_input_only,
        take_gradients_as_values,
        take_gradient_of_a_bias,
    ],
)
def test_what_is_no_training_does_not_disturb_training(
    interlude: Callable[[nn.Module], None], method: str, fused: bool
) -> None:
    model, undisturbed = network(), network()
    options = OPTIONS | {"method": method, "fused": fused}
    optimizer = NGSGD(model, **options)
    for t in range(4):
        interlude(model)
        loss = network_loss(model, t)
        interlude(model)
        optimizer.zero_grad()
        loss.backward()
        interlude(model)
        optimizer.step()
    train(undisturbed, NGSGD(undisturbed, **options), network_loss, range(4))
    assert bits(model.state_dict()) == bits(undisturbed.state_dict())


@pytest.mark.parametrize("wrt", ["input", "parameters"])
@fused_or_not
def test_double_backward_is_refused(wrt: str, fused: bool) -> None:
    """A derivative of the natural gradient would be wrong, and must not pass for zero."""
    model = network()
    optimizer = NGSGD(model, fused=fused)
    x = torch.ones(3, 6, dtype=torch.float64, requires_grad=True)
    inputs = [x] if wrt == "input" else list(model.parameters())
    for loss in (model(x).square().sum(), model(x).sum()):
        with pytest.raises(RuntimeError, match=r"layer '\d' .* no second derivatives.*untapped"):
            torch.autograd.grad(loss, inputs, create_graph=True)
    optimizer.zero_grad()


def test_double_backward_works_untapped() -> None:
    model = network()
    optimizer = NGSGD(model)
    x = torch.ones(3, 6, dtype=torch.float64, requires_grad=True)
    with optimizer.untapped():
        (grad,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
        grad.square().sum().backward()
    assert model[0].weight.grad is not None


@fused_or_not
def test_step_with_a_closure_computes_the_loss_and_returns_it(fused: bool) -> None:
    model, other = network(), network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    for t in range(3):

        def closure(t: int = t) -> float:
            optimizer.zero_grad()
            loss = network_loss(model, t)
            loss.backward()
            return float(loss.detach())

        expected = float(network_loss(model, t).detach())
        assert optimizer.step(closure) == expected
    train(other, NGSGD(other, **OPTIONS, fused=fused), network_loss, range(3))
    assert bits(model.state_dict()) == bits(other.state_dict())


@pytest.mark.parametrize("set_to_none", [False, True])
@methods
def test_zero_grad_takes_back_what_a_backward_pass_has_taught(
    method: str, set_to_none: bool
) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, method=method)
    train(model, optimizer, network_loss, range(2))
    optimizer.zero_grad(set_to_none)
    before = bits(optimizer.state_dict())
    network_loss(model, 20).backward()
    assert bits(optimizer.state_dict()) != before
    optimizer.zero_grad(set_to_none)
    assert bits(optimizer.state_dict()) == before
    for parameter in model.parameters():
        assert (parameter.grad is None) == set_to_none
        assert set_to_none or not parameter.grad.any()


def test_step_without_a_backward_pass_changes_nothing() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    before = bits([model.state_dict(), optimizer.state_dict()])
    optimizer.step()
    assert bits([model.state_dict(), optimizer.state_dict()]) == before


@fused_or_not
def test_hooks_of_a_layer_run_as_ever(fused: bool) -> None:
    model = network()
    seen: list[str] = []
    model[3].register_forward_hook(lambda *_: seen.append("forward"))
    model[3].register_full_backward_hook(lambda *_: seen.append("backward"))
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(1))
    assert seen == ["forward", "backward"]


@pytest.mark.parametrize(
    "make",
    [lambda: nn.Linear(6, 4, bias=False), lambda: nn.Conv1d(2, 3, 2, bias=False)],
    ids=["linear", "convolution"],
)
def test_layer_without_bias_gives_plain_gradients_where_they_are_asked_for(
    make: Callable[[], nn.Module],
) -> None:
    model = seeded(make).double()
    shape = (3, 6) if isinstance(model, nn.Linear) else (3, 2, 6)
    x = randn(*shape, seed=0).requires_grad_()
    asked_for = [x, *model.parameters()]
    expected = torch.autograd.grad(model(x).square().sum(), asked_for)
    optimizer = NGSGD(model, **OPTIONS)
    torch.testing.assert_close(torch.autograd.grad(model(x).square().sum(), asked_for), expected)
    model(x).square().sum().backward(inputs=[x])
    torch.testing.assert_close(x.grad, expected[0])
    assert optimizer.layer_statistics()[type(model).__name__]["num_minibatches"] == 0


@fused_or_not
def test_plain_layer_that_takes_shape_later_learns_with_the_others(fused: bool) -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.Linear(8, 4))
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    model(torch.randn(5, 6))
    before = bits(model[1].weight)
    model(torch.randn(5, 6)).square().sum().backward()
    optimizer.step()
    assert bits(model[1].weight) != before


def test_lazy_layer_is_tapped_when_it_takes_shape() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LayerNorm(8), nn.LazyLinear(4)).double()
    optimizer = NGSGD(model, **OPTIONS)
    model(torch.zeros(1, 6, dtype=torch.float64))
    model.load_state_dict(network().state_dict())
    other = network()
    train(model, optimizer, network_loss, range(3))
    train(other, NGSGD(other, **OPTIONS), network_loss, range(3))
    assert bits(model.state_dict()) == bits(other.state_dict())
