import json
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from natgrad.nn import Network, NetworkConfig, PNorm, Renormalize, build, mix_up


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def example_transform(inputs: int) -> tuple[Tensor, Tensor]:
    generator = seeded(9)
    return torch.randn(4, inputs, generator=generator), torch.randn(4, generator=generator)


def num_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_dnn2_has_the_papers_ten_point_four_million_parameters() -> None:
    config = NetworkConfig(num_inputs=700, num_outputs=12000, hidden=[(3500, 350)] * 4)
    assert num_parameters(Network(config)) == 10_351_000


def test_dnn1_has_the_papers_nineteen_point_three_million_parameters() -> None:
    config = NetworkConfig(num_inputs=360, num_outputs=15000, hidden=[(5000, 500)] * 5)
    assert num_parameters(Network(config)) == 19_340_000


def test_forward_is_the_stack_written_out() -> None:
    counts = torch.tensor([5.0, 1.0, 9.0])
    transform = example_transform(6)
    network = build(
        6, 3, [(8, 4), (6, 2)], p=3.0, input_transform=transform, class_counts=counts
    ).double()
    nn.init.normal_(network.output.weight, generator=seeded())
    nn.init.normal_(network.output.bias, generator=seeded())
    x = torch.randn(5, 6, generator=seeded(), dtype=torch.float64)
    y = x @ transform[0].double().T + transform[1].double()
    for linear in network.hidden_linears():
        y = y @ linear.weight.T + linear.bias
        groups = {8: 4, 6: 2}[y.shape[1]]
        y = torch.stack([y[:, g::groups].abs().pow(3).sum(1) ** (1 / 3) for g in range(groups)], 1)
        y = y / y.square().mean(1, keepdim=True).sqrt()
    scales = counts.double().pow(-0.25)
    y = (y @ network.output.weight.T + network.output.bias) * (scales / scales.mean())
    torch.testing.assert_close(network(x), y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(network.log_posteriors(x), y.log_softmax(1), rtol=1e-6, atol=1e-6)


def test_what_is_trained_is_in_stock_linear_layers_only() -> None:
    network = build(
        6, 3, [(8, 4)], input_transform=example_transform(6), class_counts=torch.ones(3)
    )
    network = mix_up(network, torch.ones(3), 5)
    linears = [m for m in network.modules() if type(m) is nn.Linear]
    assert len(linears) == 2
    assert sum(num_parameters(m) for m in linears) == num_parameters(network)
    assert isinstance(network.hidden[0].get_submodule("nonlinearity"), PNorm)
    assert isinstance(network.hidden[0].get_submodule("renormalize"), Renormalize)


@pytest.mark.parametrize("nonlinearity", ["relu", "sigmoid", "tanh"])
def test_plain_nonlinearities_are_torchs_own(nonlinearity: str) -> None:
    network = build(6, 3, [8, 5], nonlinearity=nonlinearity, generator=seeded())
    nn.init.normal_(network.output.weight, generator=seeded())
    x = torch.randn(4, 6, generator=seeded())
    y = x
    for linear in network.hidden_linears():
        y = getattr(torch, nonlinearity)(y @ linear.weight.T)
    torch.testing.assert_close(network(x), y @ network.output.weight.T)


def test_hidden_weights_start_with_stddev_of_one_over_root_fan_in_and_the_softmax_at_zero() -> None:
    network = build(400, 10, [(1000, 100), (1000, 100)], generator=seeded())
    for linear, fan_in in zip(network.hidden_linears(), (400, 100), strict=True):
        assert linear.weight.std().item() == pytest.approx(fan_in**-0.5, rel=0.01)
        assert abs(linear.weight.mean().item()) < 0.01 * fan_in**-0.5
        assert not linear.bias.any()
    assert not network.output.weight.any()
    assert not network.output.bias.any()


def test_one_seed_gives_one_network_and_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    one, two = (build(5, 3, [(8, 4)] * 2, generator=seeded(7)) for _ in range(2))
    other = build(5, 3, [(8, 4)] * 2, generator=seeded(8))
    assert torch.equal(before, torch.get_rng_state())
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])
    weight = "hidden.1.linear.weight"
    assert not torch.equal(one.state_dict()[weight], other.state_dict()[weight])


def test_config_and_state_dict_restore_a_network_through_json() -> None:
    network = build(
        6,
        3,
        [(8, 4)],
        input_transform=example_transform(6),
        class_counts=torch.tensor([5.0, 1.0, 2.0]),
    )
    nn.init.normal_(network.output.weight, generator=seeded())
    network = mix_up(network, torch.tensor([5.0, 1.0, 2.0]), 7)
    config = NetworkConfig(**json.loads(json.dumps(asdict(network.config))))
    restored = Network(config)
    restored.load_state_dict(network.state_dict())
    x = torch.randn(5, 6, generator=seeded())
    assert config == network.config
    assert torch.equal(restored(x), network(x))


