"""The frame of `natgrad reproduce`: measured once, resumed, told with its origin, and indexed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes.reproduce import commands
from natgrad.recipes.reproduce.across_seeds import across, percent, significant
from natgrad.recipes.reproduce.commands import reproduce
from natgrad.recipes.reproduce.conduct import conduct
from natgrad.recipes.reproduce.experiment import (
    Bench,
    Experiment,
    Figure,
    Found,
    Line,
    Measurement,
    Report,
)
from natgrad.recipes.reproduce.page import write_index
from natgrad.run.config import ConfigError
from natgrad.run.events import read_events
from natgrad.run.lock import RunInUseError, hold


class Counter:
    """Measurements that count how often they are done, and may fail."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.fail: tuple[str, BaseException] | None = None

    def measurement(self, name: str, *needs: str, **settings: Any) -> Measurement:
        def run(bench: Bench) -> Found:
            (bench.directory / "kept").write_text(name)
            if self.fail is not None and self.fail[0] == name:
                raise self.fail[1]
            self.done.append(name)
            return {"name": name, "needed": [bench.found[need]["name"] for need in needs]}

        return Measurement(name, settings, run, needs)


def test_measurements_are_done_in_order_and_once(tmp_path: Path) -> None:
    counter = Counter()
    listed = [counter.measurement("a"), counter.measurement("b", "a"), counter.measurement("c")]
    first = conduct(tmp_path, listed)
    assert counter.done == ["a", "b", "c"]
    assert first["b"].found == {"name": "b", "needed": ["a"]}
    assert conduct(tmp_path, listed) == first
    assert counter.done == ["a", "b", "c"]


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), OSError("full")])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path, error: BaseException) -> None:
    counter = Counter()
    listed = [counter.measurement(name) for name in "abc"]
    counter.fail = ("b", error)
    with pytest.raises(type(error)):
        conduct(tmp_path, listed)
    assert sorted(file.name for file in (tmp_path / "measurements").iterdir()) == ["a.json"]
    counter.fail = None
    records = conduct(tmp_path, listed)
    assert counter.done == ["a", "b", "c"]
    assert list(records) == ["a", "b", "c"]


