"""Stages are done once, in order, and again when what they depend on has changed."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from natgrad.run.events import read_events
from natgrad.run.lock import RunInUseError, hold
from natgrad.run.stages import Stage, StageError, run_stages


class Recorder:
    def __init__(self, **settings: Any) -> None:
        self.done: list[str] = []
        self.settings = settings
        self.fail: str | None = None

    def stages(self) -> list[Stage]:
        return [
            Stage(name, partial(self.do, name), {"value": self.settings.get(name)})
            for name in ("a", "b", "c")
        ]

    def do(self, name: str) -> dict[str, Any]:
        if name == self.fail:
            raise RuntimeError("no")
        self.done.append(name)
        return {"name": name}


def test_stages_run_in_order_and_only_once(tmp_path: Path) -> None:
    recorder = Recorder()
    facts = run_stages(tmp_path, recorder.stages())
    assert recorder.done == ["a", "b", "c"]
    assert facts == {name: {"name": name} for name in "abc"}
    assert run_stages(tmp_path, recorder.stages()) == facts
    assert recorder.done == ["a", "b", "c"]


def test_a_stage_that_failed_is_where_the_next_run_goes_on(tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.fail = "b"
    with pytest.raises(RuntimeError, match="no"):
        run_stages(tmp_path, recorder.stages())
    recorder.fail = None
    run_stages(tmp_path, recorder.stages())
    assert recorder.done == ["a", "b", "c"]


def test_changed_settings_redo_a_stage_and_all_that_follow(tmp_path: Path) -> None:
    run_stages(tmp_path, Recorder(b=1).stages())
    changed = Recorder(b=2)
    run_stages(tmp_path, changed.stages())
    assert changed.done == ["b", "c"]


def test_from_redoes_and_to_stops(tmp_path: Path) -> None:
    recorder = Recorder()
    assert run_stages(tmp_path, recorder.stages(), last="b") == {
        "a": {"name": "a"},
        "b": {"name": "b"},
    }
    run_stages(tmp_path, recorder.stages(), first="b", last="b")
    assert recorder.done == ["a", "b", "b"]
    run_stages(tmp_path, recorder.stages(), first="b")
    assert recorder.done == ["a", "b", "b", "b", "c"]


def test_a_stage_redone_undoes_those_after_it(tmp_path: Path) -> None:
    recorder = Recorder()
    run_stages(tmp_path, recorder.stages())
    run_stages(tmp_path, recorder.stages(), first="a", last="a")
    assert recorder.done == ["a", "b", "c", "a"]
    run_stages(tmp_path, recorder.stages())
    assert recorder.done == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("x", None, "there is no stage 'x': the stages are a, b, c"),
        (None, "x", "there is no stage 'x'"),
        ("c", "a", "stage c comes after stage a"),
        ("c", None, "cannot begin with stage c: a, before it, is not done"),
    ],
)
def test_an_impossible_range_is_refused(
    tmp_path: Path, first: str | None, last: str | None, message: str
) -> None:
    with pytest.raises(StageError, match=message):
        run_stages(tmp_path, Recorder().stages(), first, last)


def test_events_tell_when_stages_begin_and_end(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    run_stages(tmp_path, Recorder().stages(), last="a", on_event=heard.append)
    assert [event["event"] for event in heard] == ["stage", "stage_done"]
    assert heard[1]["facts"] == {"name": "a"}
    assert read_events(tmp_path / "events.jsonl") == heard


def test_two_drivers_do_not_meet(tmp_path: Path) -> None:
    with hold(tmp_path), pytest.raises(RunInUseError, match="in use by process"):
        run_stages(tmp_path, Recorder().stages())


def test_leftovers_are_removed_where_stages_write_and_nowhere_else(tmp_path: Path) -> None:
    half = "model.0123456789abcdef.part"
    files = [tmp_path / place / half for place in ("", "stages", "gmm/mono", "gmm/mono/run", "x")]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")
    run_stages(tmp_path, Recorder().stages(), places=("gmm/*",))
    assert [file.exists() for file in files] == [False, False, False, True, True]


def test_a_stage_that_was_left_out_while_those_before_it_changed_is_done_again(
    tmp_path: Path,
) -> None:
    run_stages(tmp_path, Recorder(a=1).stages())
    without_b = [stage for stage in Recorder(a=2).stages() if stage.name != "b"]
    run_stages(tmp_path, without_b)
    recorder = Recorder(a=2)
    run_stages(tmp_path, recorder.stages())
    assert recorder.done == ["b", "c"]


def test_leftovers_are_forgotten_when_a_stage_is_asked_for_again_and_only_then(
    tmp_path: Path,
) -> None:
    forgotten: list[str] = []
    recorder = Recorder()
    stages = [replace(s, forget=partial(forgotten.append, s.name)) for s in recorder.stages()]
    recorder.fail = "c"
    with pytest.raises(RuntimeError, match="no"):
        run_stages(tmp_path, stages)
    recorder.fail = None
    run_stages(tmp_path, stages)
    assert forgotten == []
    run_stages(tmp_path, stages, first="b", last="b")
    assert forgotten == ["b"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"settings": {}}', "\N{SNOWMAN}"])
def test_a_damaged_marker_names_itself(tmp_path: Path, content: str) -> None:
    run_stages(tmp_path, Recorder().stages())
    (tmp_path / "stages" / "b.json").write_text(content)
    with pytest.raises(StageError, match=r"b\.json is not what a stage writes"):
        run_stages(tmp_path, Recorder().stages())
