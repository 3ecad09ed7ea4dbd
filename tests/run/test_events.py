from __future__ import annotations

import math
from pathlib import Path

import pytest

from natgrad.run.events import EventLog, read_events


def test_torn_last_line_is_not_read_and_is_cut_off_by_the_next_writer(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("warning", message="whole")
    with open(log.path, "a") as file:
        file.write('{"event": "warning", "mess')
    assert [event["message"] for event in read_events(log.path)] == ["whole"]
    EventLog(log.path).append("warning", message="next")
    assert [event["message"] for event in read_events(log.path)] == ["whole", "next"]


def test_line_that_is_no_event_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text('{"event": "end"}\nnonsense\n')
    with pytest.raises(ValueError, match=r"line 2 of .*events\.jsonl is not an event"):
        read_events(tmp_path / "events.jsonl")


def test_number_that_json_does_not_know_is_refused(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    with pytest.raises(ValueError, match="not JSON compliant"):
        log.append("iteration", objective=math.nan)
    assert not log.path.exists()
