"""Results as text: aligned tables, which are Markdown too."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.result_file import Results
from benchmarks.table import Row, Spread, Table, spread

__all__ = ["format_facts", "format_results", "format_rows", "format_table"]

NONE = "-"  # where something was not reached
UNKNOWN = "unknown"


def format_results(results: Results) -> str:
    """Return all tables of a benchmark, under what they were measured on."""
    quick = " (quick: too small to say anything)" if results.is_quick else ""
    head = f"{results.benchmark}{quick}: {format_facts(results.facts)}"
    return "\n\n".join([head, *map(format_table, results.tables)])


def format_facts(facts: Mapping[str, Any]) -> str:
    """Return what matters most of the facts, in a line.

    >>> format_facts({"cpu": "Abacus", "cores": 2, "torch": "2.6.0", "commit": None})
    'Abacus, 2 cores; torch 2.6.0; commit unknown'
    """
    parts = [str(facts.get("cpu", "machine unknown"))]
    if "cores" in facts:
        parts[0] += f", {facts['cores']} cores"
    parts += [f"{name} {facts[name]}" for name in ("torch", "numpy") if name in facts]
    if "load_before" in facts:
        before, after = facts["load_before"][0], facts.get("load_after", [math.nan])[0]
        parts.append(f"load {before:.2f} before, {after:.2f} after")
    commit = str(facts.get("commit") or UNKNOWN)[:10]
    changed = " with changes" if facts.get("is_dirty") else ""
    parts.append(f"commit {commit}{changed}")
    parts += [str(facts[name]) for name in ("date", "note") if name in facts]
    return "; ".join(parts)


def format_table(table: Table) -> str:
    """Return a table: a line for each method, with its median, quartiles, ratios and goal."""
    rounds = f", {table.num_rounds} rounds" if table.num_rounds > 1 else ""
    others = list(dict.fromkeys(name for row in table.rows for name in row.also))
    has_goals = any(row.goal for row in table.rows)
    header = ["method", *(["median", "quartiles"] if rounds else ["value"])]
    header += [f"/ {name}" for name in table.references]
    header += [*(["goal", ""] if has_goals else []), *others]
    lines = []
    for row in table.rows:
        found = spread(row.values)
        line = [row.name, NONE if found is None else _number(found.median)]
        if rounds:
            line.append(NONE if found is None else _between(found, _number))
        line += [_ratio(table, row, name) for name in table.references]
        line += _goal(table, row) if has_goals else []
        line += [_short(row.also[name]) if name in row.also else "" for name in others]
        lines.append(line)
    return f"{table.title}: {table.unit}{rounds}\n\n{format_rows(header, lines)}"


def format_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned.

    >>> print(format_rows(["method", "ms"], [["a", "1.0"], ["other", "12.5"]]))
    | method |   ms |
    |--------|------|
    | a      |  1.0 |
    | other  | 12.5 |
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for cells in (header, *rows):
        rest = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
        lines.append("| " + " | ".join([f"{cells[0]:{widths[0]}}", *rest]) + " |")
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _ratio(table: Table, row: Row, reference: str) -> str:
    found = table.ratio(row, reference)
    if found is None:
        return NONE
    if table.num_rounds == 1 or row.name == reference:
        return _times(found.median)
    return f"{_times(found.median)} ({_between(found, _times)})"


def _goal(table: Table, row: Row) -> list[str]:
    if row.goal is None:
        return ["", ""]
    sign = ">=" if row.goal.at_least else "<="
    of = "" if row.goal.of is None else f" x {row.goal.of}"
    return [f"{sign} {row.goal.limit:g}{of}", "met" if table.is_met(row) else "missed"]


def _between(found: Spread, form: Callable[[float], str]) -> str:
    return f"{form(found.lower)}-{form(found.upper)}"


def _times(ratio: float) -> str:
    """Return three digits after the point, or of what is small.

    >>> _times(1.0296), _times(0.00453852)
    ('1.030', '0.00454')
    """
    return f"{ratio:.3f}" if abs(ratio) >= 0.1 else f"{ratio:.3g}"


def _short(value: float) -> str:
    """Return up to four digits of a number, and all that are before its point.

    >>> [_short(value) for value in (0.5, 20.88123, 427455.5)]
    ['0.5', '20.88', '427456']
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _number(value: float) -> str:
    """Return four digits of a number, and all that are before its point.

    >>> [_number(value) for value in (0.0123456, 1.0, 466.79, 427455.5, -0.76039, 0)]
    ['0.01235', '1.000', '466.8', '427456', '-0.7604', '0']
    """
    if isinstance(value, int) or abs(value) >= 1000 or value == 0:
        return f"{value:.0f}"
    return f"{value:#.4g}"
