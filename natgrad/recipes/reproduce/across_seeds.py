"""A number from several seeds: its mean, and how far it went."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["AcrossSeeds", "across", "markdown_table", "percent", "significant"]


@dataclass(frozen=True)
class AcrossSeeds:
    """The mean of a number, the least and the greatest.

    >>> found = across([1.0, 2.0, 6.0])
    >>> found.mean, found.text(), found.text(percent)
    (3.0, '3.00 (1.00 to 6.00)', '300 % (100 to 600)')
    """

    mean: float
    low: float
    high: float

    def text(self, write: Callable[[float], str] | None = None) -> str:
        """Return the mean, and in brackets the least and the greatest."""
        write = write or significant
        mean, low, high = (write(value) for value in (self.mean, self.low, self.high))
        if low == high:
            return mean
        return f"{mean} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"


def across(values: Iterable[float], geometric: bool = False) -> AcrossSeeds:
    """Return what seeds have in common: with `geometric`, the mean of positive numbers by ratio."""
    numbers = list(values)
    if geometric:
        mean = math.exp(math.fsum(math.log(number) for number in numbers) / len(numbers))
    else:
        mean = math.fsum(numbers) / len(numbers)
    return AcrossSeeds(mean, min(numbers), max(numbers))


def significant(value: float, digits: int = 3) -> str:
    """Write a number with so many digits that count.

    >>> [significant(v) for v in (0.01234, 1.5, 123.4, 56789.0, 2e-15, 0.0)]
    ['0.0123', '1.50', '123', '56789', '2.0e-15', '0']
    """
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -3:
        return f"{value:.1e}"
    return f"{value:.{max(0, digits - 1 - size)}f}"


def percent(value: float) -> str:
    """Write a share.

    >>> percent(0.123), percent(0.012)
    ('12 %', '1.2 %')
    """
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    >>> print(markdown_table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(line)} |" if number != 1 else f"|{'|'.join(line)}|"
        for number, line in enumerate(lines)
    )
