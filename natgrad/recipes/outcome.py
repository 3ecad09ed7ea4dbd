"""What a system's errors are, with settings that were chosen on other utterances."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from natgrad.atomic import write_atomically
from natgrad.run.stages import Facts
from natgrad.speech.data.directory import DataDirectory
from natgrad.speech.recognition import RecognisedShare
from natgrad.speech.score import (
    ScoreError,
    Setting,
    WordErrorRate,
    score,
    search,
    write_hypotheses,
)
from natgrad.speech.symbols import Symbols

__all__ = ["Outcome", "score_settings"]

FRAMES_PER_SECOND = 100.0
Words = tuple[str, ...]
BySetting = dict[tuple[float, float], dict[str, Words]]


@dataclass(frozen=True)
class Outcome:
    """A system's errors on the reported utterances.

    Args:
        scored: its words and errors.
        settings: how they were weighed: one, or all that were best for others than a speaker.
        best_setting, best_rate: what the reported utterances themselves would have chosen. It is
            too good to be reported, and there to be compared with other work that does.
        speakers: the utterances of each.
        real_time_factor: seconds of one core for a second of speech.
        failures: utterances without a result, and why; their words count as deleted.
        num_unfinished: utterances in which no way ended with the last frame.
    """

    scored: WordErrorRate
    settings: tuple[Setting, ...]
    best_setting: Setting
    best_rate: float
    speakers: Mapping[str, Sequence[str]]
    real_time_factor: float
    failures: Mapping[str, str]
    num_unfinished: int

    def write(self, directory: Path) -> Facts:
        """Write words and errors into a directory, and return what the table needs."""
        directory.mkdir(parents=True, exist_ok=True)
        write_hypotheses(directory / "text", self.scored.hypotheses)
        by_speaker = self.scored.format_speakers(self.speakers)
        write_atomically(directory / "speakers.txt", [by_speaker.encode() + b"\n"])
        total, interval = self.scored.total, self.scored.confidence_interval()
        facts: Facts = {
            "wer": total.rate,
            "interval": list(interval),
            "errors": total._asdict(),
            "settings": [setting._asdict() for setting in self.settings],
            "best_on_report": {"wer": self.best_rate, **self.best_setting._asdict()},
            "real_time_factor": round(self.real_time_factor, 4),
            "failures": dict(self.failures),
            "unfinished": self.num_unfinished,
        }
        write_atomically(directory / "result.json", [json.dumps(facts, indent=1).encode()])
        return facts


def score_settings(
    tune: DataDirectory,
    report: DataDirectory,
    heard_in_tune: RecognisedShare,
    heard_in_report: RecognisedShare,
    words: Symbols,
    is_same_set: bool,
) -> Outcome:
    """Choose the setting by the errors on one set, and count those on the other.

    If both are the same, each speaker is scored with the setting that is best for all others.
    """
    said = _references(report)
    heard = _by_setting(heard_in_report, words, said)
    if is_same_set:
        speakers = report.subset(said).speakers
        if len(speakers) < 2:
            raise ScoreError(
                "settings for a speaker are chosen on the others, but only "
                f"{', '.join(speakers)} has said any words: give a set to tune on, or at least two "
                "speakers"
            )
        of_speaker = {
            speaker: _best(said, heard, [key for key in said if key not in set(keys)])
            for speaker, keys in speakers.items()
        }
        chosen = sorted(set(of_speaker.values()))
        hypotheses = {
            key: heard[of_speaker[speaker]][key]
            for speaker, keys in speakers.items()
            for key in keys
        }
    else:
        said_in_tune = _references(tune)
        in_tune = _by_setting(heard_in_tune, words, said_in_tune)
        chosen = [_best(said_in_tune, in_tune, list(said_in_tune))]
        hypotheses = heard[chosen[0]]
    on_report = search(said, heard)
    return Outcome(
        score(said, hypotheses),
        tuple(chosen),
        on_report.best,
        on_report.errors[on_report.best].rate,
        report.speakers,
        heard_in_report.seconds * FRAMES_PER_SECOND / max(heard_in_report.num_frames, 1),
        heard_in_report.failures,
        len(heard_in_report.unfinished),
    )


def _references(data: DataDirectory) -> dict[str, Words]:
    """The words of all utterances that have any, whether or not they were recognised."""
    return {key: u.text for key, u in data.utterances.items() if u.text}


def _by_setting(found: RecognisedShare, words: Symbols, said: Mapping[str, Words]) -> BySetting:
    if not found.words:
        why = next(iter(found.failures.items()), ("none", "there are none"))
        raise ScoreError(
            f"none of {len(said)} utterances was recognised; the first that failed is "
            f"{': '.join(why)}"
        )
    settings = next(iter(found.words.values())).keys()
    return {
        setting: {
            key: tuple(words.name(number) for number in found.words[key][setting])
            if key in found.words
            else ()
            for key in said
        }
        for setting in settings
    }


def _best(said: Mapping[str, Words], heard: BySetting, keys: Sequence[str]) -> Setting:
    return search(
        {key: said[key] for key in keys},
        {setting: {key: each[key] for key in keys} for setting, each in heard.items()},
    ).best
