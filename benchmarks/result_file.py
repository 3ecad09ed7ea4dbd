"""The file of a benchmark's results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.table import Goal, ResultsError, Row, Table
from natgrad.atomic import write_atomically

__all__ = ["Results"]

FORMAT = 1


@dataclass(frozen=True)
class Results:
    """All that one run of a benchmark found, as it is kept in a file.

    Args:
        benchmark: its name.
        is_quick: whether it was so small a run that its figures say nothing.
        facts: the machine, the versions, the command.
        settings: sizes and choices of the benchmark.
        tables: what was measured.
        details: what else is worth keeping, as JSON holds it.
    """

    benchmark: str
    is_quick: bool
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    tables: tuple[Table, ...]
    details: Mapping[str, Any] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write them to a JSON file, whole or not at all."""
        fields = {
            "format": FORMAT,
            "benchmark": self.benchmark,
            "is_quick": self.is_quick,
            "facts": self.facts,
            "settings": self.settings,
            "tables": [_table_fields(table) for table in self.tables],
            "details": self.details,
        }
        write_atomically(path, [f"{_lines(fields)}\n".encode()])

    @staticmethod
    def read(path: Path) -> Results:
        """Read what `write` wrote; raise ResultsError, which names the file, if it is not that."""
        again = f"Run  natgrad bench {path.stem}  to have it measured again"
        try:
            fields = json.loads(path.read_bytes())
        except OSError as error:
            raise ResultsError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise ResultsError(f"cannot read {path}, as it is no JSON: {error}. {again}") from error
        if not isinstance(fields, dict) or fields.get("format") != FORMAT:
            raise ResultsError(
                f"{path} has no results of format {FORMAT} in it, which is all that can be shown. "
                f"{again}"
            )
        try:
            return Results(
                fields["benchmark"],
                fields["is_quick"],
                _mapping_of(fields["facts"]),
                _mapping_of(fields["settings"]),
                tuple(map(_table_of, fields["tables"])),
                _mapping_of(fields["details"]),
            )
        except KeyError as error:
            raise ResultsError(f"{path} is damaged: it has no {error}. {again}") from error
        except (TypeError, ResultsError) as error:
            raise ResultsError(f"{path} is damaged: {error}. {again}") from error


# -- as JSON -------------------------------------------------------------------------------------


def _table_fields(table: Table) -> dict[str, Any]:
    rows = []
    for row in table.rows:
        # JSON has no infinity.
        values = [None if value == math.inf else value for value in row.values]
        fields: dict[str, Any] = {"name": row.name, "values": values}
        if row.goal is not None:
            fields["goal"] = vars(row.goal)
        if row.also:
            fields["also"] = dict(row.also)
        rows.append(fields)
    return {
        "title": table.title,
        "unit": table.unit,
        "references": list(table.references),
        "rows": rows,
    }


def _table_of(fields: Mapping[str, Any]) -> Table:
    rows = [
        Row(
            row["name"],
            tuple(math.inf if value is None else _number_of(value) for value in row["values"]),
            _goal_of(row["goal"]) if "goal" in row else None,
            {name: _number_of(value) for name, value in _mapping_of(row.get("also", {})).items()},
        )
        for row in fields["rows"]
    ]
    return Table(fields["title"], fields["unit"], tuple(rows), tuple(fields["references"]))


def _goal_of(fields: Mapping[str, Any]) -> Goal:
    return Goal(_number_of(fields["limit"]), fields["of"], fields["at_least"])


def _number_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ResultsError(f"expected a number, but got {value!r}")
    return value


def _mapping_of(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ResultsError(f"expected an object of JSON, but got {value!r}")
    return value


def _lines(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each field, and lists of plain values on one line each."""
    inner = f"{indent} "
    if isinstance(value, Mapping) and value:
        parts = [f"{json.dumps(key)}: {_lines(part, inner)}" for key, part in value.items()]
        return f"{{\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}}}"
    if isinstance(value, list | tuple) and any(
        isinstance(p, Mapping | list | tuple) for p in value
    ):
        parts = [_lines(part, inner) for part in value]
        return f"[\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
