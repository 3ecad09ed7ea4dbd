from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from natgrad.nn import Network, build, grow, mix_up, scale_pnorm_layers, transfer

COUNTS = torch.tensor([50.0, 3.0, 8.0])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained(nonlinearity: str = "pnorm", p: float = 2.0, *, prior: bool = False) -> Network:
    """A float64 network all of whose parameters are random."""
    hidden = [(12, 4), (10, 5)] if nonlinearity == "pnorm" else [12, 10]
    transform = (torch.randn(5, 6, generator=seeded(1)), torch.randn(5, generator=seeded(2)))
    network = build(
        6,
        3,
        hidden,
        nonlinearity=nonlinearity,
        p=p,
        input_transform=transform,
        class_counts=COUNTS if prior else None,
        generator=seeded(),
    ).double()
    for index, parameter in enumerate(network.parameters()):
        nn.init.normal_(parameter, generator=seeded(index))
    return network


def inputs() -> Tensor:
    return torch.randn(7, 6, generator=seeded(3), dtype=torch.float64)


def hidden_output(network: Network, x: Tensor, depth: int) -> Tensor:
    assert network.input_transform is not None
    x = network.input_transform(x)
    for block in list(network.hidden)[:depth]:
        x = block(x)
    return x


changes: list[Callable[[Network], Network]] = [
    lambda network: grow(network, (20, 5)),
    lambda network: transfer(network, 11),
    scale_pnorm_layers,
    lambda network: mix_up(network, COUNTS, 9),
]


@pytest.mark.parametrize("change", changes)
def test_the_network_given_is_neither_changed_nor_shared(
    change: Callable[[Network], Network],
) -> None:
    network = trained(prior=True)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    changed = change(network)
    with torch.no_grad():
        for tensor in changed.state_dict().values():
            tensor.fill_(7)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("change", changes)
def test_the_copy_keeps_the_dtype_and_drops_the_hooks(change: Callable[[Network], Network]) -> None:
    network = trained(prior=True)
    network.output.register_forward_hook(lambda *_: pytest.fail("a hook was copied"))
    network.hidden[0].register_forward_hook(lambda *_: pytest.fail("a hook was copied"))
    assert change(network)(inputs()).dtype == torch.float64


@pytest.mark.parametrize("change", changes)
def test_the_copy_keeps_what_is_frozen_and_the_mode(change: Callable[[Network], Network]) -> None:
    network = trained().eval()
    network.hidden[0].requires_grad_(False)
    changed = change(network)
    assert not changed.training
    for name, parameter in changed.named_parameters():
        assert parameter.requires_grad == (not name.startswith("hidden.0."))
    assert change(trained()).training


def test_what_takes_the_place_of_a_frozen_layer_is_trained() -> None:
    network = trained().requires_grad_(False)
    assert grow(network, (20, 5)).output.weight.requires_grad
    assert grow(network, (20, 5)).hidden_linears()[-1].weight.requires_grad
    assert mix_up(network, COUNTS, 9).output.weight.requires_grad
    assert not scale_pnorm_layers(network).output.weight.requires_grad


def test_growing_keeps_the_hidden_layers_and_starts_from_a_zero_softmax() -> None:
    network = trained()
    grown = grow(network, (20, 4), generator=seeded(5))
    x = inputs()
    assert torch.equal(hidden_output(grown, x, 2), hidden_output(network, x, 2))
    assert grown.config.hidden == ((12, 4), (10, 5), (20, 4))
    assert not grown(x).any()
    new = grown.hidden_linears()[2]
    assert 0.3 < new.weight.std().item() * 5**0.5 < 2
    assert not new.bias.any()


def test_growing_draws_only_from_its_generator() -> None:
    before = torch.get_rng_state()
    one, two = (grow(trained(), (20, 4), generator=seeded(5)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    name = "hidden.2.linear.weight"
    assert torch.equal(one.state_dict()[name], two.state_dict()[name])


def test_growing_a_mixed_up_network_keeps_its_prior_scales_but_not_its_sub_classes() -> None:
    network = trained(prior=True)
    grown = grow(mix_up(network, COUNTS, 9), (20, 4))
    assert grown.config.group_sizes is None
    assert grown.prior_scale is not None
    assert network.prior_scale is not None
    assert torch.equal(grown.prior_scale.scales, network.prior_scale.scales)


def test_growing_a_network_of_plain_units_takes_one_number() -> None:
    assert grow(trained("relu"), 20).config.hidden == (12, 10, 20)
    with pytest.raises(ValueError, match="expected one number"):
        grow(trained("relu"), (20, 4))


def test_transfer_keeps_all_but_the_last_layer() -> None:
    network = mix_up(trained(prior=True), COUNTS, 9)
    transferred = transfer(network, 11)
    x = inputs()
    assert torch.equal(hidden_output(transferred, x, 2), hidden_output(network, x, 2))
    assert torch.equal(transferred(x), torch.zeros(7, 11, dtype=torch.float64))
    assert transferred.prior_scale is None
    assert transferred.sum_group is None


def test_transfer_can_give_the_new_classes_prior_scales() -> None:
    transferred = transfer(trained(), 2, class_counts=torch.tensor([16.0, 1.0]))
    assert transferred.prior_scale is not None
    expected = torch.tensor([2 / 3, 4 / 3], dtype=torch.float64)
    torch.testing.assert_close(transferred.prior_scale.scales, expected, rtol=1e-6, atol=0)
    assert transferred(inputs()).dtype == torch.float64
    with pytest.raises(ValueError, match="3 elements but the network has 2 outputs"):
        transfer(trained(), 2, class_counts=torch.ones(3))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1.0, 2.0, 3.5]), st.floats(-6, 6))
def test_pnorm_layers_are_scaled_to_unit_mean_square_and_the_output_stays(
    p: float, exponent: float
) -> None:
    network = trained(p=p)
    with torch.no_grad():
        for parameter in network.hidden.parameters():
            parameter.mul_(10.0**exponent)
    scaled = scale_pnorm_layers(network)
    for linear in scaled.hidden_linears():
        assert linear.weight.square().mean().item() == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(scaled(inputs()), network(inputs()), rtol=1e-11, atol=1e-11)


def test_only_pnorm_networks_have_a_free_scale() -> None:
    with pytest.raises(ValueError, match="got a relu network"):
        scale_pnorm_layers(trained("relu"))


def test_a_zero_matrix_has_no_scale() -> None:
    network = Network(trained().config)
    with pytest.raises(ValueError, match="weight of hidden layer 0 is zero"):
        scale_pnorm_layers(network)
