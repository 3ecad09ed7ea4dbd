from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from natgrad.report.progress import Progress
from natgrad.run.events import read_events
from tests.report.made_runs import MadeRun


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def iteration(number: int, **fields: Any) -> dict[str, Any]:
    event = {
        "event": "iteration",
        "iteration": number,
        "num_iterations": 120,
        "num_jobs": 4,
        "epoch": number / 24,
        "num_epochs": 5.0,
        "learning_rate": 0.00611,
        "objective": -1.2345,
        "samples_per_second": 15_230.0,
    }
    return {**event, **fields}


def diagnostics(number: int, objective: float) -> dict[str, Any]:
    return {"event": "diagnostics", "iteration": number, "valid": {"objective": objective}}


def shown(*events: dict[str, Any], stream: io.StringIO | None = None) -> list[str]:
    stream = io.StringIO() if stream is None else stream
    progress = Progress(stream)
    for event in events:
        progress.handle(event)
    progress.close()
    return stream.getvalue().splitlines()


def test_an_iteration_is_one_line_in_the_promised_style() -> None:
    lines = shown(diagnostics(37, -1.3111), iteration(37))
    assert lines == [
        "iter 37/120, 4 jobs, epoch 1.54/5.0, lr 0.0061, train -1.23, valid -1.31",
    ]


def test_validation_is_left_out_until_known_and_an_old_one_says_whose_it_is() -> None:
    lines = shown(
        iteration(1), diagnostics(0, -4.0), iteration(2), diagnostics(1, -2.0), iteration(3)
    )
    assert [line.split(", train -1.23")[1] for line in lines] == [
        "",
        ", valid(0) -4.00",
        ", valid(1) -2.00",
    ]


def test_late_diagnostics_of_an_earlier_iteration_do_not_replace_newer_ones() -> None:
    (line,) = shown(diagnostics(5, -1.5), diagnostics(4, -1.6), iteration(6))
    assert line.endswith("valid(5) -1.50")


def test_another_run_begins_without_the_validation_of_the_one_before() -> None:
    start = {"event": "start", "num_iterations": 120, "resumed_from": None}
    *_, line = shown(start, diagnostics(120, -1.5), start, iteration(1))
    assert line.endswith("train -1.23")


def test_what_goes_wrong_is_told() -> None:
    lines = shown(
        {"event": "retry", "iteration": 3, "job": 1, "attempt": 1, "reason": "killed"},
        {"event": "warning", "iteration": 3, "message": "job 2 is left out"},
        {"event": "warning", "message": "it is late"},
        {"event": "end", "status": "failed", "message": "no job is left"},
        {"event": "end", "status": "failed", "message": "KeyboardInterrupt"},
    )
    assert lines == [
        "iter 3: job 1 was lost and runs again: killed",
        "warning: iter 3: job 2 is left out",
        "warning: it is late",
        "failed: no job is left",
        "interrupted",
    ]


def test_missing_objectives_are_told_as_unknown() -> None:
    (line,) = shown(iteration(1, objective=None, num_jobs=1))
    assert "1 job, " in line
    assert line.endswith("train unknown")


def test_terminal_has_a_bar_below_the_lines() -> None:
    stream = Terminal()
    begin = {"event": "start", "num_iterations": 120, "resumed_from": 36}
    shown(begin, iteration(37), stream=stream)
    text = stream.getvalue()
    assert "resumed after iteration 36 of 120\n" in text
    assert "iter 37/120, 4 jobs" in text
    last = text.split("\r")[-2 if text.endswith("\r") else -1]
    for part in (" 31% |", "left", "15.2k samples/s", "objective -1.23", "lr 0.0061"):
        assert part in last, last


def test_no_bar_without_a_terminal() -> None:
    text = "\n".join(shown({"event": "start", "num_iterations": 9, "resumed_from": None}))
    assert text == ""


def test_every_event_of_a_run_can_be_handled(tmp_path: Path) -> None:
    run = MadeRun(num_iterations=12, resume_at=6)
    events = read_events(run.write(tmp_path / "run") / "events.jsonl")
    for stream in (io.StringIO(), Terminal()):
        lines = shown(*events, stream=stream)
        assert sum("iter 12/12, 4 jobs" in line for line in lines) == 1
        assert "complete after iter 12/12, train -1.12, valid -1.30" in lines[-1]
