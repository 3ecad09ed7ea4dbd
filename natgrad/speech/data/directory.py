"""Data directories: who said what, and in which recording; Kaldi's files, without its pipes.

| file | a line of it |
| --- | --- |
| `wav.scp` | RECORDING PATH; the path is the rest of the line and may have spaces |
| `segments` | UTTERANCE RECORDING BEGIN END, in seconds, an END of -1 is the recording's end; if the file is not there, every recording is an utterance |
| `text` | UTTERANCE WORDS; may be missing, or lack utterances that were not transcribed |
| `utt2spk` | UTTERANCE SPEAKER |
| `spk2utt` | SPEAKER UTTERANCES; written for Kaldi's sake, not read: `utt2spk` has it all |
| `spk2gender` | SPEAKER f or m; may be missing, or lack speakers |

A relative path in `wav.scp` is relative to the directory that `wav.scp` is in, so that a data
directory means the same wherever one stands, and can be moved along with its recordings. (In Kaldi
it is relative to the current directory.)
"""  # noqa: E501 (rows of a table)

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from natgrad.atomic import write_atomically
from natgrad.speech.data.problem import Problem
from natgrad.speech.data.tables import DataError, Tables, read_tables

__all__ = ["DataDirectory", "DataError", "Utterance"]

WHOLE_RECORDING = -1.0  # as the end of a segment


@dataclass(frozen=True)
class Utterance:
    """Something that was said.

    Args:
        key: its name, different from all others'.
        speaker: who said it.
        path: the recording's file.
        begin_seconds, end_seconds: where in the recording; None is its beginning, or its end.
        text: the words; None if nobody wrote them down.
        recording: the recording's name in `wav.scp`; None if it is the utterance's key.
    """

    key: str
    speaker: str
    path: Path
    begin_seconds: float | None = None
    end_seconds: float | None = None
    text: tuple[str, ...] | None = None
    recording: str | None = None

    def __post_init__(self) -> None:
        # One way to say a thing, so that equal utterances are equal.
        if self.begin_seconds == 0:
            object.__setattr__(self, "begin_seconds", None)
        if self.recording == self.key:
            object.__setattr__(self, "recording", None)


@dataclass(frozen=True)
class DataDirectory:
    """Utterances by their keys, always sorted by them; and the genders ("f", "m") of speakers.

    >>> said = Utterance("anna-1", "anna", Path("/audio/anna 1.wav"), text=("GOOD", "MORNING"))
    >>> data = DataDirectory.of([said], genders={"anna": "f"})
    >>> data.speakers, len(data)
    ({'anna': ['anna-1']}, 1)
    >>> import tempfile
    >>> directory = Path(tempfile.mkdtemp()) / "morning"
    >>> data.write(directory)
    >>> print((directory / "wav.scp").read_text(), end="")
    anna-1 /audio/anna 1.wav
    >>> DataDirectory.read(directory) == data
    True
    """

    utterances: dict[str, Utterance]
    genders: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = _problems_of(self.utterances, self.genders)
        if problems:
            raise DataError("cannot make a data directory of this", problems)
        object.__setattr__(self, "utterances", dict(sorted(self.utterances.items())))
        object.__setattr__(self, "genders", dict(sorted(self.genders.items())))

    @classmethod
    def of(
        cls, utterances: Iterable[Utterance], genders: Mapping[str, str] | None = None
    ) -> DataDirectory:
        """Return the data directory of these utterances, which must have different keys."""
        by_key: dict[str, Utterance] = {}
        problems = []
        for utterance in utterances:
            if by_key.setdefault(utterance.key, utterance) is not utterance:
                message = f"{by_key[utterance.key].path} and {utterance.path} have the same key"
                problems.append(_problem(utterance.key, message, "Give each a key of its own"))
        if problems:
            raise DataError("cannot make a data directory of this", problems)
        return cls(by_key, dict(genders or {}))

    @classmethod
    def read(cls, path: str | Path) -> DataDirectory:
        """Read a data directory; every line that is wrong is named in the DataError.

        Recordings are not opened: see `natgrad.speech.data.check`.
        """
        return _from_tables(read_tables(Path(path)))

    def write(self, path: str | Path) -> None:
        """Write the files of a data directory.

        `wav.scp` is written last, and taken away first if there is another: a directory that was
        not written to its end is refused by `read`. Files that are right already are left alone.
        """
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        contents = _contents(self, directory.absolute())
        changed = [name for name in contents if _content(directory / name) != contents[name]]
        if changed:
            (directory / "wav.scp").unlink(missing_ok=True)
            for name in [*(name for name in changed if name != "wav.scp"), "wav.scp"]:
                content = contents[name]
                if content is None:
                    (directory / name).unlink(missing_ok=True)
                else:
                    write_atomically(directory / name, [content])

    @property
    def speakers(self) -> dict[str, list[str]]:
        """The keys of each speaker's utterances; both in order."""
        found: dict[str, list[str]] = {}
        for key, utterance in self.utterances.items():
            found.setdefault(utterance.speaker, []).append(key)
        return dict(sorted(found.items()))

    def subset(self, keys: Iterable[str]) -> DataDirectory:
        """Return the data directory of some of the utterances."""
        wanted = sorted(set(keys))
        unknown = [key for key in wanted if key not in self.utterances]
        if unknown:
            raise KeyError(
                f"{len(unknown)} of {len(wanted)} keys are not in this data directory of "
                f"{len(self)} utterances, for one {unknown[0]!r}"
            )
        utterances = {key: self.utterances[key] for key in wanted}
        present = {utterance.speaker for utterance in utterances.values()}
        return DataDirectory(
            utterances, {name: sex for name, sex in self.genders.items() if name in present}
        )

    def __len__(self) -> int:
        return len(self.utterances)


