"""Parameter groups, and options that make no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from natgrad import NGSGD
from tests.optim.models import (
    OPTIONS,
    assert_same_change,
    bits,
    network,
    network_loss,
    randn,
    seeded,
    train,
    weights,
)

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")

FORMS: dict[str, Callable[[nn.Sequential], Any]] = {
    "module": lambda model: model[3],
    "list of modules": lambda model: [model[3]],
    "list of parameters": lambda model: [model[3].weight, model[3].bias],
    "generator": lambda model: model[3].parameters(),
    "nested generators": lambda model: (p for p in [model[3].parameters()]),
    "module and its own parameter": lambda model: [model[3], model[3].bias],
}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_group_has_its_own_lr_and_options(form: str, fused: bool) -> None:
    """With lr 0 elsewhere, the group moves as if all had its options."""
    own = OPTIONS | {"method": "simple", "alpha": 8.0}
    model, other = network(), network()
    before = weights(model)
    groups = [{"params": FORMS[form](model), **own}]
    optimizer = NGSGD(model, **OPTIONS | {"lr": 0.0}, groups=groups, fused=fused)
    other[0].requires_grad_(False)
    other[2].requires_grad_(False)
    train(model, optimizer, network_loss, range(4))
    train(other, NGSGD(other, **own), network_loss, range(4))
    assert_same_change(before, model, other, 1e-10)
    assert not torch.equal(before["3.weight"], model[3].weight)
    assert torch.equal(before["0.weight"], model[0].weight)
    assert set(optimizer.layer_statistics()) == {"0", "3"}


def test_single_parameter_may_be_a_group() -> None:
    model = network()
    before = weights(model)
    groups = [{"params": model[2].weight, "lr": 0.0}]
    train(model, NGSGD(model, **OPTIONS, groups=groups), network_loss, range(2))
    for name, parameter in model.named_parameters():
        assert torch.equal(before[name], parameter) == (name == "2.weight")


def test_groups_may_name_every_parameter() -> None:
    model = network()
    optimizer = NGSGD(model, groups=[{"params": model, "lr": 0.5}])
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]


def test_shared_weight_in_a_list_of_modules_is_one_parameter() -> None:
    model = seeded(lambda: nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]))
    model[1].weight = model[0].weight
    optimizer = NGSGD(model, groups=[{"params": [model[0], model[1]]}])
    assert optimizer.param_groups[0]["params"] == [model[0].weight, model[0].bias, model[1].bias]


def two_separate_linears() -> tuple[nn.Module, nn.Module]:
    return seeded(lambda: (nn.Linear(4, 3).double(), nn.Linear(4, 3).double()))


@pytest.mark.parametrize("form", ["module", "list", "at construction"])
def test_added_module_is_preconditioned(form: str) -> None:
    first, second = two_separate_linears()
    whole = nn.ModuleList(two_separate_linears())
    before = weights(second)
    params = second if form == "module" else [second]
    if form == "at construction":
        optimizer = NGSGD(first, **OPTIONS, groups=[{"params": params}])
    else:
        optimizer = NGSGD(first, **OPTIONS)
        optimizer.add_param_group({"params": params})
    expected = NGSGD(whole, **OPTIONS)
    for t in range(3):
        x = randn(6, 4, seed=t)
        optimizer.zero_grad()
        (first(x) + second(x)).square().sum().backward()
        optimizer.step()
        expected.zero_grad()
        (whole[0](x) + whole[1](x)).square().sum().backward()
        expected.step()
    assert_same_change(before, second, whole[1], 1e-12)
    assert len(optimizer.layer_statistics()) == 2
    assert {s["num_minibatches"] for s in optimizer.layer_statistics().values()} == {3}


def test_state_with_an_added_group_is_saved_and_loaded() -> None:
    def make() -> tuple[nn.Module, nn.Module, NGSGD]:
        first, second = two_separate_linears()
        optimizer = NGSGD(first, **OPTIONS)
        optimizer.add_param_group({"params": second, "rank_in": 1})
        return first, second, optimizer

    def run(first: nn.Module, second: nn.Module, optimizer: NGSGD) -> None:
        for t in range(3):
            optimizer.zero_grad()
            (first(randn(6, 4, seed=t)) + second(randn(6, 4, seed=t))).square().sum().backward()
            optimizer.step()

    first, second, optimizer = make()
    run(first, second, optimizer)
    loaded = make()
    loaded[2].load_state_dict(optimizer.state_dict())
    loaded[0].load_state_dict(first.state_dict())
    loaded[1].load_state_dict(second.state_dict())
    run(*loaded)
    run(first, second, optimizer)
    assert bits(loaded[1].state_dict()) == bits(second.state_dict())


SEPARATED = r"bias of layer '3' .* another parameter group: put both into one group"


@pytest.mark.parametrize("name", ["3.weight", "3.bias"])
def test_weight_and_bias_in_different_groups_are_refused(name: str) -> None:
    model = network()
    with pytest.raises(ValueError, match=SEPARATED):
        NGSGD(model, groups=[{"params": model.get_parameter(name), "lr": 1.0}])


def test_refused_group_leaves_the_optimizer_as_it_was() -> None:
    model, other = network(), network()
    optimizer = NGSGD(model, **OPTIONS)
    layer = nn.Linear(6, 8)
    layer.bias = model[0].bias
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": layer})
    assert len(optimizer.param_groups) == 1
    assert set(optimizer.layer_statistics()) == {"0", "3"}
    train(model, optimizer, network_loss, range(2))
    train(other, NGSGD(other, **OPTIONS), network_loss, range(2))
    assert bits(model.state_dict()) == bits(other.state_dict())


def test_parameter_in_two_groups_is_refused() -> None:
    model = network()
    with pytest.raises(ValueError, match="more than one parameter group"):
        NGSGD(model, groups=[{"params": model[3]}, {"params": model[3]}])


@pytest.mark.parametrize("option", ["momentum", "fused", "weight_decay"])
def test_unknown_option_of_a_group_is_named(option: str) -> None:
    model = network()
    with pytest.raises(ValueError, match=f"options .*max_change_per_sample.* but got {option}"):
        NGSGD(model, groups=[{"params": model[3], option: 0.5}])


def test_group_without_params_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs 'params'.* has only \['lr'\]"):
        NGSGD(network(), groups=[{"lr": 0.5}])


@pytest.mark.parametrize("params", [3, "0.weight", None, [None]])
def test_group_of_something_else_is_refused(params: Any) -> None:
    with pytest.raises(TypeError, match=r"modules or parameters, but got (int|str|NoneType)"):
        NGSGD(network(), groups=[{"params": params}])


@pytest.mark.parametrize("given", ["generator", "list", "groups"])
def test_parameters_instead_of_the_model_are_refused(given: str) -> None:
    model = network()
    params: Any = {
        "generator": model.parameters(),
        "list": list(model.parameters()),
        "groups": [{"params": model.parameters()}],
    }[given]
    with pytest.raises(
        TypeError, match=r"NGSGD\(model, \.\.\.\) instead of NGSGD\(model.parameters\(\)"
    ):
        NGSGD(params, lr=0.1)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"lr": -1.0}, "lr must be 0 or more, .*got -1.0"),
    ({"lr": math.nan}, "lr must be 0 or more, .*got nan"),
    ({"lr": math.inf}, "lr must be 0 or more, .*got inf"),
    ({"lr": 1e39}, "lr must be 0 or more, .*got 1e\\+39"),
    ({"lr": None}, "lr must be 0 or more, .*got None"),
    ({"lr": "0.01"}, "lr must be 0 or more, .*got '0.01'"),
    ({"method": "natural"}, "one of online, simple, none, but got 'natural'"),
    ({"rank_in": -2}, "rank_in must be .*0 .* or more, but got -2"),
    ({"rank_out": -3}, "rank_out must be .*0 .* or more, but got -3"),
    ({"rank_in": 2.5}, "rank_in must be a whole number.*got 2.5"),
    ({"rank_in": "20"}, "rank_in must be a whole number.*got '20'"),
    ({"update_period": "4"}, "update_period must be a whole number.*got '4'"),
    ({"update_period": 1.5}, "update_period must be a whole number.*got 1.5"),
    ({"alpha": -0.5}, "alpha must be .*got -0.5"),
    ({"alpha": math.nan}, "alpha must be .*got nan"),
    ({"alpha": None}, "alpha must be .*got None"),
    ({"alpha": 10**400}, "alpha must be .*got 1000"),
    ({"alpha": bytearray(b"4")}, "alpha must be .*got bytearray"),
    ({"alpha": "4"}, "alpha must be .*got '4'"),
    ({"alpha": torch.ones(2)}, r"alpha must be .*got tensor\(\[1., 1.\]\)"),
    ({"alpha": 0.0, "method": "simple"}, "simple method needs alpha > 0, .* but got 0.0"),
    ({"num_samples_history": 0.0}, "num_samples_history must be positive.*got 0.0"),
    ({"num_samples_history": None}, "num_samples_history must be positive.*got None"),
    ({"update_period": 0}, "update_period must be .*1 or more.*got 0"),
    ({"max_change_per_sample": 0.0}, "_per_sample must be positive, or None .*got 0.0"),
    ({"max_change_per_sample": math.nan}, "_per_sample must be positive, or None .*got nan"),
    ({"max_change_per_sample": "no"}, "_per_sample must be positive, or None .*got 'no'"),
    ({"max_change_per_sample": torch.ones(2)}, "_per_sample must be positive, or None .*got tens"),
]  # fmt: skip


@pytest.mark.parametrize("in_group", [False, True], ids=["default", "group"])
@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS, ids=[str(o) for o, _ in BAD_OPTIONS])
def test_bad_option_is_refused_with_its_value_and_the_remedy(
    options: dict[str, Any], message: str, in_group: bool
) -> None:
    model = network()
    given = {"groups": [{"params": model[3], **options}]} if in_group else options
    with pytest.raises(ValueError, match=message):
        NGSGD(model, **given)


def test_method_that_a_group_is_given_later_is_checked_when_it_is_used() -> None:
    model = nn.Linear(3, 2)
    optimizer = NGSGD(model, **OPTIONS)
    optimizer.param_groups[0]["method"] = "onlyne"
    with pytest.raises(ValueError, match=r"method must be one of online, .* got 'onlyne'"):
        model(torch.ones(4, 3)).sum().backward()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", None, "lr must be 0 or more, .*got None"),
        ("alpha", -3.0, "alpha must be 0 or more .*got -3.0"),
        ("alpha", None, "alpha must be 0 or more .*got None"),
        ("num_samples_history", 0.0, "num_samples_history must be positive, but got 0.0"),
        ("update_period", 0, "update_period must be .*1 or more.* got 0"),
        ("max_change_per_sample", -1.0, "_per_sample must be positive, or None .*got -1.0"),
        ("max_change_per_sample", math.nan, "_per_sample must be positive, or None .*got nan"),
    ],
)
def test_option_that_has_become_meaningless_is_refused_before_anything_is_learned(
    name: str, value: Any, message: str, fused: bool
) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(3))
    before = bits([model.state_dict(), optimizer.state_dict()["state"]])
    for group in optimizer.param_groups:
        group[name] = value
    with pytest.raises(ValueError, match=message):
        train(model, optimizer, network_loss, range(3, 4))
    assert bits([model.state_dict(), optimizer.state_dict()["state"]]) == before


def test_rank_that_a_group_is_given_later_is_checked_by_its_name() -> None:
    model = nn.Linear(3, 2)
    optimizer = NGSGD(model, **OPTIONS)
    optimizer.param_groups[0]["rank_out"] = -3
    with pytest.raises(ValueError, match=r"rank_out must be .* but got -3"):
        model(torch.ones(4, 3)).sum().backward()


@pytest.mark.parametrize(
    ("groups", "found"), [(None, "None"), (3, "3"), ("lr", "'lr'"), ({"lr": 0.1}, "one dict")]
)
def test_groups_that_are_no_list_are_refused(groups: Any, found: str) -> None:
    with pytest.raises(TypeError, match=f"groups must be a list of dict.*, but got {found}: write"):
        NGSGD(network(), groups=groups)


def test_fused_is_true_or_false() -> None:
    with pytest.raises(TypeError, match="fused must be True or False, but got 'no'"):
        NGSGD(network(), fused="no")  # type: ignore[arg-type]
