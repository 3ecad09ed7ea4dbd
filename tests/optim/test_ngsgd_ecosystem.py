"""How an optimizer gets on with what else people do with their models."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD
from natgrad.optim import taps
from tests.optim.models import OPTIONS, bits, fused_or_not, network, network_loss, randn, train

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")


def plain(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def none(model: nn.Module, *, fused: bool = False) -> NGSGD:
    """What makes the same steps as `plain`, by our own code."""
    return NGSGD(model, lr=0.1, method="none", max_change_per_sample=None, fused=fused)


def assert_alike(one: nn.Module, other: nn.Module) -> None:
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(parameter, other.get_parameter(name), rtol=1e-11, atol=1e-13)


# -- other graphs are alive -------------------------------------------------------------------


def test_gradients_meet_the_hooks_of_weights_whatever_graphs_are_alive() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    model[0].weight.register_hook(lambda grad: grad * 0.0)  # frozen, as by a mask
    before = model[0].weight.detach().clone()
    kept = model(randn(7, 6, seed=9))
    network_loss(model, 0).backward()
    optimizer.step()
    assert torch.equal(model[0].weight, before)
    assert optimizer.layer_statistics()["0"]["num_minibatches"] == 1
    del kept


def test_gradients_are_added_into_the_memory_that_is_there() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    buffer = torch.zeros_like(model[0].weight)
    model[0].weight.grad = buffer
    with optimizer.accumulate():
        network_loss(model, 0).backward()
    optimizer.step()  # which completes the minibatch
    assert model[0].weight.grad is buffer
    assert bool(buffer.any())


def last_of_three(layer: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return an output that is used, and one that depends on it and is not: the next state."""
    states = [x]
    for _ in range(3):
        states.append(torch.tanh(layer(states[-1])))
    return states[-2], states[-1]


@fused_or_not
def test_recurrent_layer_whose_last_state_is_kept_learns_as_ever(fused: bool) -> None:
    layer, other = (nn.Linear(4, 4).double() for _ in range(2))
    other.load_state_dict(layer.state_dict())
    optimizer, expected = none(layer, fused=fused), plain(other)
    for t in range(3):
        states = []
        for of, by in ((layer, optimizer), (other, expected)):
            by.zero_grad()
            used, state = last_of_three(of, randn(7, 4, seed=t))
            states.append(state)
            (used - 0.5).square().sum().backward()
            by.step()
    assert_alike(layer, other)
    assert optimizer.layer_statistics()["Linear"]["num_minibatches"] == 3


# -- what changes, and what must not ------------------------------------------------------------


@fused_or_not
def test_layer_that_was_frozen_since_the_forward_pass_stays_as_it_is(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    before = model[0].weight.detach().clone(), model[3].bias.detach().clone()
    loss = network_loss(model, 0)
    model[0].weight.requires_grad_(False)
    model[3].bias.requires_grad_(False)
    loss.backward()
    optimizer.step()
    assert torch.equal(model[0].weight, before[0])
    assert torch.equal(model[3].bias, before[1])
    assert not torch.equal(model[3].weight, network()[3].weight)


def test_fused_pass_that_is_no_step_cannot_be_taken_back_and_zero_grad_says_so() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    network_loss(model, 0).backward()
    with pytest.warns(UserWarning, match=r"take back how .* has changed 3, 0 .*freeze"):
        optimizer.zero_grad()
    train(model, optimizer, network_loss, range(1, 3))  # without a warning


def test_second_pass_through_a_retained_graph_of_fused_layers_is_refused_in_our_words() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    loss = network_loss(model, 0)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="a second backward pass reached layer '3' before"):
        loss.backward()
    optimizer.step()


def test_change_beyond_the_range_of_half_precision_is_refused() -> None:
    layer = nn.Linear(6, 4).half()
    before = bits(layer.state_dict())
    optimizer = NGSGD(layer, lr=1.0, max_change_per_sample=None, fused=True)
    output = layer(torch.full((8, 6), 200.0).half())
    output.backward(torch.full((8, 4), 200.0).half())
    with pytest.raises(FloatingPointError, match=r"layer 'Linear': .* beyond what torch.float16"):
        optimizer.step()
    assert bits(layer.state_dict()) == before
    assert "removed_in" not in optimizer.layer_statistics()["Linear"]


@fused_or_not
def test_learning_rate_that_has_become_meaningless_is_refused(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    before = bits(model.state_dict())
    optimizer.param_groups[0]["lr"] = float("nan")
    with pytest.raises(ValueError, match=r"lr must be 0 or more, and finite .*, but got nan"):
        train(model, optimizer, network_loss, range(1))
    assert bits(model.state_dict()) == before


# -- copies, memory, compilers ------------------------------------------------------------------


def test_model_that_is_dropped_is_freed_without_the_garbage_collector() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    gc.collect()
    gc.disable()
    try:
        weight = weakref.ref(model[0].weight)
        del model, optimizer
        assert weight() is None
    finally:
        gc.enable()


def test_shallow_copy_computes_with_its_own_weights() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    copied = copy.copy(model[0])
    copied._parameters = {"weight": nn.Parameter(torch.zeros(8, 6).double()), "bias": None}
    assert not copied(randn(3, 6, seed=0)).any()
    replica = model[0]._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.zeros(8, 6).double(), None
    assert not replica(randn(3, 6, seed=0)).any()
    assert taps.tapped_by(model[0]) is optimizer._matrices[model[0].weight]


def test_forward_that_a_user_put_on_a_tapped_layer_outlives_the_tap() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    own = model[0].forward
    model[0].forward = lambda x: 2.0 * own(x)
    x = randn(3, 6, seed=0)
    expected = model[0](x)
    optimizer.release()
    torch.testing.assert_close(model[0](x), expected)


def test_layers_whose_class_computes_something_else_since_are_not_tapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x @ self.weight.t())
    assert not taps.can_tap(nn.Linear(3, 2))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own use of it
def test_transforms_of_functions_find_plain_layers() -> None:
    model = network()
    NGSGD(model, **OPTIONS)  # which has gone
    optimizer = NGSGD(model, **OPTIONS)
    x = randn(7, 6, seed=0)
    one_by_one = torch.stack([model(row) for row in x])
    torch.testing.assert_close(torch.func.vmap(model)(x), one_by_one)
    tangent = torch.func.jvp(model, (x,), (torch.ones_like(x),))[1]
    with optimizer.untapped():
        expected = torch.func.jvp(model, (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangent, expected)


@fused_or_not
def test_compiled_model_makes_the_same_steps(fused: bool) -> None:
    model, other = network(), network()
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    train(other, NGSGD(other, **OPTIONS, fused=fused), network_loss, range(3))
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    for t in range(3):
        optimizer.zero_grad()
        network_loss(compiled, t).backward()
        optimizer.step()
        NGSGD(network(), **OPTIONS)  # others come and go, and are nothing to the compiled one
    assert bits(model.state_dict()) == bits(other.state_dict())
