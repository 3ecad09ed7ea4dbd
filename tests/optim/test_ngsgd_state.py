"""What goes through `state_dict`: all of it, to the bit."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, LRScheduler

from natgrad import NGSGD
from natgrad.optim.native import kernels_in_use
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

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")


def through_a_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@fused_or_not
@methods
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ten_and_ten_steps_with_a_save_between_are_twenty(
    dtype: torch.dtype, method: str, fused: bool
) -> None:
    options = OPTIONS | {"method": method, "fused": fused}
    model, whole = network(dtype), network(dtype)
    optimizer, expected = NGSGD(model, **options), NGSGD(whole, **options)
    train(whole, expected, network_loss, range(20))
    train(model, optimizer, network_loss, range(10))
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    model = seeded(lambda: network(dtype).apply(_disturb), seed=1)
    optimizer = NGSGD(model, fused=fused)
    train(model, optimizer, network_loss, range(30, 33))  # what it then holds must leave no trace
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    train(model, optimizer, network_loss, range(10, 20))
    assert bits(model.state_dict()) == bits(whole.state_dict())
    assert bits(optimizer.state_dict()) == bits(expected.state_dict())


def _disturb(module: nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        nn.init.normal_(parameter)


@pytest.mark.parametrize("save_after", [0, 1])
def test_state_is_saved_before_and_after_the_first_minibatch(save_after: int) -> None:
    """Also while a factor has not started yet: a zero softmax layer gives it only zeros."""

    def make() -> Any:
        model = network()
        nn.init.zeros_(model[3].weight)
        return model

    model, whole = make(), make()
    optimizer, expected = NGSGD(model, **OPTIONS), NGSGD(whole, **OPTIONS)
    train(whole, expected, network_loss, range(5))
    train(model, optimizer, network_loss, range(save_after))
    saved = through_a_file(optimizer.state_dict())
    optimizer = NGSGD(model, **OPTIONS)
    optimizer.load_state_dict(saved)
    train(model, optimizer, network_loss, range(save_after, 5))
    assert bits(model.state_dict()) == bits(whole.state_dict())


def test_saving_does_not_disturb_training() -> None:
    model, other = network(), network()
    optimizer, undisturbed = NGSGD(model, **OPTIONS), NGSGD(other, **OPTIONS)
    for t in range(5):
        train(model, optimizer, network_loss, [t])
        optimizer.state_dict()
    train(other, undisturbed, network_loss, range(5))
    assert bits(model.state_dict()) == bits(other.state_dict())


def test_saved_state_is_not_changed_by_training_on() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(3))
    saved = optimizer.state_dict()
    before = bits(saved)
    train(model, optimizer, network_loss, range(3, 6))
    assert bits(saved) == before
    assert bits(optimizer.state_dict()) != before


def test_loading_takes_copies_of_the_tensors() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(3))
    saved = optimizer.state_dict()
    copied = NGSGD(network(), **OPTIONS)
    copied.load_state_dict(saved)
    before = bits(copied.state_dict())
    for entry in saved["state"].values():
        for side in ("fisher_in", "fisher_out"):
            entry[side]["R"].zero_()
            entry[side]["d"].zero_()
    assert bits(copied.state_dict()) == before


def test_factors_of_a_bfloat16_model_are_not_rounded_by_loading() -> None:
    model = network(torch.bfloat16)
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(3))
    saved = optimizer.state_dict()
    R = saved["state"][0]["fisher_in"]["R"].clone()
    assert not torch.equal(R, R.bfloat16().float())
    loaded = NGSGD(network(torch.bfloat16), **OPTIONS)
    loaded.load_state_dict(saved)
    assert torch.equal(loaded.state_dict()["state"][0]["fisher_in"]["R"], R)


@pytest.mark.parametrize(
    ("saved_dtype", "dtype"), [(torch.float32, torch.float64), (torch.float64, torch.float32)]
)
def test_factors_go_into_a_model_of_another_precision(
    saved_dtype: torch.dtype, dtype: torch.dtype
) -> None:
    model = network(saved_dtype)
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(3))
    converted = copy.deepcopy(model).to(dtype)
    loaded = NGSGD(converted, **OPTIONS)
    loaded.load_state_dict(optimizer.state_dict())
    train(converted, loaded, network_loss, range(3, 5))
    train(model, optimizer, network_loss, range(3, 5))
    for name, parameter in converted.named_parameters():
        expected = model.get_parameter(name).to(dtype)
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-5)


OTHER_PROCESS = """
import sys, torch
from natgrad import NGSGD, use_native_kernels
from tests.optim.models import network, network_loss, train
torch.set_num_threads(1)
use_native_kernels(sys.argv[2] == "True")
saved = torch.load(sys.argv[1], weights_only=True)
model = network()
optimizer = NGSGD(model)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(model, optimizer, network_loss, range(4, 8))
torch.save(model.state_dict(), sys.argv[1])
"""


def test_another_process_trains_on_with_the_same_bits(tmp_path: Path) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(4))
    file = tmp_path / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    root = Path(__file__).parents[2]
    arguments = [str(file), str(kernels_in_use() is not None)]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *arguments], check=True, cwd=root)
    train(model, optimizer, network_loss, range(4, 8))
    assert bits(torch.load(file, weights_only=True)) == bits(model.state_dict())


def test_options_of_all_groups_survive() -> None:
    def make() -> NGSGD:
        model = network()
        groups = [
            {"params": model[3], "lr": 0.5, "method": "simple", "max_change_per_sample": None}
        ]
        return NGSGD(model, **OPTIONS, groups=groups)

    saved = through_a_file(make().state_dict())
    model = network()
    other = NGSGD(model, groups=[{"params": model[3]}])
    other.load_state_dict(saved)
    expected = make().state_dict()["param_groups"]
    assert other.state_dict()["param_groups"] == expected
    assert expected[0] == OPTIONS | {"method": "online", "params": [0, 1, 2, 3]}
    assert expected[1]["method"] == "simple"
    # And they are what the next step goes by.
    train(model, other, network_loss, range(1))
    same = network()
    train(
        same,
        NGSGD(same, **OPTIONS, groups=[{**expected[1], "params": same[3]}]),
        network_loss,
        range(1),
    )
    assert bits(model.state_dict()) == bits(same.state_dict())


def exponential(optimizer: NGSGD) -> LRScheduler:
    return ExponentialLR(optimizer, gamma=0.5)


def by_lambda(optimizer: NGSGD) -> LRScheduler:
    return LambdaLR(optimizer, lambda epoch: 1.0 / (1 + epoch))


@fused_or_not
@methods
@pytest.mark.parametrize("schedule", [exponential, by_lambda])
def test_scheduler_sets_the_lr_of_the_next_step(
    schedule: Callable[[NGSGD], LRScheduler], method: str, fused: bool
) -> None:
    model, by_hand = network(), network()
    options = OPTIONS | {"method": method, "fused": fused}
    optimizer, other = NGSGD(model, **options), NGSGD(by_hand, **options)
    scheduler = schedule(optimizer)
    lrs = [0.5**t if schedule is exponential else 1.0 / (1 + t) for t in range(4)]
    for t in range(4):
        train(model, optimizer, network_loss, [t])
        scheduler.step()
        other.param_groups[0]["lr"] = OPTIONS["lr"] * lrs[t]
        train(by_hand, other, network_loss, [t])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, by_hand.get_parameter(name), rtol=1e-10, atol=1e-12)


def test_scheduler_goes_on_after_loading() -> None:
    model, whole = network(), network()
    optimizer, expected = NGSGD(model, **OPTIONS), NGSGD(whole, **OPTIONS)
    scheduler, expected_scheduler = exponential(optimizer), exponential(expected)
    for t in range(3):
        train(model, optimizer, network_loss, [t])
        scheduler.step()
    saved = through_a_file([optimizer.state_dict(), scheduler.state_dict()])
    optimizer = NGSGD(model, **OPTIONS)
    scheduler = exponential(optimizer)
    optimizer.load_state_dict(saved[0])
    scheduler.load_state_dict(saved[1])
    for t in range(3, 6):
        train(model, optimizer, network_loss, [t])
        scheduler.step()
    for t in range(6):
        train(whole, expected, network_loss, [t])
        expected_scheduler.step()
    assert bits(model.state_dict()) == bits(whole.state_dict())


def test_lr_may_be_a_tensor() -> None:
    model, other = network(), network()
    lr = torch.tensor(OPTIONS["lr"], dtype=torch.float64)
    train(model, NGSGD(model, **OPTIONS | {"lr": lr}), network_loss, range(3))
    train(other, NGSGD(other, **OPTIONS), network_loss, range(3))
    assert bits(model.state_dict()) == bits(other.state_dict())


def test_state_of_another_model_is_refused() -> None:
    saved = NGSGD(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))).state_dict()
    with pytest.raises(ValueError, match="size of optimizer's group"):
        NGSGD(nn.Linear(3, 3)).load_state_dict(saved)


def test_refused_step_may_be_followed_by_loading() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()])
    model(randn(3, 6, seed=0) * torch.nan).sum().backward()
    optimizer.zero_grad()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    train(model, optimizer, network_loss, range(2, 4))
    whole = network()
    train(whole, NGSGD(whole, **OPTIONS), network_loss, range(4))
    assert bits(model.state_dict()) == bits(whole.state_dict())


def test_factors_for_layers_of_other_sizes_are_refused_and_the_layer_named() -> None:
    model, other = nn.Linear(6, 4), nn.Linear(7, 4)
    optimizer = NGSGD(other)
    other(randn(5, 7, seed=0, dtype=torch.float32)).square().sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match=r"layer 'Linear' is for vectors of dimension 8.*has 6"):
        NGSGD(model).load_state_dict(optimizer.state_dict())


@fused_or_not
def test_state_that_is_refused_changes_nothing(fused: bool) -> None:
    def make(last: int) -> nn.Module:
        layers = nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, last)
        return nn.Sequential(*layers)

    def loss_of(model: nn.Module, t: int) -> torch.Tensor:
        return torch.as_tensor(model(randn(9, 6, seed=t, dtype=torch.float32)).square().sum())

    model, other = make(3), make(7)
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    bad = NGSGD(other, **OPTIONS | {"lr": 0.5}, fused=fused)
    train(model, optimizer, loss_of, range(3))
    train(other, bad, loss_of, range(3))
    before = bits([model.state_dict(), optimizer.state_dict()])
    with pytest.raises(ValueError, match=r"layer '2' is for vectors of dimension 7, .* has 3"):
        optimizer.load_state_dict(bad.state_dict())
    assert bits([model.state_dict(), optimizer.state_dict()]) == before
    optimizer.param_groups[0]["lr"] = 0.0
    train(model, optimizer, loss_of, [3])
    assert bits(model.state_dict()) == before[0]


def test_state_can_be_loaded_again_and_again() -> None:
    """torch writes options of its own into the defaults of an optimizer that loads a state."""
    model = nn.Linear(6, 4)
    optimizer = NGSGD(model)
    model(randn(5, 6, seed=0, dtype=torch.float32)).square().sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    for _ in range(2):
        optimizer.load_state_dict(state)
    again = optimizer.state_dict()
    torch.testing.assert_close(again["state"], state["state"], rtol=0.0, atol=0.0)
    optimizer.add_param_group({"params": [nn.Linear(3, 2)]})


def test_state_of_another_optimizer_is_refused() -> None:
    model = nn.Linear(6, 4)
    with pytest.raises(ValueError, match=r"has no .*method.*saved by another optimizer"):
        NGSGD(model).load_state_dict(torch.optim.SGD(model.parameters(), lr=0.1).state_dict())


@pytest.mark.parametrize(
    "options", [{"alpha": 0.5}, {"num_samples_history": 20.0}, {"update_period": 1}], ids=str
)
def test_option_changed_on_the_way_holds_from_the_next_minibatch(options: dict[str, Any]) -> None:
    model, reloaded = network(), network()
    optimizer, other = NGSGD(model, **OPTIONS), NGSGD(reloaded, **OPTIONS)
    train(model, optimizer, network_loss, range(14))
    train(reloaded, other, network_loss, range(14))
    for one in (optimizer, other):
        one.param_groups[0].update(options)
    other.load_state_dict(through_a_file(other.state_dict()))  # makes the factors anew
    train(model, optimizer, network_loss, range(14, 20))
    train(reloaded, other, network_loss, range(14, 20))
    assert bits(model.state_dict()) == bits(reloaded.state_dict())


def test_model_may_change_its_type_on_the_way() -> None:
    model = network(torch.float32)
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, lambda m, t: network_loss(m, t), range(3))
    model.double()
    train(model, optimizer, network_loss, range(3, 6))
    assert optimizer.state_dict()["state"][0]["fisher_out"]["R"].dtype == torch.float64


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy])
def test_copy_of_an_optimizer_is_refused_with_advice(duplicate: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"cannot be copied.*state_dict"):
        duplicate(NGSGD(nn.Linear(3, 2)))


def test_hooks_may_change_a_state_before_it_is_loaded() -> None:
    model, other = network(), network()
    source = NGSGD(model, **OPTIONS)
    train(model, source, network_loss, range(3))
    old = copy.deepcopy(source.state_dict())
    del old["param_groups"][0]["update_period"]
    optimizer = NGSGD(other, **OPTIONS)
    with pytest.raises(ValueError, match="the state has no update_period"):
        optimizer.load_state_dict(old)

    def complete(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "param_groups": [{**g, "update_period": 4} for g in state["param_groups"]]}

    handle = optimizer.register_load_state_dict_pre_hook(complete)
    optimizer.load_state_dict(old)
    assert fisher_bits(optimizer) == fisher_bits(source)
    handle.remove()
    optimizer.register_load_state_dict_pre_hook(lambda _, state: {**state, "state": {}})
    optimizer.load_state_dict(source.state_dict())
    assert optimizer.layer_statistics()["0"]["num_minibatches"] == 0


@pytest.mark.parametrize(
    ("option", "value"), [("lr", -0.1), ("method", "onlyne"), ("max_change_per_sample", -1.0)]
)
def test_state_with_options_that_have_no_meaning_is_refused(option: str, value: Any) -> None:
    optimizer = NGSGD(network(), **OPTIONS)
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0][option] = value
    with pytest.raises(ValueError, match=f"{option} must be .* but got '?{value}"):
        optimizer.load_state_dict(state)
    assert optimizer.param_groups[0][option] == {"method": "online", **OPTIONS}[option]
