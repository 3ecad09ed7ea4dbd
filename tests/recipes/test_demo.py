"""Four runs from the examples of one recipe, a table, and nothing done twice."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from natgrad.data import open_examples
from natgrad.recipes import demo
from natgrad.recipes.demo import RUNS, Result
from natgrad.run.events import read_events
from tests.recipes.small_demo import INLINE, SmallDemo, small_demo


@dataclass
class Demo:
    directory: Path
    runs: list[Path]
    said: list[str] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def run_demo(directory: Path) -> Demo:
    made = Demo(directory, [])

    def follow(name: str) -> Any:
        return lambda event: made.events.append((name, event))

    made.runs = demo.main(
        directory,
        recipe=small_demo(),
        num_epochs=1,
        engine=INLINE,
        on_stage=made.stages.append,
        follow=follow,
        say=made.said.append,
    )
    return made


@pytest.fixture(scope="module")
def made(whole_demo: SmallDemo, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo") / "moved"
    shutil.copytree(whole_demo.root, directory)
    (directory / "stages" / "dnn-examples.json").unlink()  # so this one is to be done again
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        return run_demo(directory)


def test_every_run_is_complete_and_its_events_are_given_on(made: Demo) -> None:
    assert made.runs == [made.directory / "compared" / run.name for run in RUNS]
    for run, path in zip(RUNS, made.runs, strict=True):
        assert (path / "final.safetensors").exists()
        given = [event for name, event in made.events if name == run.name]
        assert given == read_events(path / "events.jsonl")
        jobs = [event for event in given if event["event"] == "job"]
        assert {event["job"] for event in jobs} == set(range(run.num_jobs))


def test_all_runs_see_the_same_number_of_samples(made: Demo) -> None:
    samples = [
        sum(
            event["samples"]
            for event in read_events(path / "events.jsonl")
            if event["event"] == "iteration"
        )
        for path in made.runs
    ]
    assert set(samples) == {open_examples(made.directory / "dnn" / "examples").num_samples}


def test_only_stages_up_to_the_examples_are_done_and_only_those_that_are_not(made: Demo) -> None:
    done = [event["name"] for event in made.stages if event["event"] == "stage_done"]
    assert done == ["dnn-examples"]
    assert not (made.directory / "stages" / "dnn.json").exists()


def test_table_has_a_row_per_run(made: Demo) -> None:
    table = made.said[-1].strip().splitlines()
    assert len({len(line) for line in table[: 1 + len(RUNS)]}) == 1  # columns are aligned
    for run, row in zip(RUNS, table[1:], strict=False):
        assert re.fullmatch(rf"{demo.TITLES[run.method]} +{run.num_jobs} .* \d+\.\d%.*", row)


def test_second_call_trains_nothing_and_says_the_same(made: Demo) -> None:
    files = {path: path.stat().st_mtime_ns for path in made.directory.rglob("*.safetensors")}
    again = run_demo(made.directory)
    assert again.said == made.said
    assert not again.stages
    assert not again.events
    assert files == {
        path: path.stat().st_mtime_ns for path in made.directory.rglob("*.safetensors")
    }


def test_conclusion_tells_what_more_jobs_cost_each_method() -> None:
    valid = (-1.0, -1.3, -0.9, -0.95)
    results = [Result(run, -0.5, v, 0.7, 1.0) for run, v in zip(RUNS, valid, strict=True)]
    plain, natural = demo.conclusion(results).splitlines()
    assert "plain SGD went from a valid objective of -1.0000 to -1.3000 (-0.3000)" in plain
    assert "online NG-SGD went from a valid objective of -0.9000 to -0.9500 (-0.0500)" in natural
