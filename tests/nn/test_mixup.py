import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from natgrad.nn import Network, allocate_subclasses, build, mix_up

counts_lists = st.lists(st.integers(0, 10**8), min_size=1, max_size=12).filter(any)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def trained(class_counts: Tensor | None = None, num_outputs: int = 5) -> Network:
    network = build(6, num_outputs, [(12, 4)], class_counts=class_counts, generator=seeded())
    network = network.double()
    nn.init.normal_(network.output.weight, generator=seeded(1))
    nn.init.normal_(network.output.bias, generator=seeded(2))
    return network


@settings(max_examples=100, deadline=None)
@given(counts_lists, st.integers(0, 40), st.sampled_from([0.2, 1 / 3, 1.0]))
def test_allocation_is_exact_in_total_and_monotone_in_counts(
    counts: list[int], extra: int, power: float
) -> None:
    sizes = allocate_subclasses(torch.tensor(counts), len(counts) + extra, power)
    assert sum(sizes) == len(counts) + extra
    assert min(sizes) >= 1
    for count, size in zip(counts, sizes, strict=True):
        for other_count, other_size in zip(counts, sizes, strict=True):
            if count > other_count:
                assert size >= other_size
            if count == other_count:
                assert abs(size - other_size) <= 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=9), st.integers(0, 40))
def test_allocation_rounds_all_shares_to_nearest_in_one_unit(counts: list[int], extra: int) -> None:
    sizes = allocate_subclasses(torch.tensor(counts), len(counts) + extra)
    shares = [count ** (1 / 3) for count in counts]
    pairs = list(zip(sizes, shares, strict=True))
    smallest_unit = max((share / (size + 0.5) for size, share in pairs))
    largest_unit = min(
        (share / (size - 0.5) for size, share in pairs if size > 1), default=math.inf
    )
    assert smallest_unit <= largest_unit * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(counts_lists, st.integers(0, 40))
def test_one_more_sub_class_never_takes_one_away(counts: list[int], extra: int) -> None:
    fewer = allocate_subclasses(torch.tensor(counts), len(counts) + extra)
    more = allocate_subclasses(torch.tensor(counts), len(counts) + extra + 1)
    assert all(a <= b for a, b in zip(fewer, more, strict=True))


def test_large_allocations_are_proportional_to_the_cube_root_of_the_count() -> None:
    counts = torch.tensor([1.0, 8.0, 27.0, 64.0])
    assert allocate_subclasses(counts, 1000) == [100, 200, 300, 400]


def test_classes_without_data_keep_one_sub_class() -> None:
    assert allocate_subclasses(torch.tensor([0.0, 5.0, 0.0]), 9) == [1, 7, 1]
    assert allocate_subclasses(torch.tensor([0.0, 5.0]), 7, power=0.0) == [1, 6]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 30), st.booleans(), st.integers(0, 2**30))
def test_without_noise_the_class_posteriors_stay_as_they_were(
    extra: int, prior: bool, seed: int
) -> None:
    counts = torch.rand(5, generator=seeded(seed)) * 1000 + 1
    network = trained(counts if prior else None)
    mixed = mix_up(network, counts, 5 + extra, noise_stddev=0.0)
    x = torch.randn(9, 6, generator=seeded(3), dtype=torch.float64)
    assert mixed.output.out_features == 5 + extra
    torch.testing.assert_close(
        mixed.log_posteriors(x), network.log_posteriors(x), rtol=1e-13, atol=1e-13
    )


def test_with_noise_the_rows_part_and_the_posteriors_nearly_stay() -> None:
    counts = torch.tensor([1.0, 10.0, 100.0, 1000.0, 1e4])
    network = trained()
    mixed = mix_up(network, counts, 400, generator=seeded(4))
    assert mixed.config.group_sizes is not None
    sizes = torch.tensor(mixed.config.group_sizes)
    noise = mixed.output.weight - network.output.weight.repeat_interleave(sizes, dim=0)
    assert noise.std().item() == pytest.approx(0.01, rel=0.1)
    x = torch.randn(9, 6, generator=seeded(3), dtype=torch.float64)
    difference = mixed.log_posteriors(x) - network.log_posteriors(x)
    assert 0 < difference.abs().max().item() < 0.1


def test_mixing_up_draws_only_from_its_generator() -> None:
    before = torch.get_rng_state()
    counts = torch.arange(1.0, 6.0)
    one, two = (mix_up(trained(), counts, 12, generator=seeded(5)) for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.output.weight, two.output.weight)


def test_mixing_up_a_mixed_up_network_is_refused() -> None:
    mixed = mix_up(trained(), torch.ones(5), 12)
    with pytest.raises(ValueError, match="already mixed up, to 12 sub-classes"):
        mix_up(mixed, torch.ones(5), 20)


def test_fewer_sub_classes_than_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="num_subclasses=4 is less than the 5 classes"):
        mix_up(trained(), torch.ones(5), 4)


def test_counts_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(ValueError, match="4 elements but the network has 5 outputs"):
        mix_up(trained(), torch.ones(4), 12)


@pytest.mark.parametrize("bad", [[0.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_counts_that_share_nothing_out_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="none negative and not all zero"):
        allocate_subclasses(torch.tensor(bad), 4)


@pytest.mark.parametrize("stddev", [-0.1, math.nan, math.inf])
def test_noise_that_is_none_is_refused(stddev: float) -> None:
    with pytest.raises(ValueError, match=f"noise_stddev={stddev}; it must be finite"):
        mix_up(build(4, 2, [(6, 3)]), torch.ones(2), 4, noise_stddev=stddev)
