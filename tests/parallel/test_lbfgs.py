"""L-BFGS finds maxima that are known, and stays where the function is finite."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.parallel.lbfgs import maximize


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@settings(deadline=None, max_examples=50)
@given(size=st.integers(1, 12), condition=st.floats(1.0, 1e3), scale=st.floats(1e-3, 1e3))
def test_maximum_of_a_quadratic_is_found(size: int, condition: float, scale: float) -> None:
    curvature = scale * torch.logspace(0.0, math.log10(condition), size, dtype=torch.float64)
    peak = torch.linspace(-1.0, 2.0, size, dtype=torch.float64)

    def function(x: Tensor) -> tuple[float, Tensor]:
        return -0.5 * float(curvature @ (x - peak).square()), curvature * (peak - x)

    found = maximize(function, torch.zeros_like(peak), max_evaluations=1000, tolerance=1e-12)
    assert found.value > -1e-6 * (1.0 + scale)


def test_curved_ridge_is_followed_to_its_end() -> None:
    """Rosenbrock's function, turned over."""

    def function(x: Tensor) -> tuple[float, Tensor]:
        a, b = x[0], x[1] - x[0] ** 2
        gradient = torch.stack([-2.0 * (a - 1.0) + 400.0 * a * b, -200.0 * b])
        return -float((1.0 - a) ** 2 + 100.0 * b**2), gradient

    found = maximize(function, vector(-1.2, 1.0))
    assert torch.allclose(found.x, vector(1.0, 1.0), atol=1e-4)
    assert found.num_evaluations < 100


@pytest.mark.parametrize("outside", [math.nan, -math.inf, math.inf])
def test_points_where_the_function_is_not_finite_are_avoided(outside: float) -> None:
    """log(x) - 10 x has its maximum at 0.1; the first step from 5 goes far below zero."""

    def function(x: Tensor) -> tuple[float, Tensor]:
        if float(x) <= 0.0:
            return outside, torch.full_like(x, math.nan)
        return math.log(float(x)) - 10.0 * float(x), 1.0 / x - 10.0

    found = maximize(function, vector(5.0), first_gain=1000.0)
    assert float(found.x) == pytest.approx(0.1, rel=1e-3)


def test_evaluations_are_limited_and_counted() -> None:
    calls = 0

    def function(x: Tensor) -> tuple[float, Tensor]:
        nonlocal calls
        calls += 1
        return float(x.sum()), torch.ones_like(x)  # has no maximum

    found = maximize(function, vector(0.0, 0.0), max_evaluations=17)
    assert found.num_evaluations == calls == 17
    assert found.value > 0.0


def test_search_ends_at_once_where_the_gradient_is_zero() -> None:
    found = maximize(lambda x: (3.0, torch.zeros_like(x)), vector(1.0, 2.0))
    assert found.num_evaluations == 1
    assert found.x.tolist() == [1.0, 2.0]


def test_start_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite at the start"):
        maximize(lambda x: (math.nan, x), vector(1.0))
