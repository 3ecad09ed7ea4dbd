"""The mean of Fisher factors, against dense matrices in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim.factor import RELATIVE_FLOOR, FisherFactor, start
from natgrad.optim.factor_average import average_factors


def dense(factor: FisherFactor) -> Tensor:
    R, d = factor.R.double(), factor.d.double()
    return R.t() @ torch.diag(d) @ R + factor.rho * torch.eye(R.shape[1], dtype=torch.float64)


def literal_average(factors: list[FisherFactor], weights: list[float], rank: int) -> Tensor:
    """The mean of the matrices; then its greatest eigenvalues, and the mean of the others."""
    total = math.fsum(weights)
    M = sum((w / total * dense(f) for w, f in zip(weights, factors, strict=True)), torch.zeros(1))
    eigenvalues, U = torch.linalg.eigh(M)
    rest = eigenvalues[:-rank].mean()
    floor = RELATIVE_FLOOR * eigenvalues[-1]
    kept = torch.full_like(eigenvalues, float(rest.clamp_min(floor)))
    kept[-rank:] += (eigenvalues[-rank:] - kept[0]).clamp_min(floor)
    approximation: Tensor = U @ torch.diag(kept) @ U.t()
    return approximation


def random_factors(
    num: int, rank: int, dim: int, seed: int, scale: float, dtype: torch.dtype
) -> list[FisherFactor]:
    """What a minibatch each has left: related to one another, as those of jobs are."""
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return [
        start(
            (
                scale * torch.randn(3 * dim, dim, generator=generator, dtype=torch.float64) @ shared
            ).to(dtype),
            rank,
        )
        for _ in range(num)
    ]


@settings(deadline=None, max_examples=60)
@given(
    num=st.integers(1, 6),
    dim=st.integers(2, 24),
    data=st.data(),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_average_is_the_dense_one(
    num: int, dim: int, data: st.DataObject, seed: int, scale: float, dtype: torch.dtype
) -> None:
    rank = data.draw(st.integers(1, dim - 1))
    factors = random_factors(num, rank, dim, seed, scale, dtype)
    weights = data.draw(st.lists(st.floats(0.1, 1e6), min_size=num, max_size=num))
    found = average_factors(factors, weights)
    expected = literal_average(factors, weights, rank)
    assert found.R.dtype == found.d.dtype == dtype
    error = torch.linalg.matrix_norm(dense(found) - expected) / torch.linalg.matrix_norm(expected)
    assert float(error) < (2e-6 if dtype == torch.float32 else 1e-11)
    identity = torch.eye(rank, dtype=dtype)
    torch.testing.assert_close(found.R @ found.R.t(), identity, rtol=0, atol=1e-5)
    assert bool((found.d > 0).all())
    assert found.rho > 0


def test_trace_is_kept() -> None:
    factors = random_factors(4, 3, 12, seed=1, scale=1.0, dtype=torch.float64)
    found = average_factors(factors, [1.0, 2.0, 3.0, 4.0])
    expected = sum(w * f.trace for w, f in zip([0.1, 0.2, 0.3, 0.4], factors, strict=True))
    assert found.trace == pytest.approx(expected, rel=1e-12)


def test_no_factor_of_its_rank_nearby_is_closer_to_the_mean() -> None:
    factors = random_factors(5, 3, 9, seed=2, scale=1.0, dtype=torch.float64)
    M = sum((dense(f) / 5 for f in factors), torch.zeros(1))
    found = average_factors(factors, [1.0] * 5)
    least = torch.linalg.matrix_norm(dense(found) - M)
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        noise = 0.05 * torch.randn(3, 9, generator=generator, dtype=torch.float64)
        R = torch.linalg.qr((found.R + noise).t()).Q.t()
        d = found.d * (1 + 0.05 * torch.randn(3, generator=generator, dtype=torch.float64))
        rho = found.rho * (1 + 0.05 * float(torch.randn(1, generator=generator)))
        assert torch.linalg.matrix_norm(dense(FisherFactor(R, d, rho)) - M) >= least


def test_one_factor_comes_back_and_equal_ones_have_themselves_as_mean() -> None:
    (factor,) = random_factors(1, 4, 10, seed=3, scale=1.0, dtype=torch.float32)
    assert average_factors([factor], [7.0]) is factor
    mean = average_factors([factor] * 5, [1.0, 2.0, 3.0, 4.0, 5.0])
    torch.testing.assert_close(dense(mean), dense(factor), rtol=1e-5, atol=1e-5 * factor.trace)


def test_factors_of_other_ranks_are_averaged_to_the_greatest() -> None:
    low, high = (random_factors(1, r, 8, seed=r, scale=1.0, dtype=torch.float64)[0] for r in (2, 5))
    found = average_factors([low, high], [1.0, 1.0])
    assert found.R.shape == (5, 8)
    torch.testing.assert_close(dense(found), literal_average([low, high], [1.0, 1.0], 5))


def test_factors_that_have_no_mean_are_refused() -> None:
    a, b = (random_factors(1, 2, d, seed=0, scale=1.0, dtype=torch.float32)[0] for d in (5, 6))
    with pytest.raises(ValueError, match=r"dimensions \[5, 6\] have no mean"):
        average_factors([a, b], [1.0, 1.0])
    with pytest.raises(ValueError, match="1 weights for 2 factors"):
        average_factors([a, a], [1.0])
    with pytest.raises(ValueError, match="a weight is 0"):
        average_factors([a, a], [1.0, 0.0])
    with pytest.raises(ValueError, match="0 weights for 0 factors"):
        average_factors([], [])
