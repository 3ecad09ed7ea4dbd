"""Lhotse's manifests of recordings and supervisions, to data directories and back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from natgrad.atomic import write_atomically
from natgrad.speech.data.audio import read_audio_format
from natgrad.speech.data.directory import DataDirectory, DataError, Utterance
from natgrad.speech.data.problem import Problem

__all__ = ["read_lhotse", "write_lhotse"]

KIND = "bad manifest"
SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
GENDERS = {"f": "f", "female": "f", "m": "m", "male": "m"}
LHOTSE_DIGITS = 8  # Lhotse rounds seconds to so many decimals


def read_lhotse(recordings: str | Path, supervisions: str | Path) -> DataDirectory:
    """Return the data directory of two manifests: every supervision is an utterance.

    A supervision needs a speaker, a recording needs to be a file of one channel (relative paths
    are relative to the current directory, as in Lhotse). What a data directory has no place for
    is left out: languages, alignments, custom fields, genders that are neither female nor male.
    """
    recording_of = {item.id: item for item in _load(recordings, "RecordingSet")}
    problems: list[Problem] = []
    utterances = []
    genders: dict[str, str] = {}
    for supervision in _load(supervisions, "SupervisionSet"):
        where = f"{supervisions}: {supervision.id}"
        recording = recording_of.get(supervision.recording_id)
        if recording is None:
            message = f"there is no recording {supervision.recording_id!r} in {recordings}"
            problems.append(Problem(KIND, where, message, "Give the manifest that has it"))
        elif reason := _reason_against(recording, supervision):
            problems.append(Problem(KIND, where, *reason))
        else:
            utterances.append(_to_utterance(recording, supervision))
            gender = GENDERS.get((supervision.gender or "").lower())
            if gender and genders.setdefault(supervision.speaker, gender) != gender:
                message = f"speaker {supervision.speaker!r} is both f and m"
                problems.append(Problem(KIND, where, message, "Correct one of the two"))
    if problems:
        raise DataError(f"cannot use the manifests {recordings} and {supervisions}", problems)
    return DataDirectory.of(utterances, genders)


def write_lhotse(data: DataDirectory, out: str | Path) -> None:
    """Write OUT/recordings.jsonl.gz and OUT/supervisions.jsonl.gz; paths in them are absolute."""
    lhotse = _import_lhotse()
    recordings: dict[str, Any] = {}
    supervisions = []
    for key, utterance in data.utterances.items():
        name = utterance.recording or key
        if name not in recordings:
            recordings[name] = _to_recording(lhotse, name, utterance.path.absolute())
        elif recordings[name].sources[0].source != str(utterance.path.absolute()):
            message = f"the recording {name!r} is another file for another utterance"
            remedy = "Give each recording a name of its own"
            raise DataError(f"cannot write {out}", [Problem(KIND, key, message, remedy)])
        gender = data.genders.get(utterance.speaker)
        supervisions.append(_to_supervision(lhotse, utterance, recordings[name], gender))
    Path(out).mkdir(parents=True, exist_ok=True)
    _write(Path(out) / "recordings.jsonl.gz", recordings.values())
    _write(Path(out) / "supervisions.jsonl.gz", supervisions)


def _import_lhotse() -> ModuleType:
    try:
        import lhotse
    except ModuleNotFoundError as error:
        if error.name != "lhotse":
            raise
        raise ModuleNotFoundError(
            "Lhotse's manifests need lhotse, not installed here: "
            "run  pip install 'natgrad[lhotse]'",
            name="lhotse",
        ) from error
    module: ModuleType = lhotse
    return module


def _load(path: str | Path, kind: str) -> Iterable[Any]:
    lhotse = _import_lhotse()
    # Lhotse would take other strings for commands and addresses; here they are files.
    if not str(path).endswith(SUFFIXES) or not Path(path).is_file():
        message = f"is not a file whose name ends in {', '.join(SUFFIXES)}"
        problem = Problem(KIND, str(path), message, "Give a manifest that Lhotse wrote")
        raise DataError(f"cannot use the manifest {path}", [problem])
    try:
        items: Iterable[Any] = lhotse.load_manifest(Path(path), getattr(lhotse, kind))
    except Exception as error:  # whatever it is, the file is named
        message = f"Lhotse cannot read it as a {kind} ({error})"
        problem = Problem(KIND, str(path), message, "Give recordings first, then supervisions")
        raise DataError(f"cannot use the manifest {path}", [problem]) from error
    return items


def _reason_against(recording: Any, supervision: Any) -> tuple[str, str] | None:
    """Return why a supervision cannot be an utterance, and the remedy; None if it can."""
    sources = recording.sources
    if len(sources) != 1 or sources[0].type != "file":
        kinds = ", ".join(source.type for source in sources)
        return f"its recording is in {len(sources)} sources ({kinds})", "Save it as one file"
    if len(sources[0].channels) != 1:
        return f"its recording has channels {sources[0].channels}", "Save each to its own file"
    if recording.transforms:
        return "its recording is transformed when it is read", "Save it as it is to be heard"
    if not supervision.speaker:
        return (
            "it has no speaker",
            "Set one; if nobody knows who it is, the supervision's id will do",
        )
    return None


def _to_utterance(recording: Any, supervision: Any) -> Utterance:
    to_end = abs(supervision.end - recording.duration) < 0.5 / recording.sampling_rate
    return Utterance(
        key=supervision.id,
        speaker=supervision.speaker,
        path=Path(recording.sources[0].source).absolute(),
        begin_seconds=supervision.start,
        end_seconds=None if to_end else supervision.end,
        text=None if supervision.text is None else tuple(supervision.text.split()),
        recording=recording.id,
    )


def _to_recording(lhotse: ModuleType, name: str, path: Path) -> Any:
    found = read_audio_format(path)
    source = lhotse.AudioSource(type="file", channels=[0], source=str(path))
    return lhotse.Recording(
        id=name,
        sources=[source],
        sampling_rate=found.sample_rate,
        num_samples=found.num_samples,
        duration=found.duration_seconds,
    )


def _to_supervision(
    lhotse: ModuleType, utterance: Utterance, recording: Any, gender: str | None
) -> Any:
    begin = utterance.begin_seconds or 0.0
    end = recording.duration
    if utterance.end_seconds is not None:
        end = min(end, utterance.end_seconds)
    return lhotse.SupervisionSegment(
        id=utterance.key,
        recording_id=recording.id,
        start=begin,
        duration=round(end - begin, LHOTSE_DIGITS),
        text=None if utterance.text is None else " ".join(utterance.text),
        speaker=utterance.speaker,
        gender=gender,
    )


def _write(path: Path, items: Iterable[Any]) -> None:
    lines = "".join(json.dumps(item.to_dict(), ensure_ascii=False) + "\n" for item in items)
    write_atomically(path, [gzip.compress(lines.encode(), mtime=0)])
