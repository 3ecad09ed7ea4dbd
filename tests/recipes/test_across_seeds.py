"""Numbers from several seeds."""

from __future__ import annotations

import pytest

from natgrad.recipes.reproduce.across_seeds import across, percent, significant


def test_numbers_are_told_with_their_range() -> None:
    assert across([0.5, 0.5]).text() == "0.500"
    assert across([0.12, 0.34]).text(percent) == "23 % (12 to 34)"
    assert across([1.0, 100.0], geometric=True).mean == pytest.approx(10.0)
    assert [significant(v) for v in (-0.0456, 9.996, 99.96)] == ["-0.0456", "10.00", "100.0"]
