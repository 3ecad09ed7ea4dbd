from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.report.line_plot import spread
from natgrad.report.scale import Scale, format_duration, format_value

finite = st.floats(-1e12, 1e12)
positive = st.floats(1e-12, 1e12)


@given(st.lists(finite, min_size=1, max_size=20), st.integers(3, 12))
def test_linear_ticks_are_even_round_and_inside(values: list[float], about: int) -> None:
    scale = Scale.around(values, 0.0, 100.0)
    ticks = scale.ticks(about)
    slack = 1e-6 * (scale.high - scale.low)
    assert 2 <= len(ticks) <= 2.5 * about
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)
    steps = [after - before for before, after in pairwise(ticks)]
    assert max(steps) == pytest.approx(min(steps), rel=1e-6)
    leading = f"{steps[0]:.3e}"
    assert leading[:5] in ("1.000", "2.000", "5.000")


@given(st.lists(positive, min_size=1, max_size=20), st.integers(3, 10))
def test_logarithmic_ticks_are_inside_and_not_too_many(values: list[float], about: int) -> None:
    scale = Scale.around(values, 0.0, 100.0, log=True)
    ticks = scale.ticks(about)
    assert 1 <= len(ticks) <= 1.5 * about + 3
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in ticks)
    assert ticks == sorted(set(ticks))


@given(st.lists(positive, min_size=1, max_size=20), st.booleans())
def test_all_values_are_within_the_scale(values: list[float], log: bool) -> None:
    scale = Scale.around(values, 20.0, 120.0, log=log)
    assert all(20.0 <= scale(value) <= 120.0 for value in values)
    assert scale(scale.low) == pytest.approx(20.0)
    assert scale(scale.high) == pytest.approx(120.0)


def test_what_is_not_finite_does_not_stretch_the_scale() -> None:
    scale = Scale.around([1.0, math.nan, 2.0, math.inf], 0.0, 1.0, margin=0.0)
    assert (scale.low, scale.high) == (1.0, 2.0)
    assert not scale.shows(math.nan)
    assert not Scale.around([0.0, -1.0, 3.0], 0.0, 1.0, log=True).shows(0.0)


@given(st.lists(st.floats(0.0, 300.0), max_size=12))
def test_labels_keep_their_order_and_distance(wanted: list[float]) -> None:
    places = spread(wanted, 14.0, 0.0, 300.0)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    heights = [places[i] for i in order]
    assert all(after - before >= 14.0 - 1e-6 for before, after in pairwise(heights))
    assert all(-1e-6 <= height <= 300.0 + 1e-6 for height in heights)


def test_labels_with_room_stay_where_they_are() -> None:
    assert spread([200.0, 20.0, 90.0], 14.0, 0.0, 300.0) == [200.0, 20.0, 90.0]


@given(finite)
def test_written_numbers_are_right_to_three_digits(value: float) -> None:
    text = format_value(value).replace("\N{MINUS SIGN}", "-")
    unit = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1.0)
    read = float(text.rstrip("kMGT")) * unit
    assert read == pytest.approx(value, rel=6e-3)
    assert len(text) <= 10


@given(st.floats(1.0, 1e7))
def test_written_durations_are_right(seconds: float) -> None:
    units = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    words = format_duration(seconds).split(" ")
    read = sum(float(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert read == pytest.approx(seconds, rel=0.02, abs=0.06)


@given(st.floats(9e14, 1e300))
def test_numbers_beyond_all_units_are_written_by_their_power_of_ten(value: float) -> None:
    text = format_value(value)
    assert float(text.replace("T", "e12")) == pytest.approx(value, rel=6e-3)
    assert len(text) <= 9
