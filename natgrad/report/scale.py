"""From values to positions: linear and logarithmic scales, ticks at round numbers, and how numbers
are written."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = [
    "Scale",
    "format_count",
    "format_duration",
    "format_objective",
    "format_value",
    "time_unit",
]


@dataclass(frozen=True)
class Scale:
    """A straight line from values [low, high] to positions [start, end], or from their logarithms.

    >>> scale = Scale(0.0, 10.0, 100.0, 300.0)
    >>> scale(5.0), scale.ticks(5)
    (200.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0])
    >>> Scale(0.003, 0.2, 0.0, 1.0, log=True).ticks(5)
    [0.005, 0.01, 0.02, 0.05, 0.1, 0.2]
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        log: bool = False,
        include: Iterable[float] = (),
        margin: float = 0.04,
    ) -> Scale:
        """A scale that shows all of the values, with some margin, and what is to be included.

        >>> Scale.around([], 0.0, 1.0) == Scale(0.0, 1.0, 0.0, 1.0)
        True
        """
        usable = [v for v in [*values, *include] if math.isfinite(v) and (v > 0 or not log)]
        if not usable:
            return cls(0.1 if log else 0.0, 1.0, start, end, log)
        low, high = min(usable), max(usable)
        if log:
            low, high = math.log(low), math.log(high)
        if high - low <= 1e-9 * max(abs(low), abs(high)):
            half = math.log(2) if log else 0.5 * abs(high) or 0.5
            low, high = low - half, high + half
        low, high = low - margin * (high - low), high + margin * (high - low)
        if log:
            low, high = math.exp(low), math.exp(high)
        return cls(low, high, start, end, log)

    def __call__(self, value: float) -> float:
        """Return the position of a value, also of one outside."""
        value, low, high = (
            (math.log(v) for v in (value, self.low, self.high))
            if self.log
            else (value, self.low, self.high)
        )
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def shows(self, value: float) -> bool:
        """Whether a value has a position: finite, and positive on a logarithmic scale."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def ticks(self, about: int) -> list[float]:
        """Return round values within the scale, about so many."""
        if not self.log:
            return _linear_ticks(self.low, self.high, about)
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            values = [d * 10.0**k for k in decades for d in digits]
            inside = [
                round(v, 12 - math.floor(math.log10(v)))
                for v in values
                if self.low <= v * (1 + 1e-9) and v <= self.high * (1 + 1e-9)
            ]
            if len(inside) <= 1.5 * about:
                break
        step = math.ceil(len(inside) / (1.5 * about)) if inside else 1
        return inside[::step] if len(inside) >= 2 else _linear_ticks(self.low, self.high, 3)


def _linear_ticks(low: float, high: float, about: int) -> list[float]:
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((f * power for f in (1.0, 2.0, 5.0, 10.0)), key=lambda s: abs(math.log(s / rough)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = 2 - math.floor(math.log10(step))
    return [round(i * step, digits) + 0.0 for i in range(first, last + 1)]


def format_value(value: float | None, digits: int = 3) -> str:
    """Write a number with so many significant digits, in as few characters as that takes.

    >>> [format_value(v) for v in (-1.2345, 0.0061234, 1234567.0, 2.0, 1e-7, 0.0, None)]
    ['\N{MINUS SIGN}1.23', '0.00612', '1.23M', '2', '1e\N{MINUS SIGN}7', '0', '\N{EN DASH}']
    >>> format_value(1.2e25)
    '1.2e25'
    """
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    size = abs(value)
    if 9999.5 <= size < 9.995e14:
        text = format_count(size)
    elif (size and size < 1e-4) or size >= 9.995e14:
        mantissa, exponent = f"{size:.{digits - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        text = f"{mantissa}e{int(exponent)}".replace("-", "\N{MINUS SIGN}")
    elif size >= 10 ** (digits - 1):
        text = f"{size:.0f}"
    else:
        text = f"{size:.{digits}g}"
    return f"\N{MINUS SIGN}{text}" if value < 0 else text


def format_objective(value: float | None) -> str:
    """Write an objective so that several line up: four digits behind the point, more near zero.

    >>> [format_objective(v) for v in (-1.3, -12.0, -0.00123456)]
    ['\N{MINUS SIGN}1.3000', '\N{MINUS SIGN}12.0000', '\N{MINUS SIGN}0.001235']
    """
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    digits = (
        4 if value == 0 or abs(value) >= 0.1 else min(12, 3 - math.floor(math.log10(abs(value))))
    )
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def format_count(value: float | None) -> str:
    """Write how many there are.

    >>> [format_count(v) for v in (12, 4000, 1234567.0, 2.5e9)]
    ['12', '4000', '1.23M', '2.5G']
    """
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= 0.9995 * size and abs(value) >= 9999.5:
            return (
                f"{value / size:.3g}{unit}"
                if abs(value) < 999.5 * size
                else (f"{value / size:.0f}{unit}")
            )
    return f"{value:.0f}"


def format_duration(seconds: float | None) -> str:
    """Write a length of time.

    >>> [format_duration(s) for s in (0.034, 5.25, 83.0, 3720.0, 200000.0)]
    ['34 ms', '5.2 s', '1 min 23 s', '1 h 02 min', '2 d 08 h']
    """
    if seconds is None or not math.isfinite(seconds):
        return "\N{EN DASH}"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which to show times up to so many seconds, and its length.

    >>> time_unit(300.0), time_unit(9000.0)
    (('minutes', 60.0), ('hours', 3600.0))
    """
    if seconds < 150:
        return "seconds", 1.0
    return ("minutes", 60.0) if seconds < 7200 else ("hours", 3600.0)