def test_cross_entropy_of_the_output_is_that_of_the_log_posteriors() -> None:
    network = build(6, 3, [(8, 4)], generator=seeded())
    nn.init.normal_(network.output.weight, generator=seeded())
    mixed = mix_up(network, torch.tensor([5.0, 1.0, 2.0]), 7, noise_stddev=0.5, generator=seeded())
    x, labels = torch.randn(5, 6, generator=seeded()), torch.tensor([0, 1, 2, 1, 0])
    posteriors = mixed.log_posteriors(x)
    expected = -posteriors.gather(1, labels.unsqueeze(1)).sum()
    loss = functional.cross_entropy(mixed(x), labels, reduction="sum")
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(posteriors.exp().sum(1), torch.ones(5))


def test_a_network_without_hidden_layers_is_softmax_regression() -> None:
    network = build(6, 3, [])
    assert network(torch.ones(2, 6)).shape == (2, 3)
    assert network.config.hidden_outputs == 6


def test_training_from_the_zero_softmax_layer_lowers_the_loss() -> None:
    network = build(6, 3, [(8, 4)] * 2, generator=seeded())
    x = torch.randn(60, 6, generator=seeded())
    labels = x[:, :3].argmax(1)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(x), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nonlinearity": "gelu"}, "'gelu'; it must be one of pnorm, relu, sigmoid, tanh"),
        ({"hidden": [8]}, r"width 8; expected a pair \(units, groups\)"),
        ({"hidden": [(8, 4, 2)]}, "expected a pair"),
        ({"hidden": [(8, 4)], "nonlinearity": "relu"}, "expected one number"),
        ({"hidden": [(8, 4), (8, 3)]}, "8 units in 3 groups; .* must divide"),
        ({"p": 0.5}, "p=0.5; it needs 1 <= p"),
        ({"num_inputs": 0}, "at least 1, but one is 0"),
        ({"num_transformed": 0}, "at least 1, but one is 0"),
        ({"group_sizes": [1, 2]}, "3 outputs but 2 group sizes"),
    ],
)
def test_a_config_that_makes_no_network_says_why(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"num_inputs": 6, "num_outputs": 3, "hidden": [(8, 4)]}
    with pytest.raises(ValueError, match=message):
        NetworkConfig(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 10}, r"hidden is 10; expected a list .* \[\(3500, 350\)\] \* 4"),
        ({"hidden": [(8.0, 4)]}, "hidden has 8.0, of type float; expected whole numbers"),
        ({"hidden": ["8"]}, "hidden has '8', of type str; expected whole numbers"),
        ({"num_outputs": 3.5}, "num_outputs has 3.5, of type float"),
        ({"num_inputs": [4]}, r"num_inputs is \(4,\); expected one whole number"),
        ({"num_inputs": None}, "num_inputs has None"),
        ({"hidden": [None]}, "hidden has None"),
    ],
)
def test_a_config_of_other_types_says_what_is_expected(
    changes: dict[str, Any], message: str
) -> None:
    arguments: dict[str, Any] = {"num_inputs": 6, "num_outputs": 3, "hidden": [(8, 4)]}
    with pytest.raises(TypeError, match=message):
        NetworkConfig(**{**arguments, **changes})


def test_integers_of_other_libraries_become_pythons_own() -> None:
    hidden: list[Any] = [(np.int64(8), 4), np.array([6, 2])]
    sizes: Any = torch.tensor([1, 2, 3])
    config = NetworkConfig(cast(int, torch.tensor(6)), 3, hidden, group_sizes=sizes)
    assert json.loads(json.dumps(asdict(config)))["hidden"] == [[8, 4], [6, 2]]
    assert config == NetworkConfig(6, 3, [[8, 4], [6, 2]], group_sizes=[1, 2, 3])


def test_arguments_of_build_that_do_not_fit_say_why() -> None:
    with pytest.raises(ValueError, match="needs 5 columns"):
        build(5, 3, [(8, 4)], input_transform=example_transform(6))
    with pytest.raises(ValueError, match="2 elements but the network has 3 outputs"):
        build(5, 3, [(8, 4)], class_counts=torch.ones(2))
    with pytest.raises(ValueError, match=r"\(outputs, inputs\) and \(outputs,\)"):
        build(5, 3, [(8, 4)], input_transform=(torch.ones(4, 5), torch.ones(5)))
