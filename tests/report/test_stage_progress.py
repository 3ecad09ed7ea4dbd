from __future__ import annotations

import io
from typing import Any

from natgrad.report.stage_progress import StageProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stage(name: str, number: int) -> dict[str, Any]:
    return {"event": "stage", "name": name, "number": number, "num_stages": 16}


def done(name: str, **facts: Any) -> dict[str, Any]:
    return {"event": "stage_done", "name": name, "seconds": 83.0, "facts": facts}


def shown(*events: dict[str, Any]) -> list[str]:
    stream = io.StringIO()
    progress = StageProgress(stream)
    for event in events:
        progress.handle(event)
    return stream.getvalue().splitlines()


def test_stages_that_were_done_before_are_said_once() -> None:
    assert shown(stage("lda", 6), stage("sat", 7)) == [
        "stages 1 to 5 are done",
        "stage 6/16: lda",
        "stage 7/16: sat",
    ]
    assert shown(stage("language", 2))[0] == "stage 1 is done"
    assert shown(stage("data", 1)) == ["stage 1/16: data"]


def test_failures_and_problems_are_named_with_their_reason() -> None:
    lines = shown(
        done("mono", pdfs=102, failures={"u1": "is too short", "u2": "no path ends"}),
        done("data", problems=["u3: is silent. Record it again"]),
        done("decode-sat", sat={"wer": 0.1, "interval": [0, 0.2], "failures": {"u4": "no frames"}}),
    )
    assert lines == [
        "  1 min 23 s; pdfs 102",
        "  failed: u1: is too short",
        "  failed: u2: no path ends",
        "  1 min 23 s",
        "  problem: u3: is silent. Record it again",
        "  1 min 23 s; sat: WER 10.00 % (0.0 - 20.0)",
        "  failed in sat: u4: no frames",
    ]


def test_more_failures_than_fit_are_counted_and_their_file_is_named() -> None:
    lines = shown(done("features", train={"failures": {f"u{n}": "gone" for n in range(33)}}))
    assert len(lines) == 22
    assert lines[-1] == "  ... and 13 more: all of them are in stages/features.json"


def test_results_are_not_told_again_by_the_table() -> None:
    assert shown(done("table", mono={"wer": 0.1, "failures": {"u": "x"}})) == ["  1 min 23 s"]


def test_long_lists_are_cut_and_say_so() -> None:
    (line,) = shown(done("language", unknown=[f"W{n}" for n in range(9)], empty=[]))
    assert line.endswith("; unknown W0 W1 W2 W3 W4 W5 W6 W7 ... (9 in all), empty none")


def test_bar_is_drawn_on_a_terminal_only_and_lines_go_above_it() -> None:
    for stream in (io.StringIO(), Terminal()):
        progress = StageProgress(stream)
        with progress.bar("mono", 40) as update:
            update(20)
            progress.handle(stage("mono", 1))
            update(20)
        assert ("50%" in stream.getvalue()) == stream.isatty()
        assert "stage 1/16: mono\n" in stream.getvalue()
    assert stream.getvalue().endswith("\r")


def test_bars_are_closed_after_an_error() -> None:
    stream = Terminal()
    progress = StageProgress(stream)
    try:
        with progress.bar("mono", 40):
            raise ValueError
    except ValueError:
        progress.close()
    progress.handle(stage("tri", 5))
    assert stream.getvalue().endswith("stage 5/16: tri\n")


def test_training_is_told_as_by_its_own_command() -> None:
    stream = io.StringIO()
    progress = StageProgress(stream)
    progress.handle_training({"event": "warning", "iteration": 3, "message": "it is late"})
    assert stream.getvalue() == "warning: iter 3: it is late\n"
