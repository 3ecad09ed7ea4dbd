"""Measurements: done once, in order, resumed where they were, and recorded with their origin."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.reproduce.conduct import conduct
from natgrad.recipes.reproduce.experiment import Bench, Found, Measurement
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
            for place in (bench.directory, bench.directory / "words"):
                place.mkdir(exist_ok=True)
                (place / "half.0123456789abcdef.part").write_text("half")
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
