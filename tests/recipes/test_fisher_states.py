"""Fisher factors as named tensors: there and back with the same bits, and their mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from natgrad.nn import Network, build, grow
from natgrad.optim import NGSGD
from natgrad.optim.factor import FisherFactor
from natgrad.optim.factor_average import average_factors
from natgrad.recipes.fisher_states import average_states, load_state, state_of
from natgrad.run.model_file import read_model, write_model

OPTIONS: dict[str, Any] = {
    "lr": 0.01,
    "rank_in": 3,
    "rank_out": 4,
    "update_period": 3,
    "fused": True,
}


def make_network(seed: int = 0) -> Network:
    generator = torch.Generator().manual_seed(seed)
    return build(8, 5, hidden=[(12, 6), (12, 6)], generator=generator)


def learn(network: Network, optimizer: NGSGD, num: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(num):
        x = torch.randn(16, 8, generator=generator)
        y = torch.randint(5, (16,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(network(x), y, reduction="sum").backward()
        optimizer.step()


def trained(num: int, seed: int = 1) -> tuple[Network, NGSGD]:
    network = make_network()
    optimizer = NGSGD(network, **OPTIONS)
    learn(network, optimizer, num, seed)
    return network, optimizer


def copied(network: Network) -> tuple[Network, NGSGD]:
    copy = Network(network.config)
    copy.load_state_dict(network.state_dict())
    return copy, NGSGD(copy, **OPTIONS)


def state_after(num: int, seed: int = 1) -> dict[str, Tensor]:
    network, optimizer = trained(num, seed)
    return state_of(optimizer, network)


@pytest.mark.parametrize("num", [0, 1, 2, 14])
def test_job_that_goes_on_with_a_state_has_the_bits_of_one_that_never_stopped(
    tmp_path: Path, num: int
) -> None:
    network, optimizer = trained(num)
    write_model(tmp_path / "state", state_of(optimizer, network), {})
    other, other_optimizer = copied(network)
    load_state(other_optimizer, other, read_model(tmp_path / "state").tensors)
    learn(network, optimizer, 9, seed=2)
    learn(other, other_optimizer, 9, seed=2)
    for name, tensor in network.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    before, after = state_of(optimizer, network), state_of(other_optimizer, other)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_counts_are_of_the_job_alone() -> None:
    state = state_after(14)
    assert not [name for name in state if "num_" in name]
    network = make_network()
    optimizer = NGSGD(network, **OPTIONS)
    load_state(optimizer, network, state)
    learn(network, optimizer, 2, seed=3)
    assert optimizer.layer_statistics()["output"]["num_minibatches"] == 2


def test_state_has_the_letters_of_each_side_of_each_layer() -> None:
    state = state_after(3)
    assert len(state) == 3 * 2 * 4
    assert state["hidden.0.linear.weight.fisher_in.R"].shape == (3, 9)
    assert state["output.weight.fisher_out.R"].shape == (4, 5)
    assert state["output.weight.fisher_out.rho"].dtype == torch.float64
    # The softmax layer began with zeros, so what is below it met no derivative at first.
    assert state["hidden.0.linear.weight.fisher_in.t"].item() == 3
    assert state["hidden.0.linear.weight.fisher_out.t"].item() == 2


def test_layers_that_are_new_or_were_changed_learn_anew() -> None:
    network, optimizer = trained(14)
    grown = grow(network, (12, 6))
    optimizer_of_grown = NGSGD(grown, **OPTIONS)
    renewed = ["output.weight", "output.bias", "hidden.2.linear.weight", "hidden.2.linear.bias"]
    load_state(optimizer_of_grown, grown, state_of(optimizer, network), renewed)
    layers = {name.split(".weight")[0] for name in state_of(optimizer_of_grown, grown)}
    assert layers == {"hidden.0.linear", "hidden.1.linear"}
    learn(grown, optimizer_of_grown, 3, seed=4)
    ts = state_of(optimizer_of_grown, grown)
    assert ts["hidden.0.linear.weight.fisher_in.t"].item() == 14 + 3
    assert ts["output.weight.fisher_in.t"].item() == 3


def test_state_of_another_network_is_refused() -> None:
    other = build(8, 5, hidden=[(12, 4), (12, 4)])
    optimizer = NGSGD(other, **OPTIONS)
    with pytest.raises(
        ValueError, match=r"layer 'hidden\.1\.linear' is for vectors of dimension 7"
    ):
        load_state(optimizer, other, state_after(3))


def test_mean_is_that_of_each_factor_and_can_be_gone_on_with() -> None:
    states, weights = [state_after(12, seed) for seed in (1, 2, 3)], [100.0, 200.0, 50.0]
    mean = average_states(states, weights)
    assert mean.keys() == states[0].keys()
    side = "hidden.1.linear.weight.fisher_out"
    expected = average_factors(
        [FisherFactor(s[f"{side}.R"], s[f"{side}.d"], s[f"{side}.rho"].item()) for s in states],
        weights,
    )
    assert torch.equal(mean[f"{side}.R"], expected.R)
    assert torch.equal(mean[f"{side}.d"], expected.d)
    assert mean[f"{side}.rho"].item() == expected.rho
    network = make_network()
    optimizer = NGSGD(network, **OPTIONS)
    load_state(optimizer, network, mean)
    learn(network, optimizer, 5, seed=9)
    assert state_of(optimizer, network)[f"{side}.t"].item() == mean[f"{side}.t"].item() + 5


def test_side_that_met_only_zeros_has_no_vote() -> None:
    states = [state_after(1), state_after(12)]  # after one minibatch nothing came down yet
    side = "hidden.0.linear.weight.fisher_out"
    assert f"{side}.R" not in states[0]
    mean = average_states(states, [1.0, 1.0])
    assert torch.equal(mean[f"{side}.R"], states[1][f"{side}.R"])
    assert mean[f"{side}.t"].item() == 0
    nobody = average_states([states[0], states[0]], [1.0, 1.0])
    assert f"{side}.R" not in nobody
    assert nobody[f"{side}.t"].item() == 0
