"""What is written is what is read."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.result_file import Results
from benchmarks.table import Goal, ResultsError, Row, Table

NUMBERS = st.floats(allow_nan=False, min_value=-1e300) | st.integers(-1000, 1000)
NAMES = st.text(max_size=8)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1e9, 1e9) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    num_rounds = draw(st.integers(1, 4))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    goals = st.none() | st.builds(
        Goal, st.floats(0, 9), st.sampled_from([None, *names]), st.booleans()
    )
    rows = tuple(
        Row(
            name,
            tuple(draw(st.lists(NUMBERS, min_size=num_rounds, max_size=num_rounds))),
            draw(goals),
            draw(st.dictionaries(NAMES, st.floats(-9, 9), max_size=2)),
        )
        for name in names
    )
    references = tuple(draw(st.lists(st.sampled_from(names), max_size=2, unique=True)))
    return Table(draw(NAMES), draw(NAMES), rows, references)


FIELDS = st.dictionaries(NAMES, PLAIN, max_size=3)


@settings(deadline=None, max_examples=40)
@given(
    st.builds(
        Results,
        NAMES,
        st.booleans(),
        FIELDS,
        FIELDS,
        st.lists(tables(), max_size=3).map(tuple),
        FIELDS,
    )
)
def test_results_survive_the_file(
    tmp_path_factory: pytest.TempPathFactory, results: Results
) -> None:
    path = tmp_path_factory.mktemp("results") / "r.json"
    results.write(path)
    assert Results.read(path) == results
    assert [file.name for file in path.parent.iterdir()] == ["r.json"]


def small_results(*values: float) -> Results:
    table = Table("t", "ms", (Row("a", values),))
    return Results("step", False, {"cpu": "Abacus"}, {}, (table,), {"shape": [[1, 2], [3, 4]]})


def test_json_has_no_infinity_and_a_line_for_each_list_of_values(tmp_path: Path) -> None:
    small_results(1.5, math.inf).write(tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    assert '     "values": [1.5, null]\n' in text
    assert '  "shape": [\n   [1, 2],\n   [3, 4]\n  ]\n' in text
    assert json.loads(text)["tables"][0]["rows"][0]["values"] == [1.5, None]


def test_value_that_is_no_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        small_results(math.nan).write(tmp_path / "r.json")
    assert list(tmp_path.iterdir()) == []


def test_file_that_is_not_there_or_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"cannot read .*missing\.json"):
        Results.read(tmp_path / "missing.json")
    (tmp_path / "half.json").write_text('{"format": 1, "bench')
    with pytest.raises(ResultsError, match=r"cannot read .*half\.json, .*natgrad bench half "):
        Results.read(tmp_path / "half.json")


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 0}', '{"timings": []}'])
def test_other_format_is_to_be_measured_again(tmp_path: Path, text: str) -> None:
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(ResultsError, match=r"step\.json has no results of format 1 .*bench step"):
        Results.read(tmp_path / "step.json")


@pytest.mark.parametrize("lost", ["facts", "tables", "details"])
def test_damaged_file_is_named(tmp_path: Path, lost: str) -> None:
    path = tmp_path / "r.json"
    small_results(1.0).write(path)
    fields = json.loads(path.read_text())
    del fields[lost]
    path.write_text(json.dumps(fields))
    with pytest.raises(ResultsError, match=rf"r\.json is damaged: it has no '{lost}'. Run"):
        Results.read(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("values", ["fast"]),
        ("values", [True]),
        ("values", 1.0),
        ("goal", {"limit": "low", "of": None, "at_least": False}),
        ("also", {"errors": [1]}),
        ("also", [1]),
    ],
)
def test_row_that_is_no_row_is_damage(tmp_path: Path, field: str, value: object) -> None:
    path = tmp_path / "step.json"
    small_results(1.0).write(path)
    fields = json.loads(path.read_text())
    fields["tables"][0]["rows"][0][field] = value
    path.write_text(json.dumps(fields))
    with pytest.raises(ResultsError, match=r"step\.json is damaged: .*Run  natgrad bench step "):
        Results.read(path)


@pytest.mark.parametrize("field", ["facts", "settings", "tables", "details"])
def test_list_where_an_object_should_be_is_damage(tmp_path: Path, field: str) -> None:
    path = tmp_path / "step.json"
    small_results(1.0).write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), field: [1]}))
    with pytest.raises(ResultsError, match=r"step\.json is damaged: "):
        Results.read(path)


def test_rows_that_lost_a_round_are_damage_too(tmp_path: Path) -> None:
    table = Table("t", "ms", (Row("a", (1.0, 2.0)), Row("b", (1.0, 2.0))))
    path = tmp_path / "r.json"
    Results("step", False, {}, {}, (table,)).write(path)
    fields = json.loads(path.read_text())
    fields["tables"][0]["rows"][1]["values"].pop()
    path.write_text(json.dumps(fields))
    with pytest.raises(ResultsError, match=r"r\.json is damaged: .*each row in each round"):
        Results.read(path)
