from __future__ import annotations

import json
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


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"[1, 2]", r"\[1, 2\]"),
        (b"7", "7"),
        (b"null", "null"),
        (b'{"time": 1.0}', "time"),
        (b'{"event": "\xff"}', r"xff"),
        (b"", "''"),
    ],
)
def test_damaged_line_is_refused_with_its_file_and_what_to_do(
    tmp_path: Path, line: bytes, found: str
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "start"}\n' + line + b'\n{"event": "end"}\n')
    message = rf"line 2 of {path} is not an event: .*JSON object.*{found}.*remove that line"
    with pytest.raises(ValueError, match=message):
        read_events(path)


def test_text_of_any_language_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event": "warning", "message": "gr\u00fc\u00df \u2028 Gott"}\n', "utf-8")
    assert read_events(path)[0]["message"] == "gr\u00fc\u00df \u2028 Gott"


def test_numbers_that_json_does_not_know_are_null_at_any_depth(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    log = EventLog(tmp_path / "events.jsonl", clock=lambda: 1.5)
    given = {"objective": math.nan, "valid": {"losses": [1.0, -math.inf, (math.inf, 2)]}}
    returned = log.append("iteration", **given)
    written = json.loads(log.path.read_text(), parse_constant=refuse)
    values = {"objective": None, "valid": {"losses": [1.0, None, [None, 2]]}}
    assert written == {"time": 1.5, "event": "iteration", **values}
    assert json.loads(json.dumps(returned)) == written
    assert math.isnan(given["objective"])  # type: ignore[arg-type]  # the caller's is as it was
