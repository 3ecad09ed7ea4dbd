"""Sixteen bits a value: within the error that is stated, whatever the values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from natgrad.speech.features.codec import LARGEST_MAGNITUDE, decode, encode

Floats = NDArray[np.float32]

LARGEST = float(np.nextafter(np.float32(LARGEST_MAGNITUDE), np.float32(0)))

any_values = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 12), st.integers(1, 4)),
    elements=st.floats(-LARGEST, LARGEST, width=32) | st.floats(-10, 10, width=32),
)


def assert_within_bound(values: Floats) -> None:
    codes, ranges = encode(values)
    assert codes.dtype == np.uint16
    assert ranges.dtype == np.float32
    exact = values.astype(np.float64)
    half_step = np.ptp(exact, axis=0) / 131070
    bound = half_step + np.abs(exact).max(axis=0) * 2.0**-22 + 2.0**-133
    decoded = decode(codes, ranges)
    assert decoded.dtype == np.float32
    assert (np.abs(decoded - exact) <= bound).all()


@settings(max_examples=300, deadline=None)
@given(any_values)
def test_values_move_by_no_more_than_is_stated(values: Floats) -> None:
    assert_within_bound(values)


@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-13, 1.0, 1e12, 2e36])
def test_error_is_relative_to_the_range_at_every_scale(scale: float) -> None:
    values = np.random.default_rng(0).standard_normal((500, 3)) * scale
    assert_within_bound(values.astype(np.float32))


@settings(max_examples=50, deadline=None)
@given(st.floats(-LARGEST, LARGEST, width=32), st.integers(1, 5))
def test_constant_columns_are_exact(value: float, num_rows: int) -> None:
    values = np.full((num_rows, 2), value, dtype=np.float32)
    assert np.array_equal(decode(*encode(values)), values)


def test_all_levels_are_used_and_kept() -> None:
    values = np.arange(65536, dtype=np.float32)[:, None]
    codes, ranges = encode(values)
    assert np.array_equal(codes, values.astype(np.uint16))
    assert np.array_equal(decode(codes, ranges), values)
