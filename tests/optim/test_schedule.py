from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.optim.schedule import exponential

rates = st.floats(1e-12, 1e6)


@given(initial=rates, final=rates)
def test_exponential_begins_and_ends_where_it_is_told_to(initial: float, final: float) -> None:
    assert exponential(initial, final, 0.0) == initial
    assert exponential(initial, final, 1.0) == final


@given(initial=rates, final=rates, begin=st.floats(0.0, 0.75), step=st.floats(0.0, 0.125))
def test_exponential_changes_by_equal_factors_in_equal_times(
    initial: float, final: float, begin: float, step: float
) -> None:
    first, second, third = (exponential(initial, final, begin + i * step) for i in range(3))
    assert second / first == pytest.approx(third / second, rel=1e-9)


@pytest.mark.parametrize(
    ("initial", "final", "progress"),
    [(0.0, 0.1, 0.5), (0.1, -0.1, 0.5), (math.inf, 0.1, 0.5), (math.nan, 0.1, 0.5)]
    + [(0.1, 0.1, progress) for progress in (-0.1, 1.1, math.nan)],
)
def test_exponential_refuses_what_has_no_meaning(
    initial: float, final: float, progress: float
) -> None:
    with pytest.raises(ValueError, match="but got"):
        exponential(initial, final, progress)
