"""Heat maps, as SVG: a row per layer, a column per iteration, a value as a depth of colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from natgrad.report.line_plot import shortened
from natgrad.report.markup import Markup, element, join
from natgrad.report.scale import Scale, format_value

__all__ = ["heat_map"]

LETTER_WIDTH = 6.3
MAX_COLUMNS = 96
MIN_ROW, MAX_ROW = 20.0, 36.0
HEIGHT = 180.0  # of the rows together, if the limits of each allow
Rows = Sequence[tuple[str, Sequence[float | None]]]


def heat_map(
    title: str,
    rows: Rows,
    columns: Sequence[int | str],
    x_label: str,
    *,
    greatest: float = 1.0,
    value_format: Callable[[float], str] = format_value,
    written: bool = False,
    beside: Sequence[str] = (),
    width: float = 640.0,
) -> Markup:
    """Return a map of rows (a name, and a value or None per column).

    A value's size is shown as a share of `greatest`: full colour; negative ones have another hue.
    Columns are numbered or named; those beyond what can be seen are put together, as means.
    written: whether to write values into the cells; beside: what to write beside each row
    """
    rows, spans = _merged_columns(rows, columns)
    left = 14.0 + LETTER_WIDTH * max((len(name) for name, _ in rows), default=0)
    left, top = min(left, 0.35 * width), 6.0
    num_letters = int((left - 14.0) / LETTER_WIDTH + 1e-9)
    right = 66.0
    height = max(MIN_ROW, min(MAX_ROW, HEIGHT / max(1, len(rows))))
    cell = (width - left - right) / max(1, len(spans))
    parts: list[Markup] = []
    for row, (name, values) in enumerate(rows):
        y = top + height * row
        parts.append(
            element(
                "text",
                shortened(name, num_letters),
                element("title", name),
                x=left - 8,
                y=y + height / 2 + 4,
                class_="tick end",
            )
        )
        for column, (value, span) in enumerate(zip(values, spans, strict=True)):
            if value is not None:
                x = left + cell * column
                hover = f"{name}, {x_label} {span}: {value_format(value)}"
                parts.append(_cell(x, y, cell, height, value / greatest, hover))
                if written:
                    text, middle = value_format(value), x + cell / 2
                    parts.append(
                        element("text", text, x=middle, y=y + height / 2 + 4, class_="cell-text")
                    )
        if beside:
            x = width - right + 8
            parts.append(element("text", beside[row], x=x, y=y + height / 2 + 4, class_="tick"))
    bottom = top + height * len(rows)
    parts.append(_column_names(spans, columns, left, cell, bottom, x_label))
    return element(
        "svg",
        element("title", title),
        *parts,
        viewBox=f"0 0 {width:g} {bottom + 40:g}",
        role="img",
        class_="plot",
    )


def _cell(x: float, y: float, width: float, height: float, share: float, hover: str) -> Markup:
    gap = 1.0 if width > 4 else 0.0
    return element(
        "rect",
        element("title", hover),
        x=x,
        y=y + 1,
        width=max(0.5, width - gap) + (0 if gap else 0.3),
        height=height - 2,
        class_="cell" if share >= 0 else "cell negative",
        fill_opacity=0.06 + 0.84 * min(1.0, abs(share)),
    )


def _column_names(
    spans: list[str],
    columns: Sequence[int | str],
    left: float,
    cell: float,
    bottom: float,
    x_label: str,
) -> Markup:
    numbers = [float(column) for column in columns if isinstance(column, int)]
    if len(numbers) < len(columns) or len(columns) <= 12:
        room = 12 + LETTER_WIDTH * max(map(len, spans))
        every = max(1, math.ceil(room / cell))
        ticks = [(float(i), spans[i]) for i in range(0, len(spans), every)]
    else:
        scale = Scale.around(numbers, 0.0, len(spans) - 1.0, margin=0.0)
        whole = [value for value in scale.ticks(7) if value == int(value)]
        ticks = [(scale(value), str(int(value))) for value in whole]
    parts = [
        element("text", text, x=left + cell * (at + 0.5), y=bottom + 15, class_="tick middle")
        for at, text in ticks
    ]
    middle = left + cell * len(spans) / 2
    parts.append(element("text", x_label, x=middle, y=bottom + 33, class_="name middle"))
    return join(*parts)


def _merged_columns(
    rows: Rows, columns: Sequence[int | str]
) -> tuple[list[tuple[str, list[float | None]]], list[str]]:
    size = -(-len(columns) // MAX_COLUMNS)
    starts = range(0, len(columns), max(1, size))
    groups = [columns[start : start + size] for start in starts]
    spans = [f"{g[0]}" if len(g) == 1 else f"{g[0]} to {g[-1]}" for g in groups]
    merged = [
        (name, [_mean(values[start : start + size]) for start in starts]) for name, values in rows
    ]
    return merged, spans


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
