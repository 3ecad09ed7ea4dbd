"""The demo in miniature: four runs from the same speech, a table, and nothing done twice."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from natgrad.data import Block, open_examples
from natgrad.recipes import demo
from natgrad.recipes.demo import RUNS, Result
from natgrad.recipes.demo_speech import HELD_OUT_VOICES, TRAINING_VOICES
from natgrad.recipes.train import EngineConfig
from natgrad.run.events import read_events

NUM_UTTERANCES, NUM_HELD_OUT = 60, 6  # so many have every phone


@dataclass
class Demo:
    directory: Path
    runs: list[Path]
    said: list[str] = field(default_factory=list)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def run_demo(directory: Path) -> Demo:
    made = Demo(directory, [])

    def follow(name: str) -> Any:
        return lambda event: made.events.append((name, event))

    made.runs = demo.main(
        directory,
        num_utterances=NUM_UTTERANCES,
        num_held_out=NUM_HELD_OUT,
        num_epochs=1,
        engine=EngineConfig("inline"),
        follow=follow,
        say=made.said.append,
    )
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)  # so little speech is made sooner in this process
        return run_demo(tmp_path_factory.mktemp("demo"))


def test_every_run_is_complete_and_its_events_are_given_on(made: Demo) -> None:
    assert made.runs == [made.directory / run.name for run in RUNS]
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
    (examples,) = made.directory.glob("spoken-*")
    assert set(samples) == {open_examples(examples).num_samples}


def test_validation_is_of_other_speakers(made: Demo) -> None:
    (directory,) = made.directory.glob("spoken-*")
    examples = open_examples(directory)

    def voices(path: Path) -> set[str]:
        return {piece.key.rsplit("-", 2)[0] for piece in Block.read(path).pieces()}

    assert examples.validation is not None
    assert voices(examples.validation.path) == set(HELD_OUT_VOICES)
    for block in examples.blocks:
        assert voices(block.path) <= set(TRAINING_VOICES)


def test_table_has_a_row_per_run(made: Demo) -> None:
    table = made.said[-1].strip().splitlines()
    assert len({len(line) for line in table[: 1 + len(RUNS)]}) == 1  # columns are aligned
    for run, row in zip(RUNS, table[1:], strict=False):
        assert re.fullmatch(rf"{demo.TITLES[run.method]} +{run.num_jobs} .* \d+\.\d%.*", row)


def test_second_call_trains_nothing_and_says_the_same(made: Demo) -> None:
    files = {path: path.stat().st_mtime_ns for path in made.directory.rglob("*.safetensors")}
    again = run_demo(made.directory)
    assert again.said == made.said
    assert again.events == []
    assert files == {
        path: path.stat().st_mtime_ns for path in made.directory.rglob("*.safetensors")
    }


def test_conclusion_tells_what_more_jobs_cost_each_method() -> None:
    valid = (-1.0, -1.3, -0.9, -0.95)
    results = [Result(run, -0.5, v, 0.7, 1.0) for run, v in zip(RUNS, valid, strict=True)]
    plain, natural = demo.conclusion(results).splitlines()
    assert "plain SGD went from a valid objective of -1.0000 to -1.3000 (-0.3000)" in plain
    assert "online NG-SGD went from a valid objective of -0.9000 to -0.9500 (-0.0500)" in natural
