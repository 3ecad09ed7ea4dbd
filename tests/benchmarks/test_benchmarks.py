"""Every benchmark runs, quickly, from end to end, and can be shown; not how fast anything is."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from benchmarks import step
from benchmarks.__main__ import NAMES, main
from benchmarks.averaging import Size
from benchmarks.optimizers import CONTENDERS
from benchmarks.result_file import Results
from benchmarks.table import Row, Table
from benchmarks.text import format_results, format_table
from natgrad.nn import build
from natgrad.optim.native import kernels as kernels_file
from tests.conftest import has_compiler


class Quick(NamedTuple):
    """What a quick run has written, and what it has printed."""

    file: Path
    printed: str

    @property
    def results(self) -> Results:
        return Results.read(self.file)

    def table(self, beginning: str) -> Table:
        (found,) = (t for t in self.results.tables if t.title.startswith(beginning))
        return found


QuickRuns = Callable[[str], Quick]


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Where results are, and what was printed, by benchmark."""
    return tmp_path_factory.mktemp("results"), {}


@pytest.fixture
def quick(done: tuple[Path, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> QuickRuns:
    """Runs a benchmark when it is first asked for."""
    directory, printed = done

    def run(name: str) -> Quick:
        if name not in printed:
            module = importlib.import_module(f"benchmarks.{name}")
            options = [] if name != "step" or has_compiler() else ["--no-native"]
            assert module.main(["--quick", "--results", str(directory), *options]) == 0
            printed[name] = capsys.readouterr().out
        return Quick(directory / f"{name}.json", printed[name])

    return run


def row(table: Table, name: str) -> Row:
    (found,) = (row for row in table.rows if row.name == name)
    return found


def names(table: Table) -> list[str]:
    return [row.name for row in table.rows]


@pytest.mark.parametrize("name", NAMES)
def test_quick_run_writes_what_can_be_shown(
    name: str, quick: QuickRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    found = quick(name)
    results = found.results
    assert (results.benchmark, results.is_quick) == (name, True)
    assert results.facts["cpu"]
    assert results.facts["command"].startswith(f"python -m benchmarks.{name} --quick")
    assert results.tables
    assert all(format_table(table) in found.printed for table in results.tables)
    assert main([name, "--show", "--results", str(found.file.parent)]) == 0
    assert capsys.readouterr().out == f"{format_results(results)}\n\n"


def test_step_times_every_contender(quick: QuickRuns) -> None:
    table = quick("step").table("tiny, minibatch 8, 1 thread")
    bare = ["products, torch", "products", "products, online", "products, simple"]
    torch_own = ["torch, no update", "torch SGD"]
    trained = ["none", "online", "simple", "online, .grad", "online, rank 20"]
    native = [f"{name}, native" for name in (*bare[1:], *trained[:3])] if has_compiler() else []
    assert names(table) == [*bare, *torch_own, *trained, *native]
    assert table.references == ("torch SGD", "none", "products")
    assert all(value > 0.0 for row in table.rows for value in row.values)


def test_step_without_a_compiler_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(kernels_file, "_loaded", None)
    assert step.main(["--quick", "--results", str(tmp_path)]) == 2
    assert (
        "or measure without them: python -m benchmarks.step --no-native" in capsys.readouterr().err
    )
    assert not list(tmp_path.iterdir())


def test_convergence_compares_every_contender_in_every_round(quick: QuickRuns) -> None:
    found = quick("convergence")
    contenders = [contender.name for contender in CONTENDERS]
    for table in found.results.tables:
        assert names(table) == contenders
        assert table.num_rounds == 2
    ends = found.table("at the end")
    assert all(math.isfinite(value) for row in ends.rows for value in row.values)
    assert [row.also["lr"] for row in ends.rows] == [contender.lr for contender in CONTENDERS]


def test_averaging_has_all_parts_in_their_sum(quick: QuickRuns) -> None:
    table = quick("averaging").table("between two iterations, 3 models")
    *parts, whole = table.rows
    assert [part.name for part in parts] == [
        "average", "change", "cosines", "write", "hand out",
    ]  # fmt: skip
    sums = map(sum, zip(*(part.values for part in parts), strict=True))
    assert whole.values == pytest.approx(tuple(sums))
    assert all(part.values[0] > 0.0 for part in parts)


def test_averaging_is_of_a_model_as_large_as_asked_for() -> None:
    config = Size().averaged
    network = build(config.num_inputs, config.num_outputs, config.hidden)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(19.3e6, rel=0.01)


def test_averaging_times_what_is_handed_over(quick: QuickRuns) -> None:
    table = quick("averaging").table("handed over, 3 jobs")
    assert names(table) == [
        "outer step", "its two files", "a job writes factors", "a job reads factors",
        "mean of all jobs' factors",
    ]  # fmt: skip
    assert all(value > 0.0 for row in table.rows for value in row.values)


def test_averaging_compares_whole_iterations_with_bare_loops_of_the_same_rounds(
    quick: QuickRuns,
) -> None:
    found = quick("averaging")
    for kind, jobs in [("whole", "1 job"), ("whole", "2 jobs"), ("bare", "1 job")]:
        of_jobs = found.table(f"whole iterations and bare training loops, {jobs}")
        title = "whole iterations" if kind == "whole" else "bare training loops"
        of_kind = found.table(f"two jobs at a time, {title}")
        assert row(of_jobs, kind).values == row(of_kind, jobs).values
        assert len(row(of_jobs, kind).values) == 2
        assert min(row(of_jobs, kind).values) > 0.0


def test_driver_holds_its_first_and_last_iterations_side_by_side(quick: QuickRuns) -> None:
    found = quick("averaging")
    (memory, own) = (t for t in found.results.tables if t.title.startswith("the driver of 3"))
    assert names(memory) == names(own) == ["first tenth", "last tenth"]
    assert min(row(memory, "last tenth").values) > 10.0


def test_data_tells_bytes_and_rates(quick: QuickRuns) -> None:
    found = quick("data")
    size = found.table("size")
    assert names(size) == ["context 4", "context 8, side vector 20"]
    for of_case in size.rows:
        assert 1.0 < of_case.values[0] < 1.2
        assert of_case.also["bytes a sample"] == pytest.approx(40 * of_case.values[0])
        assert row(found.table(f"building, {of_case.name}"), "1 worker").values[0] > 0.0


def test_data_adds_reading_and_gathering(quick: QuickRuns) -> None:
    table = quick("data").table("a minibatch of 512, from a block of 12000 samples")
    read, gather = row(table, "read").values, row(table, "gather").values
    both = tuple(map(sum, zip(read, gather, strict=True)))
    assert row(table, "read + gather").values == pytest.approx(both)
    goal = row(table, "read + gather").goal
    assert goal is not None
    assert (goal.limit, goal.of) == (0.05, "train")


def test_decode_tells_errors_and_lattices_of_each_beam(quick: QuickRuns) -> None:
    (table,) = quick("decode").results.tables
    assert names(table) == ["scores alone", "beam 9", "beam 13"]
    scores, narrow, wide = table.rows
    assert dict(scores.also) == {}
    assert 0.0 < narrow.also["arcs a frame"] <= wide.also["arcs a frame"]
    assert 0.0 <= wide.also["word errors %"] < 50.0
    assert narrow.goal is None
    assert wide.goal is not None


def test_combination_judges_all_ways_on_data_that_none_has_seen(quick: QuickRuns) -> None:
    (table,) = quick("combination").results.tables
    combined, last = row(table, "combined on both, 5 evaluations"), row(table, "the last model")
    assert combined.also["train"] != last.also["train"]
    assert all(math.isfinite(row.values[0]) for row in table.rows)
    assert "combined on validation, 20 evaluations" in names(table)