KILLED = """
import os, signal, sys
from pathlib import Path
from natgrad.recipes.reproduce.conduct import conduct
from natgrad.recipes.reproduce.experiment import Measurement

def run(name):
    def measure(bench):
        with open(Path(sys.argv[1]).parent / "done", "a") as file:
            file.write(name)
        if name == "b" and sys.argv[2] == "die":
            (bench.directory / "half.part").write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
        return {"name": name}
    return measure

records = conduct(sys.argv[1], [Measurement(name, {"seed": 1}, run(name)) for name in "abc"])
print("".join(record.found["name"] for record in records.values()))
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    def run(what: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", KILLED, str(tmp_path / "out"), what]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert run("die").returncode == -signal.SIGKILL
    again = run("live")
    assert (again.returncode, again.stdout) == (0, "abc\n")
    assert (tmp_path / "done").read_text() == "abbc"
    assert not list((tmp_path / "out").rglob("*.part"))


def test_changed_settings_redo_a_measurement_and_those_that_need_it(tmp_path: Path) -> None:
    def listed(counter: Counter, value: int) -> list[Measurement]:
        return [
            counter.measurement("a", value=value),
            counter.measurement("b"),
            counter.measurement("c", "a"),
            counter.measurement("d", "c"),
        ]

    conduct(tmp_path, listed(Counter(), 1))
    counter = Counter()
    conduct(tmp_path, listed(counter, 2))
    assert counter.done == ["a", "c", "d"]
    added = Counter()
    conduct(tmp_path, [added.measurement("e"), *listed(added, 2)])
    assert added.done == ["e"]


def test_a_measurement_meets_what_its_killed_attempt_has_left_and_nothing_of_other_settings(
    tmp_path: Path,
) -> None:
    met: list[list[str]] = []

    def listed(value: int, fails: bool) -> list[Measurement]:
        def run(bench: Bench) -> Found:
            met.append(sorted(file.name for file in bench.directory.iterdir()))
            (bench.directory / f"begun-with-{value}").touch()
            if fails:
                raise RuntimeError
            return {}

        needed = Counter().measurement("needed", value=value)
        return [needed, Measurement("a", {}, run, needs=("needed",))]

    for value, fails in ((1, True), (1, False), (2, False)):
        with pytest.raises(RuntimeError) if fails else nullcontext():
            conduct(tmp_path, listed(value, fails))
    assert met == [["identity"], ["begun-with-1", "identity"], ["identity"]]


def test_a_record_says_when_where_and_how_long(tmp_path: Path) -> None:
    record = conduct(tmp_path, [Counter().measurement("a", seed=3)])["a"]
    written = json.loads((tmp_path / "measurements/a.json").read_text())
    assert written == vars(record)
    assert written["settings"] == {"seed": 3}
    assert record.seconds >= 0.0
    assert record.cpu_seconds >= 0.0
    assert "torch" in record.machine
    assert len(record.finished) == len("2020-02-02 20:20")
    assert (tmp_path / "work/a/kept").read_text() == "a"


def test_events_are_those_of_stages(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    conduct(
        tmp_path, [Counter().measurement("a"), Counter().measurement("b")], on_event=heard.append
    )
    assert [(event["event"], event["name"]) for event in heard] == [
        ("stage", "a"), ("stage_done", "a"), ("stage", "b"), ("stage_done", "b"),
    ]  # fmt: skip
    assert (heard[2]["number"], heard[2]["num_stages"]) == (2, 2)
    assert heard[1]["facts"] == {"name": "a"}
    assert read_events(tmp_path / "events.jsonl") == heard


def test_progress_tells_numbers_and_words_and_not_what_did_not_happen(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    found = {"objective": -1.5, "diverged": None, "curve": [1, 2], "last": {"objective": -1.5}}
    conduct(tmp_path, [Measurement("a", {}, lambda bench: found)], on_event=heard.append)
    assert heard[1]["facts"] == {"objective": -1.5}


def test_two_drivers_do_not_meet(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(RunInUseError, match="in use by process"):
        conduct(tmp_path, [Counter().measurement("a")])


@pytest.mark.parametrize("content", ["{", "[]", '{"found": 1}'])
def test_a_damaged_record_names_itself(tmp_path: Path, content: str) -> None:
    conduct(tmp_path, [Counter().measurement("a")])
    (tmp_path / "measurements/a.json").write_text(content)
    with pytest.raises(ValueError, match=r"a\.json is not what a measurement writes"):
        conduct(tmp_path, [Counter().measurement("a")])


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        conduct(tmp_path, [Measurement("a", {}, lambda bench: {"value": float("nan")})])
    assert not list((tmp_path / "measurements").iterdir())


def test_a_measurement_finds_what_it_needs_beside_it_and_nothing_else(tmp_path: Path) -> None:
    def read(bench: Bench) -> Found:
        with pytest.raises(ValueError, match=r"does not need it: it needs a"):
            bench.beside("b")
        return {"kept": (bench.beside("a") / "kept").read_text()}

    counter = Counter()
    listed = [
        counter.measurement("a"),
        counter.measurement("b"),
        Measurement("c", {}, read, ("a",)),
    ]
    assert conduct(tmp_path, listed)["c"].found == {"kept": "a"}


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "-a", "a b", "a."])
def test_names_that_are_no_names_of_files_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="as it names a file"):
        Counter().measurement(name)


def test_a_list_that_cannot_be_done_is_refused(tmp_path: Path) -> None:
    counter = Counter()
    with pytest.raises(ValueError, match="two measurements are named 'a'"):
        conduct(tmp_path, [counter.measurement("a"), counter.measurement("a")])
    with pytest.raises(ValueError, match="'a' needs b: expected measurements that are before it"):
        conduct(tmp_path, [counter.measurement("a", "b"), counter.measurement("b")])
    assert counter.done == []


# -- pages ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    rank: int = 3


@dataclass(frozen=True)
class ToySettings:
    seeds: tuple[int, ...] = (1, 2)
    scale: float = 1.5
    title: str = "toy"
    inner: Inner = Inner()

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("expected some seeds")


def toy(name: str, data: str | None = None) -> Experiment[ToySettings]:
    def measurements(settings: ToySettings, where: Path | None) -> list[Measurement]:
        def run(seed: int) -> Callable[[Bench], Found]:
            return lambda bench: {"value": settings.scale * seed}

        own = {"scale": settings.scale, "data": None if where is None else str(where)}
        return [Measurement(f"seed-{s}", {**own, "seed": s}, run(s)) for s in settings.seeds]

    def report(settings: ToySettings, found: Mapping[str, Found]) -> Report:
        value = across(found[f"seed-{seed}"]["value"] for seed in settings.seeds)
        line = Line("values", [(0.0, value.low), (1.0, value.high)])
        return Report(
            f"A {settings.title}",
            f"It is {value.text()}; [more](other.md) and [that](https://example.org).",
            [Figure("first", "Two points", "x", "y", [line]), "## Details\n\nAll of them."],
        )

    return Experiment(name, "How large is it?", ToySettings, measurements, report, data)


def draw(figure: Figure) -> str:
    return f"<svg>{figure.caption}</svg>"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [toy("size"), toy("age"), toy("weight", data="a directory of scales")]
    monkeypatch.setattr(commands, "EXPERIMENTS", {one.name: one for one in every})


@pytest.mark.usefixtures("toys")
def test_page_has_question_answer_figures_and_origin(tmp_path: Path) -> None:
    changed = ["seeds=[1,3]", "inner.rank=5", "title=a big thing"]
    (page,) = reproduce("size", tmp_path / "out", None, changed, None, draw)
    text = page.read_text()
    assert text.startswith("# A a big thing\n\n*How large is it?*\n\nIt is 3.00 (1.50 to 4.50);")
    assert "![Two points](size-first.svg)\n\n*Figure.* Two points." in text
    assert (page.parent / "size-first.svg").read_text() == "<svg>Two points</svg>"
    origin = text.split("## How it was made")[1]
    command = "natgrad reproduce size --set 'seeds=[1,3]' --set 'title=\"a big thing\"'"
    assert f"\n{command} --set inner.rank=5 --docs docs\n" in origin
    assert "2 measurements, finished 20" in origin
    assert "| seeds | 1, 3 |\n| scale | 1.5 |" in origin
    assert "| inner.rank | 5 |" in origin
    assert "torch" in origin


@pytest.mark.usefixtures("toys")
def test_the_command_of_a_page_makes_the_same_page(tmp_path: Path) -> None:
    """What is printed as the command is read back as the same settings."""
    (page,) = reproduce("size", tmp_path / "a", None, ["title=it's", "seeds=[2]"], None, draw)
    import shlex

    words = shlex.split(page.read_text().split("```\n")[1])
    assignments = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    (again,) = reproduce("size", tmp_path / "b", None, assignments, None, draw)
    assert page.read_text().split("## How")[0] == again.read_text().split("## How")[0]


@pytest.mark.usefixtures("toys")
def test_index_gathers_the_heads_in_order_with_links_that_lead(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("age", "size"):
        written = reproduce(name, tmp_path / name, None, [f"title={name}"], docs, draw)
        assert written[1:] == [docs / f"results/{name}.md", docs / "results.md"]
    (docs / "results/zebra.md").write_text("# Zebra\n\nStripes.\n\n## More\n")
    index = write_index(docs, ["size", "weight", "age"]).read_text()
    order = [index.index(heading) for heading in ("# Results", "## A size", "## A age", "## Zebra")]
    assert order == sorted(order)
    assert "Details" not in index
    assert "It is 2.25 (1.50 to 3.00)" in index
    assert "![Two points](results/size-first.svg)" in index
    assert "[more](results/other.md) and [that](https://example.org)" in index
    assert "[Everything about it](results/age.md)" in index
    assert (docs / "results/size-first.svg").exists()


def test_a_page_without_a_heading_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/notes.md").write_text("some notes")
    with pytest.raises(ValueError, match=r"notes\.md does not begin with a heading"):
        write_index(tmp_path, [])


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(
    ("name", "data", "assignments", "message"),
    [
        ("sise", None, [], "no experiment 'sise': did you mean size"),
        ("size", "/tmp", [], "size makes its own data: leave it out"),
        ("weight", None, [], "weight needs --data DIR: a directory of scales"),
        ("weight", "/nowhere", [], "/nowhere; expected a directory: a directory of scales"),
        ("size", None, ["sedes=[1]"], "unknown key 'sedes': did you mean 'seeds'"),
        ("size", None, ["seeds=3"], "'seeds' must be a list"),
        ("size", None, ["seeds=[]"], "expected some seeds"),
        ("size", None, ["inner.rank=x"], "'inner.rank' must be of type int"),
        ("size", None, ["seeds"], "expected KEY=VALUE"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_done(
    tmp_path: Path, name: str, data: str | None, assignments: list[str], message: str
) -> None:
    with pytest.raises((ValueError, ConfigError), match=message):
        reproduce(name, tmp_path / "out", data, assignments, None, draw)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toys")
def test_docs_that_are_not_there_are_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a directory that is there"):
        reproduce("size", tmp_path / "out", None, [], tmp_path / "dosc", draw)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("toys")
def test_data_is_handed_on_and_in_the_command(tmp_path: Path) -> None:
    (page,) = reproduce("weight", tmp_path / "out", tmp_path, [], None, draw)
    assert f"natgrad reproduce weight --data {tmp_path} --docs docs" in page.read_text()
    record = json.loads((tmp_path / "out/measurements/seed-1.json").read_text())
    assert record["settings"]["data"] == str(tmp_path)


# -- the command ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("toys")
def test_command_lists_runs_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["size", "How", "large", "is", "it?"]
    assert main(["reproduce", "size", "-o", str(tmp_path / "out"), "--set", "scale=2"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out/size.md'}\n"
    svg = (tmp_path / "out/size-first.svg").read_text()
    assert svg.startswith("<svg xmlns=")
    assert "values" in svg


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize("arguments", [[], ["size", "--set", "x=1"], ["siz"]])
def test_wrong_arguments_are_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *arguments]) == 2
    assert capsys.readouterr().err.startswith("natgrad: ")


def test_a_measurement_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counter = Counter()
    counter.fail = ("broken", RuntimeError("no power"))
    experiment = Experiment(
        "lamp",
        "Does it glow?",
        ToySettings,
        lambda settings, data: [counter.measurement("broken")],
        lambda settings, found: Report("", "", []),
    )
    monkeypatch.setattr(commands, "EXPERIMENTS", {"lamp": experiment})
    assert main(["reproduce", "lamp", "--out", str(tmp_path)]) == 1
    assert "natgrad: measurement broken: no power" in capsys.readouterr().err
    counter.fail = ("broken", KeyboardInterrupt())
    assert main(["reproduce", "lamp", "--out", str(tmp_path)]) == 130
    assert f"to go on: natgrad reproduce lamp --out {tmp_path}" in capsys.readouterr().err


# -- numbers -------------------------------------------------------------------------------------


def test_numbers_are_told_with_their_range() -> None:
    assert across([0.5, 0.5]).text() == "0.500"
    assert across([0.12, 0.34]).text(percent) == "23 % (12 to 34)"
    assert across([1.0, 100.0], geometric=True).mean == pytest.approx(10.0)
    assert [significant(v) for v in (-0.0456, 9.996, 99.96)] == ["-0.0456", "10.00", "100.0"]