def _problem(where: str, message: str, remedy: str) -> Problem:
    return Problem("bad utterance", where, message, remedy)


def _problems_of(utterances: Mapping[str, Utterance], genders: Mapping[str, str]) -> list[Problem]:
    """Return what could not be written to a data directory and read again."""
    found = []
    for key, utterance in utterances.items():
        names = [key, utterance.speaker, *(utterance.text or ())]
        names += [] if utterance.recording is None else [utterance.recording]
        if key != utterance.key:
            found.append(_problem(key, f"its utterance has the key {utterance.key!r}", "Use that"))
        if any(name.split() != [name] for name in names):
            message = f"a name or word is empty or has a space in it, in {names}"
            found.append(_problem(key, message, "Take the spaces out"))
        begin, end = utterance.begin_seconds, utterance.end_seconds
        if not 0 <= (begin or 0.0) < (math.inf if end is None else end):
            message = f"is from {begin} to {end} s of its recording"
            found.append(_problem(key, message, "It must end after it begins, at 0 or later"))
        path = str(utterance.path)
        if path != path.strip() or "\n" in path or path.endswith("|"):
            message = f"wav.scp cannot hold the path {path!r}"
            found.append(_problem(key, message, "Rename the file: no space or | at its ends"))
    speakers = {utterance.speaker for utterance in utterances.values()}
    for speaker, gender in genders.items():
        if gender not in ("f", "m") or speaker not in speakers:
            message = f"the gender of speaker {speaker!r} is {gender!r}"
            remedy = "Give f or m, and only for speakers of these utterances"
            found.append(_problem(speaker, message, remedy))
    return found


def _from_tables(tables: Tables) -> DataDirectory:
    return DataDirectory.of(
        (
            Utterance(
                key=key,
                speaker=tables.speakers[key],
                path=tables.paths[segment.recording],
                begin_seconds=segment.begin_seconds,
                end_seconds=None if segment.end_seconds < 0 else segment.end_seconds,
                text=tables.texts.get(key),
                recording=segment.recording,
            )
            for key, segment in tables.segments.items()
        ),
        tables.genders,
    )


def _contents(data: DataDirectory, directory: Path) -> dict[str, bytes | None]:
    """Return what each file is to hold; None if it is not to be there. `wav.scp` comes last."""
    recordings: dict[str, str] = {}
    segments = []
    for key, utterance in data.utterances.items():
        recording = utterance.recording or key
        path = _path_in(directory, utterance.path)
        if recordings.setdefault(recording, path) != path:
            message = f"the recording {recording!r} is both {recordings[recording]} and {path}"
            remedy = "Give each recording a name of its own"
            raise DataError(f"cannot write {directory}", [_problem(key, message, remedy)])
        begin = float(utterance.begin_seconds or 0)
        end = WHOLE_RECORDING if utterance.end_seconds is None else float(utterance.end_seconds)
        segments.append((key, recording, repr(begin), f"{end!r}" if end >= 0 else "-1"))
    is_segmented = any(line[0] != line[1] or line[2:] != ("0.0", "-1") for line in segments)
    texts = {key: said.text for key, said in data.utterances.items() if said.text is not None}
    return {
        "segments": _lines(segments) if is_segmented else None,
        "text": _lines((key, *text) for key, text in texts.items()) if texts else None,
        "utt2spk": _lines((key, said.speaker) for key, said in data.utterances.items()),
        "spk2utt": _lines((name, *keys) for name, keys in data.speakers.items()),
        "spk2gender": _lines(data.genders.items()) if data.genders else None,
        "wav.scp": _lines(sorted(recordings.items())),
    }


def _path_in(directory: Path, path: Path) -> str:
    absolute = path.absolute()
    inside = absolute.is_relative_to(directory)
    return str(absolute.relative_to(directory) if inside else absolute)


def _lines(rows: Iterable[Iterable[str]]) -> bytes:
    return "".join(" ".join(row) + "\n" for row in rows).encode()


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
