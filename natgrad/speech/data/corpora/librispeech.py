"""LibriSpeech: people who read books aloud."""

from __future__ import annotations

from pathlib import Path

from natgrad.speech.data.audio import read_audio_format
from natgrad.speech.data.corpora.source_files import find_all_audio, read_lines, refuse
from natgrad.speech.data.corpora.speaker_split import halve_by_speaker, sample_evenly
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.data.problem import Problem

__all__ = ["prepare_librispeech"]

CORPUS = "LibriSpeech"
SAMPLE_SECONDS = 45 * 60.0
SPEAKERS = "SPEAKERS.TXT"
COPY_AGAIN = "Copy the corpus again; its transcripts and its recordings belong together"


def prepare_librispeech(source: Path, out: Path) -> dict[str, DataDirectory]:
    """Write data directories from a copy of LibriSpeech, or of some of its sets; return them.

    | directory | utterances |
    | --- | --- |
    | OUT/train | of all sets that are there and whose names begin with "train-" |
    | OUT/tune_all, OUT/report_all | of two halves of dev-clean: other speakers, as many of each gender, as long |
    | OUT/tune, OUT/report | about 45 minutes of these, evenly from all speakers |

    The copy has `SPEAKERS.TXT`, `SET/READER/CHAPTER/READER-CHAPTER.trans.txt`, and the recordings
    beside that, in any format that `read_audio` reads. A speaker is a reader.
    """  # noqa: E501 (rows of a table)
    source, out = Path(source), Path(out)
    genders = _read_genders(source)
    names = sorted(path.name for path in source.glob("train-*") if path.is_dir())
    if not names:
        message = 'has no set whose name begins with "train-"'
        remedy = "Copy train-clean-5 (or another) of LibriSpeech into this directory"
        refuse(CORPUS, source, [Problem("missing set", str(source), message, remedy)])
    develop = _read_sets(source, ["dev-clean"], genders)
    seconds = {
        key: read_audio_format(utterance.path).duration_seconds
        for key, utterance in develop.utterances.items()
    }
    tune, report = halve_by_speaker(develop, seconds)
    prepared = {
        "train": _read_sets(source, names, genders),
        "tune_all": tune,
        "report_all": report,
        "tune": sample_evenly(tune, seconds, SAMPLE_SECONDS),
        "report": sample_evenly(report, seconds, SAMPLE_SECONDS),
    }
    for name, data in prepared.items():
        data.write(out / name)
    return prepared


def _read_genders(source: Path) -> dict[str, str]:
    """Return "f" or "m" by the reader's number."""
    genders = {}
    problems = []
    for number, line in enumerate(read_lines(CORPUS, source, SPEAKERS), start=1):
        if not line.strip() or line.startswith(";"):
            continue
        reader, gender = ([field.strip() for field in line.split("|")] + [""])[:2]
        if gender not in ("F", "M"):
            message = f"expected READER | F or M | ..., found {line}"
            where = f"{source / SPEAKERS}:{number}"
            problems.append(Problem("bad list", where, message, COPY_AGAIN))
        genders[reader] = gender.lower()
    refuse(CORPUS, source, problems)
    return genders


def _read_sets(source: Path, names: list[str], genders: dict[str, str]) -> DataDirectory:
    utterances: list[Utterance] = []
    problems: list[Problem] = []
    for name in names:
        chapters = sorted(path for path in (source / name).glob("*/*") if path.is_dir())
        if not chapters:
            message = "has no directories READER/CHAPTER in it"
            remedy = f"Copy {name} of LibriSpeech there"
            problems.append(Problem("missing set", str(source / name), message, remedy))
        for chapter in chapters:
            if chapter.parent.name not in genders:
                message = f"does not list reader {chapter.parent.name}, of {chapter}"
                problems.append(Problem("bad list", str(source / SPEAKERS), message, COPY_AGAIN))
            utterances += _read_chapter(source, chapter, problems)
    refuse(CORPUS, source, problems)
    present = {utterance.speaker for utterance in utterances}
    return DataDirectory.of(utterances, {reader: genders[reader] for reader in present})


def _read_chapter(source: Path, chapter: Path, problems: list[Problem]) -> list[Utterance]:
    """Return a chapter's utterances; note each line without recording, recording without line."""
    reader = chapter.parent.name
    transcript = chapter / f"{reader}-{chapter.name}.trans.txt"
    recordings = find_all_audio(chapter)
    utterances = []
    for number, line in enumerate(
        read_lines(CORPUS, source, str(transcript.relative_to(source))), start=1
    ):
        key, *words = line.split() or [""]
        audio = recordings.pop(key, None)
        if not key.startswith(f"{reader}-{chapter.name}-"):
            message = f"expected {reader}-{chapter.name}-NUMBER and words, found {line!r}"
            problems.append(Problem("bad list", f"{transcript}:{number}", message, COPY_AGAIN))
        elif audio is None:
            message = f"there is no recording {key}, with any suffix"
            where = f"{transcript}:{number}"
            problems.append(Problem("missing audio", where, message, COPY_AGAIN))
        else:
            utterances.append(Utterance(key, reader, audio, text=tuple(words)))
    for recording in recordings.values():
        message = f"is not in {transcript.name}"
        problems.append(Problem("missing transcript", str(recording), message, COPY_AGAIN))
    return utterances
