"""Find what is wrong with a data directory, and say what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from os.path import realpath

from natgrad.speech.data.audio import Audio, AudioError, read_audio
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.data.problem import Problem, format_problems
from natgrad.speech.data.sound_level import (
    clipped_share,
    is_steady,
    loudest_decibels,
    shorter_than_a_frame,
)

__all__ = ["Problem", "check", "format_problems"]

LARGEST_CLIPPED_SHARE = 0.001
SILENCE_DECIBELS = -60.0
UTTERANCES_PER_TASK = 32

LEAVE_OUT = "Record it again, or take the utterance out of the directory"


def check(
    directory: DataDirectory,
    lexicon_words: Collection[str] | None = None,
    other: DataDirectory | None = None,
    executor: Executor | None = None,
) -> list[Problem]:
    """Return all that is wrong; an empty list if nothing is. Every recording is decoded.

    Args:
        directory: the data directory.
        lexicon_words: the words that have a pronunciation; None, and words are not looked at.
        other: a data directory that must have no speaker and no recording in common with it, as
            a test set with its training set.
        executor: reads recordings in parallel; None, and they are read one after another.
    """
    problems = [*_check_texts(directory)]
    if lexicon_words is not None:
        problems += _check_words(directory, lexicon_words)
    if other is not None:
        problems += _check_apart(directory, other)
    utterances = list(directory.utterances.values())
    if executor is None:
        findings: Iterable[_Finding] = map(_listen, utterances)
    else:
        findings = executor.map(_listen, utterances, chunksize=UTTERANCES_PER_TASK)
    heard = dict(zip(directory.utterances, findings, strict=True))
    problems += (finding.problem for finding in heard.values() if finding.problem)
    problems += _check_rates({key: finding.sample_rate for key, finding in heard.items()})
    return problems


def _check_texts(directory: DataDirectory) -> Iterator[Problem]:
    if not directory.utterances:
        yield Problem("no utterances", "wav.scp", "nothing is in it", "Prepare the data again")
    for key, utterance in directory.utterances.items():
        if utterance.text is None:
            remedy = "Add its line to text, or take the utterance out of the directory"
            yield Problem("untranscribed utterance", key, "has no line in text", remedy)
        elif not utterance.text:
            remedy = "Write its words in text, or take the utterance out of the directory"
            yield Problem("empty text", key, "its line in text has no words", remedy)


def _check_words(directory: DataDirectory, lexicon_words: Collection[str]) -> Iterator[Problem]:
    known = frozenset(lexicon_words)
    times: Counter[str] = Counter()
    first: dict[str, str] = {}
    for key, utterance in directory.utterances.items():
        for word in utterance.text or ():
            if word not in known:
                times[word] += 1
                first.setdefault(word, key)
    remedy = "Add pronunciations to the lexicon (a grapheme-to-phoneme model can), or mend the text"
    for word, count in times.most_common():
        message = f"{word!r} is not in the lexicon" + (f"; {count} times in all" * (count > 1))
        yield Problem("word not in the lexicon", first[word], message, remedy)


def _check_apart(directory: DataDirectory, other: DataDirectory) -> Iterator[Problem]:
    others = other.speakers
    remedy = "Move all utterances of a speaker to one of the sets: else results look too good"
    for speaker, keys in directory.speakers.items():
        if speaker in others:
            message = (
                f"speaks here ({keys[0]}, ...) and in the other set ({others[speaker][0]}, ...)"
            )
            yield Problem("speaker in both sets", speaker, message, remedy)
    # Whatever the way to it: paths relative to two directories differ even if the file is the same.
    keys_of_files = {realpath(said.path): key for key, said in other.utterances.items()}
    remedy = "Take it out of one of the sets: else results look too good"
    for key, utterance in directory.utterances.items():
        if same := keys_of_files.get(realpath(utterance.path)):
            message = f"{utterance.path} is {same} of the other set, too"
            yield Problem("recording in both sets", key, message, remedy)


def _check_rates(rates: dict[str, int | None]) -> Iterator[Problem]:
    counts = Counter(rate for rate in rates.values() if rate is not None)
    if len(counts) < 2:
        return
    usual, count = counts.most_common(1)[0]
    remedy = "Use all at the lowest of the rates, or keep sets of different rates apart"
    for key, rate in rates.items():
        if rate not in (None, usual):
            message = f"is at {rate} Hz, but {count} of {len(rates)} utterances at {usual} Hz"
            yield Problem("other sample rate", key, message, remedy)


@dataclass(frozen=True)
class _Finding:
    sample_rate: int | None  # None if the recording cannot be read
    problem: Problem | None


def _listen(utterance: Utterance) -> _Finding:
    """Decode an utterance and judge its samples; where several are wrong, the first counts."""
    try:
        audio = read_audio(
            utterance.path,
            begin_seconds=utterance.begin_seconds,
            end_seconds=utterance.end_seconds,
        )
    except AudioError as error:
        found = error.problem
        message = f"{found.where} {found.message}"
        return _Finding(None, replace(found, where=utterance.key, message=message))
    for kind, judge, remedy in JUDGES:
        if message := judge(audio):
            problem = Problem(kind, utterance.key, f"{utterance.path} {message}", remedy)
            return _Finding(audio.sample_rate, problem)
    return _Finding(audio.sample_rate, None)


def _is_short(audio: Audio) -> str:
    seconds = audio.duration_seconds
    return f"lasts {seconds * 1000:.1f} ms, a frame 25 ms" if shorter_than_a_frame(audio) else ""


def _is_silent(audio: Audio) -> str:
    level = loudest_decibels(audio)
    if level < SILENCE_DECIBELS:
        return f"is nowhere louder than {level:.0f} dB, where full scale is 0"
    return "has the same level all along: noise, a tone or a hum" if is_steady(audio) else ""


def _is_clipped(audio: Audio) -> str:
    share = clipped_share(audio.samples)
    return f"has {share:.2%} of its samples clipped" if share > LARGEST_CLIPPED_SHARE else ""


JUDGES: tuple[tuple[str, Callable[[Audio], str], str], ...] = (
    ("shorter than a frame", _is_short, LEAVE_OUT),
    ("silence only", _is_silent, LEAVE_OUT),
    ("clipped audio", _is_clipped, "Record it again at a lower level; if few are so, let them be"),
)
