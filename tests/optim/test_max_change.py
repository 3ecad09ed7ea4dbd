from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.optim.max_change import change_factor
from natgrad.optim.online import OnlineFisher
from natgrad.optim.rows import PlainRows, Rows
from natgrad.optim.simple import simple_rows
from tests.optim.literal import change_factor_literally
from tests.optim.samples import KINDS, minibatch


def sides(kind: str, method: str, dtype: torch.dtype, scale: float = 1.0) -> tuple[Rows, Rows]:
    X = (minibatch(kind, 12, 15, seed=1) * scale).to(dtype)
    Y = (minibatch("correlated", 12, 9, seed=2) * scale).to(dtype)
    if method == "plain":
        return PlainRows(X), PlainRows(Y)
    if method == "simple":
        return simple_rows(X, 4.0), simple_rows(Y, 4.0)
    return OnlineFisher(rank=4).meet(X)[0], OnlineFisher(rank=3).meet(Y)[0]


@settings(deadline=None, max_examples=100)
@given(
    kind=st.sampled_from(KINDS),
    method=st.sampled_from(("plain", "simple", "online")),
    log_scale=st.sampled_from((-13, -3, 0, 3, 12)),
    # Of the Cauchy-Schwarz bound: around 1 is where the shortcut begins.
    relative_limit=st.floats(1e-3, 1.2),
    single=st.booleans(),
)
def test_factor_equals_the_literal_formula_with_or_without_the_shortcut(
    kind: str, method: str, log_scale: int, relative_limit: float, single: bool
) -> None:
    dtype = torch.float32 if single else torch.float64
    X, Y = sides(kind, method, dtype, 10.0**log_scale)
    lr = 0.02
    bound = lr * math.sqrt(X.squared_norm * Y.squared_norm)
    limit = relative_limit * bound / 12 if bound > 0.0 else 1.0
    factor = change_factor(lr, limit, X, Y)
    expected = change_factor_literally(lr, limit, X.dense(), Y.dense())
    assert factor == pytest.approx(expected, rel=1e-4 if single else 1e-10, abs=0.0)
    change = lr * factor * (X.dense().double().T @ Y.dense().double()).norm()
    assert float(change) <= 12 * limit * (1.0 + (1e-4 if single else 1e-10))


def test_factor_is_the_limit_over_the_sum_of_products_of_row_norms() -> None:
    X = PlainRows(torch.tensor([[3.0, 4.0], [0.0, 2.0]]))  # norms 5 and 2
    Y = PlainRows(torch.tensor([[1.0], [-10.0]]))
    # lr (5 * 1 + 2 * 10) = 2.5; the limit of the minibatch is 2 * 0.075
    assert change_factor(0.1, 0.075, X, Y) == pytest.approx(0.15 / 2.5)
    assert change_factor(0.1, 1.25, X, Y) == pytest.approx(1.0)
    assert change_factor(0.1, 1.0, X, Y) == pytest.approx(0.8)


def test_none_switches_the_limit_off() -> None:
    X, Y = sides("iid", "plain", torch.float64, 1e6)
    assert change_factor(1.0, 0.075, X, Y) < 1e-9
    assert change_factor(1.0, None, X, Y) == 1.0


def test_large_float32_rows_are_limited_and_not_dropped() -> None:
    # The product of the squared norms, 1e50, overflows float32.
    X, Y = sides("iid", "plain", torch.float32, 1e12)
    expected = change_factor_literally(0.1, 0.075, X.dense(), Y.dense())
    assert 0.0 < expected < 1e-20
    assert change_factor(0.1, 0.075, X, Y) == pytest.approx(expected, rel=1e-5, abs=0.0)


def test_no_row_norm_is_computed_where_the_bound_is_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, Y = sides("iid", "plain", torch.float64)

    def refuse() -> torch.Tensor:
        raise AssertionError("row norms were computed")

    monkeypatch.setattr(X, "squared_row_norms", refuse)
    bound = 0.1 * math.sqrt(X.squared_norm * Y.squared_norm) / 12
    assert change_factor(0.1, bound * 1.001, X, Y) == 1.0
    with pytest.raises(AssertionError, match="were computed"):
        change_factor(0.1, bound * 0.999, X, Y)


def test_zero_rows_have_factor_one() -> None:
    zero = PlainRows(torch.zeros(3, 2))
    assert change_factor(0.1, 0.075, zero, PlainRows(torch.ones(3, 2))) == 1.0
