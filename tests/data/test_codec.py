from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from natgrad.data.codec import LARGEST_MAGNITUDE, decode, encode, error_bound

Floats = NDArray[np.float32]

LARGEST = float(np.float32(LARGEST_MAGNITUDE))
finite = st.floats(-LARGEST, LARGEST, width=32)
any_matrix = npst.arrays(np.float32, npst.array_shapes(min_dims=2, max_dims=2), elements=finite)


@st.composite
def scaled_matrices(draw: st.DrawFn) -> Floats:
    """Hundreds of rows, at any scale and offset, some of them outliers."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = (draw(st.integers(1, 700)), draw(st.integers(1, 4)))
    values = random.standard_t(draw(st.sampled_from([1, 3, 100])), shape)
    values = np.clip(values, -1e6, 1e6) * 10.0 ** draw(st.integers(-44, 30))
    values += 10.0 ** draw(st.integers(-44, 30))
    if draw(st.booleans()):
        values = np.round(values, draw(st.integers(0, 2)))  # columns with ties
    return values.astype(np.float32)


@settings(max_examples=200, deadline=None)
@given(st.one_of(any_matrix, scaled_matrices()))
def test_decoded_values_are_within_the_bound(values: Floats) -> None:
    codes, knots = encode(values)
    assert codes.dtype == np.uint8
    assert codes.shape == values.shape
    decoded = decode(codes, knots)
    assert np.isfinite(decoded).all()
    assert (np.abs(decoded.astype(np.float64) - values) <= error_bound(values, knots)).all()


@settings(max_examples=100, deadline=None)
@given(finite, st.integers(1, 300))
def test_constant_column_is_exact(value: float, num_rows: int) -> None:
    values = np.full((num_rows, 2), value, dtype=np.float32)
    assert np.array_equal(decode(*encode(values)), values)


@settings(max_examples=50, deadline=None)
@given(scaled_matrices())
def test_order_of_values_is_kept(values: Floats) -> None:
    codes, knots = encode(values)
    for column, levels in zip(values.T, codes.T, strict=True):
        assert (np.diff(levels[np.argsort(column, kind="stable")].astype(int)) >= 0).all()
    decoded_levels = decode(np.repeat(np.arange(256, dtype=np.uint8)[:, None], 1, 1), knots[:, :1])
    slack = 2 * error_bound(values[:1, :1], knots[:, :1])[0, 0]
    assert (np.diff(decoded_levels[:, 0].astype(np.float64)) >= -slack).all()


def test_bound_is_half_a_step_of_the_levels_between_the_inner_knots() -> None:
    values = np.linspace(-1, 1, 1001, dtype=np.float32)[:, None]
    _, knots = encode(values)
    bound = error_bound(values, knots)
    assert knots[:, 0].tolist() == pytest.approx([-1.0, -0.98, 0.98, 1.0])
    assert bound[500, 0] == pytest.approx(1.96 / 223 / 2, rel=1e-2)
    assert bound[0, 0] == pytest.approx(0.02 / 16 / 2, rel=1e-2)


def test_outlier_takes_no_precision_from_the_rest() -> None:
    values = np.random.default_rng(0).standard_normal((2048, 1)).astype(np.float32)
    without = np.abs(decode(*encode(values)) - values)
    values[7] = 1e9
    errors = np.abs(decode(*encode(values)) - values)
    is_tail = values > np.sort(values, axis=0)[2048 - 1 - 20]
    assert is_tail.sum() == 20
    assert errors[~is_tail].max() <= 1.1 * without.max()


@pytest.mark.parametrize("column", [[5.0] * 300 + [9.0], [5.0] * 300 + [1.0], [1.0] + [5.0] * 300])
def test_rare_other_value_in_a_constant_column_is_kept(column: list[float]) -> None:
    values = np.array(column, dtype=np.float32)[:, None]
    assert decode(*encode(values)) == pytest.approx(values, abs=1e-5)
