"""The files of a data directory: lines of a key and what belongs to it, checked together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from natgrad.speech.data.problem import Problem, format_problems

__all__ = ["DataError", "Segment", "Tables", "read_tables"]

KIND = "bad data directory"


class DataError(ValueError):
    """A data directory that cannot be used; `problems` are all the reasons."""

    def __init__(self, what: str, problems: Sequence[Problem]) -> None:
        super().__init__(what, problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return f"{self.args[0]}:\n{format_problems(self.problems)}"


class Segment(NamedTuple):
    """A part of a recording; an end of -1 is the recording's end."""

    recording: str
    begin_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class Tables:
    """What the files of a data directory say. Every utterance has a segment and a speaker."""

    paths: dict[str, Path]  # by recording
    segments: dict[str, Segment]  # by utterance
    speakers: dict[str, str]  # by utterance
    texts: dict[str, tuple[str, ...]]  # by utterance
    genders: dict[str, str]  # by speaker


@dataclass(frozen=True)
class _Entry:
    where: str  # the file and the line
    value: str


def read_tables(directory: Path) -> Tables:
    """Read all files of a data directory, or raise a DataError with all that is wrong in them."""
    problems: list[Problem] = []
    tables = _parse(directory, problems)
    if problems:
        raise DataError(f"cannot use the data directory {directory}", problems)
    return tables


def _parse(directory: Path, problems: list[Problem]) -> Tables:
    recordings = _read_table(directory / "wav.scp", problems, is_needed=True)
    paths = _paths(directory, recordings, problems)
    if (directory / "segments").exists():
        utterances = _read_table(directory / "segments", problems, is_needed=True)
        segments = _segments(utterances, recordings, problems)
    else:
        utterances = recordings
        segments = {key: Segment(key, 0.0, -1.0) for key in paths}
    speakers = _read_table(directory / "utt2spk", problems, is_needed=True)
    texts = _read_table(directory / "text", problems)
    _check_speakers(directory, speakers, utterances, problems)
    _refuse_unknown(texts, set(utterances), "utterance", problems)
    speaker_of = {key: entry.value for key, entry in speakers.items()}
    return Tables(
        paths,
        segments,
        speaker_of,
        {key: tuple(entry.value.split()) for key, entry in texts.items()},
        _genders(directory, set(speaker_of.values()), problems),
    )


def _read_table(path: Path, problems: list[Problem], is_needed: bool = False) -> dict[str, _Entry]:
    """Return the lines of a file by their first word; notes what is no such line."""
    try:
        content = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        if is_needed:
            message = "there is no such file, or it was not written to the end"
            remedy = "Prepare the data directory (again): it needs wav.scp and utt2spk at least"
            problems.append(Problem(KIND, str(path), message, remedy))
        return {}
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        message = f"is not in UTF-8 (byte {error.object[error.start]:#04x})"
        problems.append(Problem(KIND, f"{path}:{line}", message, "Convert it to UTF-8"))
        return {}
    if is_needed and not content.strip():
        problems.append(Problem(KIND, str(path), "is empty", "Prepare the data directory again"))
        return {}
    table: dict[str, _Entry] = {}
    for number, text in enumerate(content.removesuffix("\n").split("\n"), start=1):
        key, *rest = text.split(maxsplit=1) or [""]
        entry = _Entry(f"{path}:{number}", rest[0].strip() if rest else "")
        if not key:
            if content:
                _note(problems, entry, "an empty line", "Remove it")
        elif table.setdefault(key, entry) is not entry:
            first = table[key].where.rpartition(":")[2]
            _note(problems, entry, f"{key!r} is in line {first} already", "Remove one of the two")
        elif not entry.value and path.name != "text":
            _note(problems, entry, f"nothing follows {key!r}", "Complete the line")
    return table


def _paths(
    directory: Path, recordings: dict[str, _Entry], problems: list[Problem]
) -> dict[str, Path]:
    for entry in recordings.values():
        if entry.value.endswith("|"):
            message = f"a shell command, which is not run: {entry.value}"
            remedy = "Run the commands once, into WAV or FLAC files, and name those files here"
            _note(problems, entry, message, remedy)
    return {key: directory.absolute() / entry.value for key, entry in recordings.items()}


def _segments(
    table: dict[str, _Entry], recordings: dict[str, _Entry], problems: list[Problem]
) -> dict[str, Segment]:
    segments = {}
    for key, entry in table.items():
        fields = entry.value.split()
        try:
            recording, begin, end = fields[0], float(fields[1]), float(fields[2])
        except (IndexError, ValueError):
            fields = []
        if len(fields) != 3:
            message = f"expected UTTERANCE RECORDING BEGIN END, found {key} {entry.value}"
            _note(problems, entry, message, "Correct it; times are in seconds")
        elif not (0 <= begin < math.inf and (end == -1 or begin < end < math.inf)):
            message = f"from {fields[1]} to {fields[2]} s is no part of a recording"
            _note(problems, entry, message, "It must end after it begins; -1 is the end")
        elif recording not in recordings:
            message = f"there is no recording {recording!r} in wav.scp"
            _note(problems, entry, message, "Add it there, or remove this line")
        else:
            segments[key] = Segment(recording, begin, end)
    return segments


def _check_speakers(
    directory: Path,
    speakers: dict[str, _Entry],
    utterances: dict[str, _Entry],
    problems: list[Problem],
) -> None:
    _refuse_unknown(speakers, set(utterances), "utterance", problems)
    for entry in speakers.values():
        if len(entry.value.split()) > 1:
            _note(problems, entry, f"expected one speaker, found {entry.value!r}", "Correct it")
    if speakers:
        where = str(directory / "utt2spk")
        remedy = "Add its line; if nobody knows who it is, the utterance's key can be the speaker"
        problems += (
            Problem(KIND, where, f"utterance {key!r} has no speaker", remedy)
            for key in utterances
            if key not in speakers
        )


def _genders(directory: Path, speakers: set[str], problems: list[Problem]) -> dict[str, str]:
    table = _read_table(directory / "spk2gender", problems)
    _refuse_unknown(table, speakers, "speaker", problems)
    for entry in table.values():
        if entry.value not in ("f", "m", ""):
            _note(problems, entry, f"expected f or m, found {entry.value!r}", "Correct it")
    return {key: entry.value for key, entry in table.items()}


def _refuse_unknown(
    table: dict[str, _Entry], known: set[str], what: str, problems: list[Problem]
) -> None:
    for key, entry in table.items():
        if known and key not in known:  # if none is known, that has been noted
            message = f"there is no {what} {key!r} in this directory"
            _note(problems, entry, message, f"Remove the line, or add the {what}")


def _note(problems: list[Problem], entry: _Entry, message: str, remedy: str) -> None:
    problems.append(Problem(KIND, entry.where, message, remedy))
