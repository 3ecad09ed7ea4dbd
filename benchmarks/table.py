"""Values of several methods, one for each round, and what they are held against."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Goal", "ResultsError", "Row", "Spread", "Table", "spread"]


class ResultsError(ValueError):
    """Results do not fit together, or a file has none in it."""


class Spread(NamedTuple):
    """The median, and the quartiles on both sides of it."""

    median: float
    lower: float
    upper: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the spread of values, or None if one of them is infinite: something was not reached.

    Quartiles are between the least and the greatest value, however few there are.

    >>> spread([4.0, 1.0, 2.0, 3.0, 5.0])
    Spread(median=3.0, lower=2.0, upper=4.0)
    """
    if not all(map(math.isfinite, values)):
        return None
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, lower, upper)


@dataclass(frozen=True)
class Goal:
    """What a row should keep below, or above.

    Args:
        limit: of the median.
        of: the row that the limit is a multiple of: the ratio's median counts. None: the row's own.
        at_least: the median should be no less than the limit, instead of no more.
    """

    limit: float
    of: str | None = None
    at_least: bool = False

    def is_met_by(self, median: float) -> bool:
        """Return whether a median reaches the goal."""
        return median >= self.limit if self.at_least else median <= self.limit


@dataclass(frozen=True)
class Row:
    """One method: its value in each round, and other figures of it that are told beside them."""

    name: str
    values: tuple[float, ...]
    goal: Goal | None = None
    also: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Methods that were measured in the same rounds.

    Args:
        title: the setting that they have in common.
        unit: of all values, as in "ms a step".
        rows: the methods.
        references: names of rows; the ratio of every row to each of them is told.
    """

    title: str
    unit: str
    rows: tuple[Row, ...]
    references: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if not names or len(set(names)) < len(names):
            raise ResultsError(f"{self.title}: expected rows of different names, but got {names}")
        if len({len(row.values) for row in self.rows}) > 1 or not self.rows[0].values:
            counts = {row.name: len(row.values) for row in self.rows}
            raise ResultsError(
                f"{self.title}: expected a value of each row in each round, but got {counts}"
            )
        wanted = [*self.references, *(r.goal.of for r in self.rows if r.goal and r.goal.of)]
        unknown = sorted(set(wanted) - set(names))
        if unknown:
            raise ResultsError(
                f"{self.title}: rows are to be compared with {', '.join(unknown)}, but the rows "
                f"are {', '.join(names)}"
            )

    @property
    def num_rounds(self) -> int:
        """How many values each row has."""
        return len(self.rows[0].values)

    def ratio(self, row: Row, reference: str) -> Spread | None:
        """Return the spread of the ratios of a row to another, each of two values of one round."""
        (other,) = (other for other in self.rows if other.name == reference)
        if not all(map(math.isfinite, (*row.values, *other.values))) or 0.0 in other.values:
            return None
        return spread([a / b for a, b in zip(row.values, other.values, strict=True)])

    def is_met(self, row: Row) -> bool | None:
        """Return whether a row reaches its goal; None if it has none."""
        if row.goal is None:
            return None
        of = row.goal.of
        found = spread(row.values) if of is None else self.ratio(row, of)
        return found is not None and row.goal.is_met_by(found.median)
