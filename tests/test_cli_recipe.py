"""The command `natgrad recipe`: stages as they go, the table, the page, and how to go on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes import speech_commands
from natgrad.recipes.an4 import an4_config
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts
from natgrad.speech.data.directory import DataDirectory, Utterance
from tests.report.made_runs import MadeRun
from tests.speech.recordings import babble, write_recording

Run = Callable[..., dict[str, Facts]]
ERRORS = {"substitutions": 2, "insertions": 1, "deletions": 0, "num_words": 50}
MONO = {
    "wer": 0.06,
    "interval": [0.02, 0.1],
    "errors": ERRORS,
    "settings": [{"lm_weight": 9.0, "word_penalty": 0.0}],
    "real_time_factor": 0.1,
}


class StandIn:
    """A recipe whose run is a function of the test's: the command must follow and tell."""

    def __init__(self, run: Run) -> None:
        self.run = run


def use(monkeypatch: pytest.MonkeyPatch, recipe: Any) -> None:
    monkeypatch.setitem(speech_commands.RECIPES, "an4", lambda data: recipe)


def begin(on_event: Any, name: str = "mono", number: int = 4) -> None:
    on_event({"event": "stage", "name": name, "number": number, "num_stages": 16})


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["recipe", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def real_recipe(source: Path) -> SpeechRecipe:
    """Real stages, of a corpus of two utterances in which one is broken."""

    def prepare_data(shop: Workshop) -> Facts:
        for name in shop.sets:
            paths = {key: source / f"{name}-{key}.wav" for key in ("good", "short")}
            write_recording(paths["good"])
            write_recording(paths["short"], babble(0.01))
            data = DataDirectory.of(
                Utterance(key, "anna", path, text=("YES",)) for key, path in paths.items()
            )
            data.write(shop.files.data(name))
        return {"problems": ["anna: is in both sets. Move her"]}

    def prepare_language(shop: Workshop) -> Facts:
        return {"words": 1}

    return SpeechRecipe(an4_config(), prepare_data, prepare_language, {"source": str(source)})


def test_stages_are_told_with_all_that_failed_and_are_not_done_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, real_recipe(tmp_path))
    out = tmp_path / "out"
    command = ("an4", "-o", out, "--engine", "inline", "--to", "features")
    code, said, error = told(capsys, *command)
    assert (code, said) == (0, "")
    lines = error.splitlines()
    assert [line for line in lines if line.startswith("stage")] == [
        "stage 1/22: data",
        "stage 2/22: language",
        "stage 3/22: features",
    ]
    assert "  problem: anna: is in both sets. Move her" in lines
    assert any(line.endswith("; words 1") for line in lines)
    assert any(line.endswith("test: utterances 1, hours 0") for line in lines)
    failed = [line for line in lines if line.startswith("  failed in ")]
    assert [line.partition(": the recording has 160")[0] for line in failed] == [
        "  failed in train: short",
        "  failed in test: short",
    ]
    assert told(capsys, *command) == (0, "", "")
    code, _, error = told(capsys, *command, "--from", "features")
    assert code == 0
    assert error.startswith("stages 1 to 2 are done\nstage 3/22: features\n")


def test_recipe_ends_on_the_table_and_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def run(
        out: str,
        engine: EngineConfig,
        progress: Any,
        first: str | None,
        last: str | None,
        on_event: Any,
        follow_training: Any,
    ) -> dict[str, Facts]:
        calls.append((out, engine, first, last))
        begin(on_event, "dnn", 13)
        with progress("training", 3) as update:
            update(3)
        follow_training({"event": "warning", "message": "it is late"})
        done = {"event": "stage_done", "name": "table", "seconds": 0.1, "facts": {"mono": MONO}}
        on_event(done)
        MadeRun(num_iterations=2).write(Path(out) / "dnn/run")
        return {"dnn": {}, "table": {"mono": MONO}}

    use(monkeypatch, StandIn(run))
    engine = ["--engine", "slurm", "--workers", "3", "--engine-option", "queue=long"]
    code, said, error = told(
        capsys, "an4", "--data", tmp_path, "--out", tmp_path, *engine, "--from", "lda"
    )
    assert code == 0
    expected = EngineConfig("slurm", 3, options={"queue": "long"})
    assert calls == [(str(tmp_path), expected, "lda", None)]
    assert error.splitlines() == [
        "stages 1 to 12 are done",
        "stage 13/16: dnn",
        "warning: it is late",
        "  100 ms",
    ]
    assert "| monophones | 6.00 % | 2.0 - 10.0 |" in said
    page = tmp_path / "report.html"
    assert said.endswith(f"\nThe network's training in pictures: {page}\n")
    assert "<svg" in page.read_text()


