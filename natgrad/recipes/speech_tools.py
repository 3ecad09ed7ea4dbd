"""What the commands `natgrad speech ...` do, each in one call; what they return is to be printed.

Paths are as they were given; errors are exceptions that say what to do. `progress` makes progress
bars: see `natgrad.recipes.workshop`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from natgrad.parallel.engines import open_engine
from natgrad.parallel.resubmit import Resubmitting
from natgrad.recipes.counted_calls import CountedCalls
from natgrad.run.lock import hold
from natgrad.speech.data.audio import AudioError, AudioFormat, read_audio, read_audio_format
from natgrad.speech.data.check import Problem, check, format_problems
from natgrad.speech.data.corpora import PREPARERS
from natgrad.speech.data.directory import DataDirectory, DataError, Utterance
from natgrad.speech.features.extraction import extract
from natgrad.speech.features.kaldi_archive import write_archive
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.score import ScoreError, WordErrorRate, read_hypotheses, score

__all__ = [
    "Extracted",
    "check_directory",
    "extract_features",
    "prepare_corpus",
    "score_files",
]

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]

# Below, starting processes takes longer than what they would do.
FEW_UTTERANCES = 64
SECONDS_PER_HOUR = 3600.0
SHORTEST_IN_HOURS = 180.0  # with two digits behind the point, less would say too little


def prepare_corpus(corpus: str, source: str | Path, out: str | Path) -> str:
    """Make data directories of a corpus in its own layout; return what is in each."""
    if corpus not in PREPARERS:
        raise ValueError(f"there is no corpus {corpus!r}: the corpora are {', '.join(PREPARERS)}")
    prepared = PREPARERS[corpus](_existing(source, "corpus"), Path(out))
    return "\n".join(f"{Path(out) / name}: {_describe(data)}" for name, data in prepared.items())


def check_directory(
    directory: str | Path,
    lexicon: str | Path | None,
    other: str | Path | None,
    num_workers: int | None,
    progress: Progress,
) -> tuple[str, bool]:
    """Check a data directory: return all that is wrong, or what is in it; and whether it is good.

    Args:
        directory: the data directory.
        lexicon: a file; its words must be all that are said.
        other: a data directory that must have no speaker and no recording in common with it.
        num_workers: processes that read recordings.
        progress: makes progress bars.
    """
    known = None if lexicon is None else read_lexicon(lexicon).words
    apart = None if other is None else DataDirectory.read(_existing(other, "data directory"))
    path = _existing(directory, "data directory")
    try:
        data = DataDirectory.read(path)
    except DataError as error:
        return _format_all(error.problems), False
    with (
        progress(f"recordings of {path}", len(data)) as update,
        _workers(data, num_workers) as all_,
    ):
        problems = check(data, known, apart, CountedCalls(all_, update))
    if problems:
        return _format_all(problems), False
    return f"{directory}: {_describe(data)}; nothing is wrong", True


class Extracted(NamedTuple):
    """What was extracted, and why utterances have no features."""

    summary: str
    failures: dict[str, str]


def extract_features(
    directory: str | Path,
    out: str | Path,
    high_resolution: bool,
    sample_rate: int | None,
    kaldi: str | Path | None,
    num_workers: int | None,
    progress: Progress,
) -> Extracted:
    """Compute the MFCC of a data directory's utterances.

    Args:
        directory: the data directory.
        out: the directory of the features.
        high_resolution: 40 cepstra of 40 mel bins, instead of 13 of 23 with the energy.
        sample_rate: recordings are resampled to it; by default it is theirs.
        kaldi: an archive (.ark) to write too, with a script (.scp) beside it.
        num_workers: processes.
        progress: makes progress bars.
    """
    data = DataDirectory.read(_existing(directory, "data directory"))
    if kaldi is not None and Path(kaldi).suffix != ".ark":
        raise ValueError(f"--kaldi is {kaldi}; expected a name that ends on .ark")
    rate = sample_rate or _common_rate(directory, data)
    options = MfccOptions.high_resolution(rate) if high_resolution else MfccOptions(rate)
    with (
        hold(Path(out)),  # or one of two would take away the other's files as left over
        progress(f"features of {directory}", len(data)) as update,
        _workers(data, num_workers) as all_,
    ):
        calls = CountedCalls(all_, update, weigh=lambda batch: len(batch.recordings))
        store, failures = extract(data.utterances.values(), options, out, calls, read_audio)
    if kaldi is not None:
        write_archive(kaldi, store.items(), script=Path(kaldi).with_suffix(".scp"))
    seconds = store.total_frames * options.frame_shift_ms / 1000
    summary = (
        f"{out}: {len(store)} of {_count(len(data), 'utterance')}, {_duration(seconds)}, "
        f"{store.dim} values a frame, of recordings at {rate} Hz"
    )
    return Extracted(summary, failures)


def score_files(reference: str | Path, hypothesis: str | Path, speakers: str | Path | None) -> str:
    """Return the word error rate of a file of recognised words, and that of each speaker.

    Args:
        reference: what was said: lines of an utterance's key and its words.
        hypothesis: what was recognised, in the same form.
        speakers: lines of an utterance's key and its speaker; None, and it is not told by speaker.
    """
    scored = score(read_hypotheses(reference), read_hypotheses(hypothesis))
    text = f"WER {scored.total}, {_interval(scored)}"
    if speakers is None:
        return text
    return f"{text}\n\n{scored.format_speakers(_read_speakers(speakers))}"


def _interval(scored: WordErrorRate) -> str:
    try:
        low, high = scored.confidence_interval()
    except ScoreError as error:  # the rate is one all the same
        return str(error)
    return f"95 % interval {100 * low:.2f} - {100 * high:.2f} %"


def _read_speakers(path: str | Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, names in read_hypotheses(path).items():
        if len(names) != 1:
            raise ScoreError(f"{path}: expected one speaker of {key!r}, found {' '.join(names)!r}")
        found.setdefault(names[0], []).append(key)
    return found


def _existing(path: str | Path, what: str) -> Path:
    if not Path(path).is_dir():
        raise ValueError(f"there is no {what} {path}: expected a directory")
    return Path(path)


def _format_all(problems: list[Problem]) -> str:
    return format_problems(problems, most_of_a_kind=len(problems))


@contextmanager
def _workers(data: DataDirectory, num_workers: int | None) -> Iterator[Executor]:
    few = len(data) < FEW_UTTERANCES
    number = num_workers or (1 if few else os.cpu_count() or 1)
    with open_engine("inline" if number == 1 else "local", number) as engine:
        yield Resubmitting(engine)


def _describe(data: DataDirectory) -> str:
    formats = {path: _format_of(path) for path in {u.path for u in data.utterances.values()}}
    seconds = sum(_seconds(u, formats[u.path]) for u in data.utterances.values())
    num_unread = sum(each is None for each in formats.values())
    unread = f"; {_count(num_unread, 'recording')} cannot be read" if num_unread else ""
    return (
        f"{_count(len(data), 'utterance')}, {_count(len(data.speakers), 'speaker')}, "
        f"{_duration(seconds)}{unread}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    if seconds < SHORTEST_IN_HOURS:
        return f"{seconds / 60:.2f} minutes"
    return f"{seconds / SECONDS_PER_HOUR:.2f} hours"


def _format_of(path: Path) -> AudioFormat | None:
    try:
        return read_audio_format(path)
    except AudioError:  # the utterance is named, with the reason, by what reads its samples
        return None


def _seconds(utterance: Utterance, audio: AudioFormat | None) -> float:
    if audio is None:
        return 0.0
    end = audio.duration_seconds
    if utterance.end_seconds is not None:
        end = min(end, utterance.end_seconds)
    return max(end - (utterance.begin_seconds or 0.0), 0.0)


def _common_rate(directory: str | Path, data: DataDirectory) -> int:
    formats = [_format_of(path) for path in {u.path for u in data.utterances.values()}]
    counts = Counter(each.sample_rate for each in formats if each is not None)
    if not counts:
        raise ValueError(
            f"no recording of {directory} can be read: natgrad speech check {directory} says why"
        )
    if len(counts) > 1:
        rates = ", ".join(f"{count} at {rate} Hz" for rate, count in sorted(counts.items()))
        raise ValueError(
            f"the recordings of {directory} have different sample rates ({rates}): choose one for "
            f"all by --sample-rate; {min(counts)} invents nothing"
        )
    return next(iter(counts))
