"""The spread of eigenvalues: what it is, and what it does not depend on."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.optim.spread import spread

values = st.lists(st.floats(1e-6, 1e6), min_size=2, max_size=40)


@settings(deadline=None)
@given(values=values)
def test_spread_is_as_defined(values: list[float]) -> None:
    found = spread(torch.tensor(values, dtype=torch.float64))
    num, mean = len(values), math.fsum(values) / len(values)
    logs = [math.log10(value) for value in values]
    mean_log = math.fsum(logs) / num
    within = sum(0.1 * (1 + 1e-12) <= value / mean <= 10 * (1 - 1e-12) for value in values)
    at_most = sum(0.1 * (1 - 1e-12) <= value / mean <= 10 * (1 + 1e-12) for value in values)
    assert found.num == num
    assert found.mean == pytest.approx(mean)
    variance = math.fsum((log - mean_log) ** 2 for log in logs) / num
    assert found.log10_std == pytest.approx(math.sqrt(variance), abs=1e-7)
    assert found.mean_ratio == pytest.approx(math.log10(mean) - mean_log, abs=1e-9)
    assert within <= found.within_wide * num + 1e-9 <= at_most + 1e-6
    assert found.largest == pytest.approx(max(values) / mean)
    squares = math.fsum(value**2 for value in values)
    assert found.flatness == pytest.approx(math.fsum(values) ** 2 / (num * squares))


@settings(deadline=None)
@given(values=values, scale=st.floats(1e-8, 1e8))
def test_all_but_mean_and_median_do_not_depend_on_the_scale(
    values: list[float], scale: float
) -> None:
    one = asdict(spread(torch.tensor(values, dtype=torch.float64)))
    other = asdict(spread(scale * torch.tensor(values, dtype=torch.float64)))
    assert other["mean"] == pytest.approx(scale * one["mean"])
    for key in set(one) - {"mean", "median", "within_wide"}:  # which may sit on its bound
        assert other[key] == pytest.approx(one[key], rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(values=values, num_zero=st.integers(0, 5))
def test_known_zeros_are_left_out(values: list[float], num_zero: int) -> None:
    zeros = 1e-20 * torch.randn(num_zero, dtype=torch.float64)
    whole = torch.cat([zeros, torch.tensor(values, dtype=torch.float64)])
    assert spread(whole, num_zero) == spread(torch.tensor(values, dtype=torch.float64))


def test_equal_eigenvalues_have_no_spread() -> None:
    found = spread(torch.full((7,), 3.0))
    assert (found.log10_std, found.decades_90_10) == pytest.approx((0.0, 0.0), abs=1e-12)
    assert found.within_wide == 1.0
    assert (found.largest, found.flatness, found.median) == (1.0, 1.0, 3.0)


def test_zeros_that_were_not_counted_are_told() -> None:
    with pytest.raises(ValueError, match=r"of 3 eigenvalues 1 are said to be zero, but 2 are not"):
        spread(torch.tensor([1.0, 0.0, -1e-18]), num_zero=1)


@pytest.mark.parametrize(("values", "num_zero"), [([1.0, 2.0], -1), ([1.0, math.nan], 0)])
def test_what_is_no_spectrum_is_refused(values: list[float], num_zero: int) -> None:
    with pytest.raises(ValueError, match="expected 0 or more zeros, and no NaN"):
        spread(torch.tensor(values), num_zero=num_zero)
