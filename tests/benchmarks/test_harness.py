"""Rounds by a clock that stands still unless a method moves it; and a benchmark as a command."""

from __future__ import annotations

import argparse
import doctest
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import harness
from benchmarks.harness import Benchmark, Findings, per_call, run_benchmark, take_rounds
from benchmarks.result_file import Results
from benchmarks.table import Row, Spread, Table
from benchmarks.text import format_table


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def action(self, *seconds: float) -> Callable[[], None]:
        """Return something that takes these times, call by call."""
        waiting = list(seconds)

        def act() -> None:
            self.now += waiting.pop(0)

        return act


# -- rounds --------------------------------------------------------------------------------------


def test_time_of_a_call_is_the_mean_over_a_round() -> None:
    clock = FakeClock()
    method = per_call(clock.action(1.0, 2.0, 6.0, 4.0), num_calls=2, scale=1000.0, clock=clock)
    assert [method(), method()] == [1500.0, 5000.0]


def test_medians_and_ratios_are_those_of_rounds_after_the_warm_up() -> None:
    """The second of three rounds is 10 times slower for all."""
    clock = FakeClock()
    methods = {
        "plain": per_call(clock.action(99.0, 2.0, 20.0, 2.0), clock=clock),
        "ours": per_call(clock.action(99.0, 3.0, 30.0, 2.0), clock=clock),
    }
    values = take_rounds(methods, num_rounds=3, num_warm_up=1)
    assert values == {"plain": (2.0, 20.0, 2.0), "ours": (3.0, 30.0, 2.0)}
    table = Table("t", "s", tuple(Row(*row) for row in values.items()), references=("plain",))
    assert table.ratio(table.rows[1], "plain") == Spread(1.5, 1.25, 1.5)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 20), st.integers(0, 3))
def test_every_method_has_one_turn_a_round_and_another_place_in_the_next(
    num_methods: int, num_rounds: int, num_warm_up: int
) -> None:
    order: list[int] = []

    def method(name: int) -> Callable[[], float]:
        def act() -> float:
            order.append(name)
            return float(len(order))

        return act

    methods = {str(name): method(name) for name in range(num_methods)}
    values = take_rounds(methods, num_rounds, num_warm_up)
    rounds = [order[i : i + num_methods] for i in range(0, len(order), num_methods)]
    assert len(rounds) == num_warm_up + num_rounds
    assert all(sorted(names) == list(range(num_methods)) for names in rounds)
    assert [names[0] for names in rounds] == [i % num_methods for i in range(len(rounds))]
    for name, of_method in values.items():
        turns = [place + 1 for place, who in enumerate(order) if str(who) == name]
        assert list(of_method) == turns[num_warm_up:]


def test_steady_drift_favours_nobody() -> None:
    """All methods are the same, and each call takes a second longer than the one before."""
    calls = iter(range(1, 1000))
    values = take_rounds({name: lambda: float(next(calls)) for name in "abc"}, 6, num_warm_up=0)
    assert len({sum(of_method) for of_method in values.values()}) == 1


def test_no_round_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round, but got 0"):
        take_rounds({"a": lambda: 1.0}, num_rounds=0)


# -- a benchmark as a command --------------------------------------------------------------------


def waiting_benchmark(measure: Any = None, num_rounds: int | None = 7) -> Benchmark:
    def add_table(options: argparse.Namespace, findings: Findings) -> None:
        findings.settings["is_quick"] = options.is_quick
        findings.details["colours"] = [["red"], ["blue"]]
        values = tuple(map(float, range(1, 1 + (options.num_rounds if num_rounds else 1))))
        findings.add(Table("waiting", "s", (Row("a", values),)))

    about = "How long one waits.\n\nAnd nothing else."
    return Benchmark("waiting", about, measure or add_table, num_rounds)


