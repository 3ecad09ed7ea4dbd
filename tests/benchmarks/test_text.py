"""Tables as they are printed."""

from __future__ import annotations

import math

from benchmarks.result_file import Results
from benchmarks.table import Goal, Row, Table
from benchmarks.text import format_facts, format_results, format_table


def test_table_has_medians_quartiles_ratios_goals_and_other_figures() -> None:
    table = Table(
        "small, one thread",
        "ms a step",
        (
            Row("torch SGD", (10.0, 20.0, 12.0)),
            Row("online", (11.0, 30.0, 12.0), Goal(1.0, of="torch SGD"), {"errors %": 4.5}),
            Row("whole", (1200.0, 1200.0, 1200.0), Goal(1000.0, at_least=True)),
            Row("never", (1.0, math.inf, 1.0)),
        ),
        references=("torch SGD",),
    )
    assert format_table(table).splitlines() == [
        "small, one thread: ms a step, 3 rounds",
        "",
        "| method    | median |   quartiles |              / torch SGD |             goal |        "
        "| errors % |",
        "|-----------|--------|-------------|--------------------------|------------------|--------"
        "|----------|",
        "| torch SGD |  12.00 | 11.00-16.00 |                    1.000 |                  |        "
        "|          |",
        "| online    |  12.00 | 11.50-21.00 |      1.100 (1.050-1.300) | <= 1 x torch SGD | missed "
        "|      4.5 |",
        "| whole     |   1200 |   1200-1200 | 100.000 (80.000-110.000) |          >= 1000 |    met "
        "|          |",
        "| never     |      - |           - |                        - |                  |        "
        "|          |",
    ]


def test_table_of_one_round_has_no_quartiles() -> None:
    table = Table("size", "bytes", (Row("a", (1.0,)), Row("b", (3.0,))), references=("a",))
    assert format_table(table).splitlines() == [
        "size: bytes",
        "",
        "| method | value |   / a |",
        "|--------|-------|-------|",
        "| a      | 1.000 | 1.000 |",
        "| b      | 3.000 | 3.000 |",
    ]


def test_facts_tell_of_load_and_of_changed_code() -> None:
    facts = {
        "cpu": "Abacus",
        "cores": 2,
        "torch": "2.6.0",
        "load_before": [0.5, 0.0, 0.0],
        "load_after": [3.25, 0.0, 0.0],
        "commit": "0123456789abcdef",
        "is_dirty": True,
        "date": "2020-02-02",
    }
    assert format_facts(facts) == (
        "Abacus, 2 cores; torch 2.6.0; load 0.50 before, 3.25 after; "
        "commit 0123456789 with changes; 2020-02-02"
    )


def test_quick_results_say_that_they_say_nothing() -> None:
    table = Table("size", "bytes", (Row("a", (1.0,)),))
    text = format_results(Results("data", True, {"cpu": "Abacus"}, {}, (table,)))
    assert text.startswith("data (quick: too small to say anything): Abacus; commit unknown\n\n")
    assert "quick" not in format_results(Results("data", False, {}, {}, (table,)))