@pytest.mark.parametrize(
    ("error", "has_begun", "code", "text"),
    [
        (ValueError("an4.dic is broken"), True, 1, "stage mono: an4.dic is broken"),
        (OSError(28, "No space left", "f"), True, 1, "stage mono: f: No space left"),
        (RuntimeError("no job is left"), True, 1, "stage mono: no job is left"),
        (ValueError("there is no stage 'x'"), False, 2, "there is no stage 'x'"),
        (RuntimeError("it is in use"), False, 1, "it is in use"),
    ],
)
def test_failure_is_one_line_that_names_the_stage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    has_begun: bool,
    code: int,
    text: str,
) -> None:
    def run(out: str, *arguments: Any) -> dict[str, Facts]:
        if has_begun:
            begin(arguments[4])
        raise error

    use(monkeypatch, StandIn(run))
    found, _, said = told(capsys, "an4", "--out", tmp_path)
    assert found == code
    assert said.splitlines()[-1] == f"natgrad: {text}"
    assert len(said.splitlines()) == (3 if has_begun else 1)


@pytest.mark.parametrize(
    ("has_begun", "given", "expected"),
    [
        (True, ["--from", "sat"], ["recipe", "an4", "--out", "o"]),
        (True, ["--from=sat", "--to", "dnn"], ["recipe", "an4", "--to", "dnn", "--out", "o"]),
        (True, [], ["recipe", "an4", "--out", "o"]),
        (False, ["--from", "sat"], ["recipe", "an4", "--from", "sat", "--out", "o"]),
    ],
)
def test_interrupted_recipe_says_how_to_go_on_without_doing_again_what_is_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    has_begun: bool,
    given: list[str],
    expected: list[str],
) -> None:
    def run(out: str, *arguments: Any) -> dict[str, Facts]:
        if has_begun:
            begin(arguments[4])
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    use(monkeypatch, StandIn(run))
    code, _, error = told(capsys, "an4", *given, "--out", "o")
    assert code == 130
    assert error.splitlines()[-1] == f"interrupted; to go on: natgrad {' '.join(expected)}"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["an5", "-o", "o"], "there is no recipe 'an5': the recipes are an4, librispeech, demo"),
        (["an4", "-o", "o"], "the recipe an4 needs --data DIR, a copy of its corpus"),
        (["librispeech", "-o", "o"], "the recipe librispeech needs --data DIR"),
        (["demo", "--data", ".", "-o", "o"], "the recipe demo takes no --data"),
        (["an4", "--data", "gone", "-o", "o"], "there is no directory gone"),
        (["an4", "--data", "."], "give --out DIR"),
        (["an4", "--data", ".", "-o", "o", "--engine", "x"], "there is no engine 'x'"),
        (["an4", "--data", ".", "-o", "o", "--engine-option", "x"], "expected KEY=VALUE"),
        (["an4", "--data", ".", "-o", "o", "--engine-option", "x=1"], "local has no option x"),
        (["an4", "--data", ".", "-o", "o", "--from", "x"], "there is no stage 'x': the stages are"),
        (["an4", "--data", ".", "-o", "o", "--from", "sat"], "cannot begin with stage sat"),
        (["an4", "--data", ".", "-o", "o", "--from", "lda", "--to", "tri"], "lda comes after"),
    ],
)
def test_wrong_request_is_one_line_and_exits_with_2(
    arguments: list[str],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = told(capsys, *arguments)
    assert code == 2
    assert error.startswith("natgrad: ")
    assert text in error
    assert error.count("\n") == 1


def test_corpus_that_is_none_fails_in_its_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("an4", "--data", tmp_path, "-o", tmp_path / "out", "--engine", "inline")
    code, _, error = told(capsys, *command)
    assert code == 1
    assert f"natgrad: stage data: {tmp_path} is not a copy of AN4" in error


@pytest.mark.parametrize("name", ["an4", "librispeech", "demo"])
def test_stages_of_every_recipe_are_listed_without_its_data(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, _ = told(capsys, name, "--stages")
    assert code == 0
    rows = [line.split(maxsplit=2) for line in said.splitlines()]
    assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
    names = [row[1] for row in rows]
    assert names[:4] == ["data", "language", "features", "mono"]
    assert names[-1] == "table"
    assert all(len(row) == 3 for row in rows)


def test_marker_of_a_stage_has_the_failures_that_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, real_recipe(tmp_path))
    assert (
        told(capsys, "an4", "-o", tmp_path / "o", "--engine", "inline", "--to", "features")[0] == 0
    )
    marker = json.loads((tmp_path / "o/stages/features.json").read_bytes())
    assert list(marker["facts"]["train"]["failures"]) == ["short"]
