"""The outer step: equal to its definitions in float64, and to BMUF's, which looks different."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.parallel.outer_step import OuterOptimizer, outer_step

OPTIMIZERS = st.builds(OuterOptimizer, st.floats(0.0, 0.99), st.floats(0.05, 2.0), st.booleans())


def random_tensors(num: int, size: int, seed: int, scale: float) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(size, 3, generator=generator) for _ in range(num)]


def literal_step(
    theta: Tensor, A: Tensor, v: Tensor, optimizer: OuterOptimizer
) -> tuple[Tensor, Tensor]:
    """The definitions, one after the other, in float64."""
    theta, A, v = theta.double(), A.double(), v.double()
    delta = A - theta
    v = optimizer.momentum * v + delta
    step = delta + optimizer.momentum * v if optimizer.nesterov else v
    return theta + optimizer.learning_rate * step, v


@settings(deadline=None)
@given(
    optimizer=OPTIMIZERS,
    size=st.integers(0, 40),
    seed=st.integers(0, 1000),
    scale=st.floats(1e-12, 1e12),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_step_is_that_of_its_definition(
    optimizer: OuterOptimizer, size: int, seed: int, scale: float, dtype: torch.dtype
) -> None:
    theta, A, v = (x.to(dtype) for x in random_tensors(3, size, seed, scale))
    start, momentum = outer_step({"w": theta}, {"w": A}, {"w": v}, optimizer, {"w"})
    expected_start, expected_momentum = literal_step(theta, A, v, optimizer)
    for found, expected in ((start["w"], expected_start), (momentum["w"], expected_momentum)):
        assert found.dtype == dtype
        # One rounding to the type, and some in float64 of terms that may cancel.
        bound = torch.finfo(dtype).eps * expected.abs() + 1e-13 * scale
        assert bool(((found.double() - expected).abs() <= bound).all())


@pytest.mark.parametrize("nesterov", [True, False])
def test_without_momentum_and_with_rate_1_the_mean_comes_back_bit_by_bit(nesterov: bool) -> None:
    theta = torch.tensor([1.0, 1e10, 3.0, -2.0, 0.1])
    A = torch.tensor([-0.0, 1e-10, 3.0000002, 1e30, 0.3])
    start, _ = outer_step({"w": theta}, {"w": A}, {}, OuterOptimizer(nesterov=nesterov), {"w"})
    assert torch.equal(start["w"], A)
    assert torch.equal(start["w"].signbit(), A.signbit())
    assert OuterOptimizer(nesterov=nesterov).is_plain
    assert not OuterOptimizer(0.1, nesterov=nesterov).is_plain
    assert not OuterOptimizer(0.0, 0.9, nesterov).is_plain


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("eta", [1.0, 0.7])
def test_steps_are_those_of_block_momentum(nesterov: bool, eta: float) -> None:
    """BMUF: Delta = mu Delta + eta G; W = W + Delta; jobs begin with W, or with W + mu Delta.

    And with eta = 1 Nesterov's W is the mean, which is what iterations keep as their model.
    """
    mu = 0.9
    optimizer = OuterOptimizer(mu, eta, nesterov)
    first, *jobs_moves = random_tensors(6, 4, seed=3, scale=1.0)
    W = begin = first.double()
    Delta = torch.zeros_like(W)
    theta: dict[str, Tensor] = {"w": W}
    v: dict[str, Tensor] = {}
    for move in jobs_moves:
        G = move.double() + 0.1 * begin  # what jobs do depends on where they begin
        Delta = mu * Delta + eta * G
        W = W + Delta
        begin = W + mu * Delta if nesterov else W
        mean = {"w": theta["w"] + move.double() + 0.1 * theta["w"]}
        theta, v = outer_step(theta, mean, v, optimizer, {"w"})
        torch.testing.assert_close(theta["w"], begin)
        if nesterov and eta == 1.0:
            torch.testing.assert_close(mean["w"], W)


def test_only_what_is_to_be_moved_is_moved() -> None:
    start = {"w": torch.zeros(2), "scales": torch.ones(2), "n": torch.tensor(3)}
    mean = {"w": torch.ones(2), "scales": torch.tensor([-0.0, 2.0]), "n": torch.tensor(3)}
    stepped = outer_step(start, mean, {"scales": torch.ones(2)}, OuterOptimizer(0.9), {"w"})
    assert stepped.start["scales"] is mean["scales"]
    assert stepped.start["n"] is mean["n"]
    assert stepped.momentum.keys() == {"w"}
    assert stepped.start["w"].tolist() == pytest.approx([1.9, 1.9])


def test_nothing_that_is_given_is_changed() -> None:
    theta, A, v = random_tensors(3, 5, seed=1, scale=1.0)
    copies = [theta.clone(), A.clone(), v.clone()]
    outer_step({"w": theta}, {"w": A}, {"w": v}, OuterOptimizer(0.9, 0.7), {"w"})
    assert all(torch.equal(a, b) for a, b in zip((theta, A, v), copies, strict=True))


def test_models_of_another_structure_are_refused() -> None:
    with pytest.raises(ValueError, match="'w' of their mean has shape"):
        outer_step({"w": torch.ones(2)}, {"w": torch.ones(3)}, {}, OuterOptimizer(), {"w"})


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_momentum_must_be_below_1(momentum: float) -> None:
    with pytest.raises(ValueError, match=f"momentum is {momentum}, but must be"):
        OuterOptimizer(momentum)


@pytest.mark.parametrize("rate", [0.0, -1.0, 11.0, float("nan")])
def test_outer_learning_rate_must_be_positive_and_in_proportion(rate: float) -> None:
    with pytest.raises(ValueError, match=f"outer learning_rate is {rate}, but must be positive"):
        OuterOptimizer(0.9, rate)
