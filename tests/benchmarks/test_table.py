"""Medians, quartiles, ratios and goals, against literal ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.table import Goal, ResultsError, Row, Spread, Table, spread

POSITIVE = st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], Spread(7.0, 7.0, 7.0)),
        ([2.0, 1.0], Spread(1.5, 1.25, 1.75)),
        ([3.0, 1.0, 2.0], Spread(2.0, 1.5, 2.5)),
        ([10.0, 30.0, 20.0, 1000.0, 40.0], Spread(30.0, 20.0, 40.0)),
        ([1.0, math.inf, 2.0], None),
    ],
)
def test_spread_is_median_and_quartiles(values: list[float], expected: Spread | None) -> None:
    assert spread(values) == expected


@settings(deadline=None)
@given(st.lists(POSITIVE, min_size=1, max_size=30))
def test_quartiles_are_those_of_the_values_themselves(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    assert (found.lower, found.median, found.upper) == pytest.approx(
        np.percentile(values, [25, 50, 75])
    )
    slack = 1e-9 * max(values)
    assert min(values) - slack <= found.lower <= found.median + slack
    assert found.median <= found.upper + slack <= max(values) + 2 * slack


def test_ratio_is_taken_within_rounds_and_not_of_medians() -> None:
    """The machine was 10 times slower in the second round, and nearly so in the third."""
    table = Table(
        "t",
        "ms",
        (Row("fast", (1.0, 10.0, 9.0)), Row("slow", (2.0, 20.0, 27.0))),
        references=("fast",),
    )
    fast, slow = table.rows
    assert table.ratio(slow, "fast") == Spread(2.0, 2.0, 2.5)  # of 2, 2, 3; medians have 20 / 9
    assert table.ratio(fast, "slow") == pytest.approx((0.5, (1 / 2 + 1 / 3) / 2, 0.5))
    assert table.ratio(fast, "fast") == Spread(1.0, 1.0, 1.0)
    assert table.num_rounds == 3


@settings(deadline=None)
@given(st.lists(st.tuples(POSITIVE, POSITIVE, POSITIVE), min_size=1, max_size=20))
def test_what_slows_a_whole_round_does_not_change_the_ratios(
    rounds: list[tuple[float, float, float]],
) -> None:
    a, b, slower = (tuple(column) for column in zip(*rounds, strict=True))
    before = Table("t", "s", (Row("a", a), Row("b", b)))
    after = Table(
        "t",
        "s",
        (
            Row("a", tuple(x * y for x, y in zip(a, slower, strict=True))),
            Row("b", tuple(x * y for x, y in zip(b, slower, strict=True))),
        ),
    )
    assert after.ratio(after.rows[0], "b") == pytest.approx(before.ratio(before.rows[0], "b"))


def test_ratio_to_what_was_not_reached_or_cost_nothing_is_none() -> None:
    table = Table("t", "s", (Row("a", (1.0,)), Row("never", (math.inf,)), Row("free", (0.0,))))
    assert table.ratio(table.rows[0], "never") is None
    assert table.ratio(table.rows[1], "a") is None
    assert table.ratio(table.rows[0], "free") is None


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [
        (Goal(3.0), True),  # the median itself is 3
        (Goal(2.9), False),
        (Goal(3.0, at_least=True), True),
        (Goal(3.1, at_least=True), False),
        (Goal(1.5, of="other"), True),  # the ratios are 1, 1.5 and 2
        (Goal(1.4, of="other"), False),
        (Goal(1.6, of="other", at_least=True), False),
    ],
)
def test_goal_is_judged_by_the_median(goal: Goal, is_met: bool) -> None:
    table = Table("t", "s", (Row("a", (2.0, 3.0, 4.0), goal), Row("other", (2.0, 2.0, 2.0))))
    assert table.is_met(table.rows[0]) is is_met
    assert table.is_met(table.rows[1]) is None


def test_goal_is_not_met_by_what_was_not_reached() -> None:
    table = Table("t", "s", (Row("a", (1.0, math.inf), Goal(5.0)),))
    assert table.is_met(table.rows[0]) is False


@pytest.mark.parametrize(
    ("rows", "references", "message"),
    [
        ((), (), "rows of different names"),
        ((Row("a", (1.0,)), Row("a", (2.0,))), (), "rows of different names"),
        ((Row("a", (1.0,)), Row("b", (1.0, 2.0))), (), "a value of each row in each round"),
        ((Row("a", ()),), (), "a value of each row in each round"),
        ((Row("a", (1.0,)),), ("b",), "compared with b, but the rows are a"),
        ((Row("a", (1.0,), Goal(1.0, of="c")),), (), "compared with c, but the rows are a"),
    ],
)
def test_table_that_cannot_be_is_refused(
    rows: tuple[Row, ...], references: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ResultsError, match=f"speed of light: .*{message}"):
        Table("speed of light", "m/s", rows, references)
