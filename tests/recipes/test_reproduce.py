"""The command `natgrad reproduce`: pages that tell their origin, and their index."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes.reproduce import commands
from natgrad.recipes.reproduce.across_seeds import across
from natgrad.recipes.reproduce.commands import reproduce
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


def shade(name: str, of: Experiment[ToySettings]) -> Experiment[ToySettings]:
    """What goes on from a toy, and needs the first thing that it measures."""

    def measurements(settings: ToySettings, where: Path | None) -> list[Measurement]:
        def run(bench: Bench) -> Found:
            (found,) = bench.found.values()
            return {"value": 10.0 * found["value"]}

        return [Measurement("shade", {}, run, needs=(f"seed-{settings.seeds[0]}",))]

    def report(settings: ToySettings, found: Mapping[str, Found]) -> Report:
        return Report("A shade", f"{found['shade']['value']:g} of {list(found)}.", [])

    return Experiment(name, "How dark is it?", ToySettings, measurements, report, after=of)


def draw(figure: Figure) -> str:
    return f"<svg>{figure.caption}</svg>"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    size = toy("size")
    every = [size, toy("age"), toy("weight", data="a directory of scales"), shade("shade", size)]
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
        ("sise", None, [], "no experiment 'sise' .did you mean size"),
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


# -- experiments that go on from others ----------------------------------------------------------


def times(out: Path) -> dict[str, int]:
    return {file.stem: file.stat().st_mtime_ns for file in (out / "measurements").iterdir()}


@pytest.mark.usefixtures("toys")
def test_an_experiment_goes_on_from_another_without_doing_it_again(tmp_path: Path) -> None:
    (size,) = reproduce("size", tmp_path, None, [], None, draw)
    before, page = times(tmp_path), size.read_text()
    (written,) = reproduce("shade", tmp_path, None, [], None, draw)
    after = times(tmp_path)
    assert set(after) == {*before, "shade"}
    assert {name: after[name] for name in before} == before
    assert "15 of ['seed-1', 'seed-2', 'shade']." in written.read_text()
    assert size.read_text() == page


@pytest.mark.usefixtures("toys")
def test_an_experiment_does_first_what_it_goes_on_from(tmp_path: Path) -> None:
    stages: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "stage":
            stages.append(event["name"])

    reproduce("shade", tmp_path, None, [], None, draw, on_event=hear)
    assert stages == ["seed-1", "seed-2", "shade"]
    stages.clear()
    reproduce("size", tmp_path, None, [], None, draw, on_event=hear)
    assert stages == []


@pytest.mark.usefixtures("toys")
def test_with_other_settings_what_an_experiment_goes_on_from_is_done_again(tmp_path: Path) -> None:
    reproduce("size", tmp_path, None, [], None, draw)
    before = times(tmp_path)
    (page,) = reproduce("shade", tmp_path, None, ["seeds=[2]", "scale=2"], None, draw)
    after = times(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {"seed-2", "shade"}
    assert "40 of ['seed-2', 'shade']." in page.read_text()


@pytest.mark.usefixtures("toys")
def test_page_of_what_goes_on_has_all_commands_and_counts_its_own_records(tmp_path: Path) -> None:
    reproduce("size", tmp_path, None, ["scale=2"], None, draw)
    for name in ("seed-1", "seed-2"):
        file = tmp_path / f"measurements/{name}.json"
        old = {"seconds": 6000.0, "cpu_seconds": 6000.0, "finished": "1999-09-09 09:09"}
        file.write_text(json.dumps({**json.loads(file.read_text()), **old, "machine": "Abacus"}))
    (page,) = reproduce("shade", tmp_path, None, ["scale=2"], None, draw)
    origin = page.read_text().split("## How it was made")[1]
    options = "--set scale=2.0 --docs docs"
    both = f"natgrad reproduce size {options}\nnatgrad reproduce shade {options}"
    assert f"```\n{both}\n```" in origin
    assert "1 measurements after those of size, finished 20" in origin
    assert "0.0 minutes of a processor in all, 0.0 minutes by the clock" in origin
    assert "1999" not in origin
    assert "Abacus" not in origin


@pytest.mark.usefixtures("toys")
def test_without_out_an_experiment_is_where_the_one_is_that_it_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert reproduce("size", None, None, [], None, draw) == [Path("reproduce/size/size.md")]
    assert reproduce("shade", None, None, [], None, draw) == [Path("reproduce/size/shade.md")]


def test_an_experiment_goes_on_only_from_one_with_the_same_settings_and_data() -> None:
    with pytest.raises(ValueError, match="goes on from 'weight': expected the same settings and"):
        shade("shade", toy("weight", data="a directory of scales"))


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
    broken_by: BaseException = RuntimeError("no power")

    def fail(bench: Bench) -> Found:
        raise broken_by

    experiment = Experiment(
        "lamp",
        "Does it glow?",
        ToySettings,
        lambda settings, data: [Measurement("broken", {}, fail)],
        lambda settings, found: Report("", "", []),
    )
    monkeypatch.setattr(commands, "EXPERIMENTS", {"lamp": experiment})
    assert main(["reproduce", "lamp", "--out", str(tmp_path)]) == 1
    assert "natgrad: measurement broken: no power" in capsys.readouterr().err
    broken_by = KeyboardInterrupt()
    assert main(["reproduce", "lamp", "--out", str(tmp_path)]) == 130
    assert f"to go on: natgrad reproduce lamp --out {tmp_path}" in capsys.readouterr().err
