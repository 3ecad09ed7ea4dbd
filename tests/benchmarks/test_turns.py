"""Runs that wait between their iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.turns import RunInTurns

OnEvent = Callable[[dict[str, Any]], None]


def train_of(name: str, done: list[str], num_iterations: int = 3) -> Callable[[OnEvent], None]:
    def train(on_event: OnEvent) -> None:
        try:
            for number in range(num_iterations):
                done.append(f"{name}{number}")
                on_event({"event": "job"})
                on_event({"event": "iteration", "samples": 1000})
        finally:
            done.append(f"{name} ends")

    return train


def test_runs_go_on_only_when_asked_to() -> None:
    done: list[str] = []
    with RunInTurns(train_of("a", done)) as a, RunInTurns(train_of("b", done)) as b:
        assert done == []
        assert a.samples_per_second() > 0.0
        assert b.samples_per_second() > 0.0
        assert b.samples_per_second() > 0.0
        assert done == ["a0", "b0", "b1"]
        assert a.samples_per_second() > 0.0
        assert done[3:] == ["a1"]
    # Both were ended where they stood: the one opened last is closed first.
    assert done[4:] == ["b ends", "a ends"]


def test_run_that_was_never_asked_never_begins() -> None:
    done: list[str] = []
    with RunInTurns(train_of("a", done)):
        pass
    assert done == []


def test_error_of_a_run_is_raised_where_it_is_asked_to_go_on() -> None:
    def train(on_event: OnEvent) -> None:
        on_event({"event": "iteration", "samples": 1})
        raise OSError("the disk is full")

    with RunInTurns(train) as run:
        run.samples_per_second()
        for _ in range(2):
            with pytest.raises(OSError, match="the disk is full"):
                run.samples_per_second()


def test_run_that_is_over_says_so() -> None:
    with RunInTurns(train_of("a", [], num_iterations=1)) as run:
        run.samples_per_second()
        for _ in range(2):
            with pytest.raises(RuntimeError, match="no further iteration"):
                run.samples_per_second()
