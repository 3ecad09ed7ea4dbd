"""CMU's AN4: people who spell names and say numbers; 948 utterances to train on, 130 to test."""

from __future__ import annotations

import re
from pathlib import Path

from natgrad.speech.data.corpora.source_files import find_audio, read_lines, refuse
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.data.problem import Problem

__all__ = ["prepare_an4"]

CORPUS = "AN4"
COPY_AGAIN = "Copy the corpus again; its lists and its recordings belong together"

# "<s> WORDS </s> (NAME)" in the training set's list, "WORDS (NAME)" in the test set's.
TRANSCRIPTION = re.compile(r"(?P<words>.*)\((?P<name>[^()\s]+)\)\s*")
SENTENCE_MARKS = ("<s>", "</s>")


def prepare_an4(source: Path, out: Path) -> dict[str, DataDirectory]:
    """Write the data directories OUT/train and OUT/test from a copy of AN4, and return them.

    The copy has `etc/an4_train.fileids`, `etc/an4_train.transcription`, the same for `test`, and
    the recordings, in any format that `read_audio` reads, below `wav`. An utterance's key begins
    with its speaker ("fash-an251-fash-b"), whose gender is the first letter of the name.
    """
    source, out = Path(source), Path(out)
    prepared = {name: _read_set(source, name) for name in ("train", "test")}
    for name, data in prepared.items():
        data.write(out / name)
    return prepared


def _read_set(source: Path, name: str) -> DataDirectory:
    files = read_lines(CORPUS, source, f"etc/an4_{name}.fileids")
    transcriptions = read_lines(CORPUS, source, f"etc/an4_{name}.transcription")
    path = source / f"etc/an4_{name}.transcription"
    problems = []
    if len(files) != len(transcriptions):
        message = f"has {len(transcriptions)} lines, an4_{name}.fileids has {len(files)}"
        problems.append(Problem("bad list", str(path), message, COPY_AGAIN))
    utterances = []
    for number, (file, line) in enumerate(zip(files, transcriptions, strict=False), start=1):
        result = _read_utterance(source, file.strip(), line, f"{path}:{number}")
        if isinstance(result, Problem):
            problems.append(result)
        else:
            utterances.append(result)
    refuse(CORPUS, source, problems)
    genders = {utterance.speaker: utterance.speaker[0] for utterance in utterances}
    return DataDirectory.of(utterances, genders)


def _read_utterance(source: Path, file: str, line: str, where: str) -> Utterance | Problem:
    *_, speaker, name = ["", "", *file.split("/")]
    found = TRANSCRIPTION.fullmatch(line)
    if found is None or found["name"] != name:
        message = f"expected the words and then ({name}), as the list of files has it; found {line}"
        return Problem("bad list", where, message, COPY_AGAIN)
    if speaker[:1] not in ("f", "m"):
        message = f"expected a speaker whose name begins with f or m, found {speaker!r} in {file}"
        return Problem("bad list", where, message, COPY_AGAIN)
    audio = find_audio(source / "wav" / file)
    if audio is None:
        message = "there is no recording of this name, with any suffix"
        return Problem("missing audio", str(source / "wav" / file), message, COPY_AGAIN)
    words = tuple(word for word in found["words"].split() if word not in SENTENCE_MARKS)
    return Utterance(f"{speaker}-{name}", speaker, audio, text=words)