def test_benchmark_prints_its_tables_and_writes_them_with_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_benchmark(waiting_benchmark(), ["--results", str(tmp_path / "new")]) == 0
    path = tmp_path / "new" / "waiting.json"
    results = Results.read(path)
    assert results.benchmark == "waiting"
    assert not results.is_quick
    assert results.settings == {"is_quick": False}
    assert results.details == {"colours": [["red"], ["blue"]]}
    assert results.tables[0].num_rounds == 7
    expected = f"python -m benchmarks.waiting --results {tmp_path / 'new'}"
    assert results.facts["command"] == expected
    assert set(results.facts) >= {"cpu", "load_before", "load_after", "seconds", "commit"}
    printed = capsys.readouterr().out
    assert printed.startswith(format_table(results.tables[0]))
    assert printed.endswith(f"{path}\n")


@pytest.mark.parametrize(
    ("arguments", "num_rounds", "place"),
    [
        ([], 7, "waiting.json"),
        (["--rounds", "3"], 3, "waiting.json"),
        (["--quick"], 2, "quick/waiting.json"),
        (["--quick", "--rounds", "4"], 4, "quick/waiting.json"),
    ],
)
def test_quick_results_are_kept_apart(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    num_rounds: int,
    place: str,
) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    assert run_benchmark(waiting_benchmark(), arguments) == 0
    files = [str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*") if f.is_file()]
    assert files == [place]
    results = Results.read(tmp_path / place)
    assert results.tables[0].num_rounds == num_rounds
    assert results.is_quick is ("--quick" in arguments)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("there is no such beam"), 2, "benchmarks.waiting: there is no such beam"),
        (KeyboardInterrupt(), 130, "interrupted; nothing is written"),
    ],
)
def test_benchmark_that_fails_leaves_the_results_before_it(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def fail(options: argparse.Namespace, findings: Findings) -> None:
        findings.add(Table("t", "s", (Row("a", (1.0,)),)))
        raise error

    (tmp_path / "waiting.json").write_text("before")
    assert run_benchmark(waiting_benchmark(fail), ["--results", str(tmp_path)]) == code
    assert message in capsys.readouterr().err
    assert (tmp_path / "waiting.json").read_text() == "before"
    assert len(list(tmp_path.iterdir())) == 1


def test_place_that_cannot_be_written_is_found_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(options: argparse.Namespace, findings: Findings) -> None:
        raise AssertionError

    (tmp_path / "file").write_text("")
    for where in (tmp_path / "file", tmp_path / "file" / "results", Path("/proc/self")):
        assert run_benchmark(waiting_benchmark(never), ["--results", str(where)]) == 2
        error = capsys.readouterr().err
        assert f"cannot write results into {where}: " in error
        assert "--results DIR" in error


@pytest.mark.parametrize("rounds", ["0", "-1", "some"])
def test_number_of_rounds_is_a_number(rounds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_benchmark(waiting_benchmark(), ["--rounds", rounds])
    assert f"expected a whole number above 0, but got '{rounds}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "option", "value", "expected"),
    [
        ("step", "--threads", "0", "a whole number above 0"),
        ("step", "--minibatches", "-1", "a whole number above 0"),
        ("data", "--workers", "1.5", "a whole number above 0"),
        ("combination", "--utterances", "0", "a whole number above 0"),
        ("combination", "--epochs", "0", "a number above 0"),
        ("decode", "--seconds", "nan", "a number above 0"),
        ("decode", "--beams", "inf", "a number above 0"),
    ],
)
def test_number_that_makes_no_sense_is_refused(
    name: str, option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        importlib.import_module(f"benchmarks.{name}").main([f"{option}={value}"])
    assert caught.value.code == 2
    assert f"{option}: expected {expected}, but got '{value}'" in capsys.readouterr().err


def test_benchmark_without_rounds_has_no_such_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_benchmark(waiting_benchmark(num_rounds=None), ["--help"])
    told = capsys.readouterr().out
    assert "How long one waits." in told
    assert "--rounds" not in told


@pytest.mark.parametrize("name", ["harness", "table", "text"])
def test_examples_in_the_documentation_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"benchmarks.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
