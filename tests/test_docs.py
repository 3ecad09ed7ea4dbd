"""The documents name functions and tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = (ROOT / "docs/algorithm.md").read_text().split("## Equation, function, test")[1]
TABLE_ROWS = [
    line.strip("| ").split(" | ")
    for line in TABLE.split("\n## ")[0].splitlines()
    if "test_" in line
]
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
SOURCES = "\n".join(path.read_text() for path in (ROOT / "natgrad/optim").glob("*.py"))


def test_the_table_of_equations_is_read() -> None:
    assert len(TABLE_ROWS) > 10
    assert all(len(row) == 3 for row in TABLE_ROWS)


@pytest.mark.parametrize("row", TABLE_ROWS, ids=[row[0] for row in TABLE_ROWS])
def test_equation_is_cited_by_code_and_tests_that_exist(row: list[str]) -> None:
    labels, code, tests = row
    for label in re.findall(r"`(eqn:[\w:]+)`", labels):
        assert label in SOURCES, f"no code cites {label}"
    for name in re.findall(r"`([\w.]+)`", code):
        function = name.rpartition(".")[2]
        if function == "py":
            assert (ROOT / "natgrad/optim" / name).exists(), name
        else:
            assert re.search(rf"(def|class) {function}\b", SOURCES), name
    for name in re.findall(r"\b(test_\w+)", tests):
        is_file = (ROOT / "tests/optim" / f"{name}.py").exists()
        assert is_file or f"def {name}(" in TESTS, name
