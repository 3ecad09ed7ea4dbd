"""Scoring: how many words a system got wrong, how sure that is, and which settings to take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import kaldialign

from natgrad.atomic import write_atomically

__all__ = [
    "Comparison",
    "Errors",
    "Interval",
    "ScoreError",
    "Search",
    "Setting",
    "WordErrorRate",
    "compare",
    "count_errors",
    "read_hypotheses",
    "score",
    "search",
    "write_hypotheses",
]

Words = Sequence[str]
NUM_REPLICATIONS = 10_000


class ScoreError(ValueError):
    """What was recognised and what was said do not belong together, or a file of it is bad."""


class Errors(NamedTuple):
    """How many words were taken for others, put in and left out, of how many that were said.

    >>> Errors(1, 0, 2, 10) + Errors(0, 1, 0, 10)
    Errors(substitutions=1, insertions=1, deletions=2, num_words=20)
    >>> print(Errors(1, 1, 2, 20))
    20.00 % [4 of 20; 1 sub, 1 ins, 2 del]
    """

    substitutions: int
    insertions: int
    deletions: int
    num_words: int

    @property
    def total(self) -> int:
        """The number of errors of all kinds."""
        return self.substitutions + self.insertions + self.deletions

    @property
    def rate(self) -> float:
        """Errors per word that was said; it may be above 1."""
        if self.num_words == 0:
            raise ScoreError("there is no error rate of no words: nothing was said in any of it")
        return self.total / self.num_words

    def __add__(self, other: object) -> Errors:
        if not isinstance(other, Errors):
            return NotImplemented
        return Errors(*(a + b for a, b in zip(self, other, strict=True)))

    def __str__(self) -> str:
        rate = f"{100 * self.rate:.2f} %" if self.num_words else "no words"
        return (
            f"{rate} [{self.total} of {self.num_words}; {self.substitutions} sub, "
            f"{self.insertions} ins, {self.deletions} del]"
        )


class Interval(NamedTuple):
    """Where, with 95 % probability, the rate would lie for other utterances of the kind."""

    low: float
    high: float


class Comparison(NamedTuple):
    """Two systems on the same utterances, and how probable it is that the second is better."""

    first: Errors
    second: Errors
    probability_second_is_better: float

    @property
    def relative_gain(self) -> float:
        """By what part of the first one's error rate the second's is less."""
        if self.first.rate == 0.0:
            raise ScoreError("there is no gain relative to a system that made no errors")
        return 1.0 - self.second.rate / self.first.rate


@dataclass(frozen=True)
class WordErrorRate:
    """The errors of each utterance, in the order of their keys."""

    references: Mapping[str, tuple[str, ...]]
    hypotheses: Mapping[str, tuple[str, ...]]
    by_utterance: Mapping[str, Errors]

    @property
    def total(self) -> Errors:
        """The errors of all utterances."""
        return _sum(self.by_utterance.values())

    @property
    def rate(self) -> float:
        """Errors per word that was said."""
        return self.total.rate

    def by_speaker(self, speakers: Mapping[str, Sequence[str]]) -> dict[str, Errors]:
        """Return the errors of each speaker, given each one's utterances, in order of name.

        Utterances that were not scored are left out, and so are speakers without others.
        """
        times = Counter(key for keys in speakers.values() for key in keys)
        wrong = [key for key in self.by_utterance if times[key] != 1]
        if wrong:
            raise ScoreError(
                f"{_some(wrong)}: nobody is the speaker, or more than one is; expected one speaker "
                "of each utterance"
            )
        scored = {
            speaker: [self.by_utterance[key] for key in keys if key in self.by_utterance]
            for speaker, keys in sorted(speakers.items())
        }
        return {speaker: _sum(errors) for speaker, errors in scored.items() if errors}

    def format_speakers(self, speakers: Mapping[str, Sequence[str]]) -> str:
        """Return a table: a line for each speaker, and one for all."""
        rows = [*self.by_speaker(speakers).items(), ("all", self.total)]
        width = max(len(name) for name in ("speaker", *(name for name, _ in rows)))
        lines = [f"{'speaker':{width}}  words    WER %    sub    ins    del"]
        for speaker, errors in rows:
            rate = f"{100 * errors.rate:8.2f}" if errors.num_words else f"{'-':>8}"
            lines.append(
                f"{speaker:{width}} {errors.num_words:6d} {rate} {errors.substitutions:6d} "
                f"{errors.insertions:6d} {errors.deletions:6d}"
            )
        return "\n".join(lines)

    def confidence_interval(
        self, num_replications: int = NUM_REPLICATIONS, seed: int = 0
    ) -> Interval:
        """Return the interval of the rate, by drawing utterances again (Bisani and Ney, 2004).

        Raises:
            ScoreError: so few utterances have words that a draw had none, and so no rate.
        """
        found = kaldialign.bootstrap_wer_ci(*_sides(self), replications=num_replications, seed=seed)
        if not math.isfinite(found["ci95max"]):
            num_said = sum(errors.num_words > 0 for errors in self.by_utterance.values())
            raise ScoreError(
                f"there is no confidence interval: words were said in {num_said} of "
                f"{len(self.by_utterance)} utterances, and in none of some that were drawn again; "
                "score more utterances"
            )
        return Interval(max(found["ci95min"], 0.0), found["ci95max"])


def count_errors(reference: Words, hypothesis: Words) -> Errors:
    """Return the fewest errors that turn what was said into what was recognised.

    >>> count_errors("the cat sat down".split(), "the hat sat".split())
    Errors(substitutions=1, insertions=0, deletions=1, num_words=4)
    """
    for words in (reference, hypothesis):
        if isinstance(words, str):  # a sequence too, of letters
            raise ScoreError(f"{words!r} is one string; expected a list of words: split it")
    found = kaldialign.edit_distance(list(reference), list(hypothesis))
    return Errors(found["sub"], found["ins"], found["del"], len(reference))


def score(references: Mapping[str, Words], hypotheses: Mapping[str, Words]) -> WordErrorRate:
    """Score what was recognised, by utterance; an utterance that one side lacks is an error.

    >>> said = {"a": ["YES"], "b": ["NO", "NO"]}
    >>> print(score(said, {"a": ["YES"], "b": ["NO"]}).total)
    33.33 % [1 of 3; 0 sub, 0 ins, 1 del]
    """
    missing = sorted(references.keys() - hypotheses.keys())
    if missing:
        raise ScoreError(
            f"nothing was recognised for {_some(missing)}, of {len(references)} to score: decode "
            "them too, or give them no words"
        )
    extra = sorted(hypotheses.keys() - references.keys())
    if extra:
        raise ScoreError(
            f"it is not known what was said in {_some(extra)}, of {len(hypotheses)} that were "
            "recognised: give their transcripts, or leave them out"
        )
    if not references:
        raise ScoreError("there are no utterances to score")
    keys = sorted(references)
    return WordErrorRate(
        {key: tuple(references[key]) for key in keys},
        {key: tuple(hypotheses[key]) for key in keys},
        {key: count_errors(references[key], hypotheses[key]) for key in keys},
    )


def compare(
    first: WordErrorRate,
    second: WordErrorRate,
    num_replications: int = NUM_REPLICATIONS,
    seed: int = 0,
) -> Comparison:
    """Compare two systems on the same utterances, which are drawn again for both together."""
    if first.references != second.references:
        raise ScoreError(
            f"two systems were scored on {len(first.references)} and {len(second.references)} "
            "utterances, or transcripts, that differ; expected the same"
        )
    found = kaldialign.bootstrap_wer_ci(
        *_sides(first), _sides(second)[1], replications=num_replications, seed=seed
    )
    return Comparison(first.total, second.total, found["p_s2_improv_over_s1"])


class Setting(NamedTuple):
    """How scores are weighed: that of the language model, and a cost for each word."""

    lm_weight: float
    word_penalty: float


class Search(NamedTuple):
    """The best setting, and the errors with each."""

    best: Setting
    errors: Mapping[Setting, Errors]

    @property
    def is_at_edge(self) -> bool:
        """Whether the best LM weight is the least or the most that was tried, of three or more."""
        weights = sorted({setting.lm_weight for setting in self.errors})
        return len(weights) > 2 and self.best.lm_weight in (weights[0], weights[-1])


def search(
    references: Mapping[str, Words],
    hypotheses: Mapping[tuple[float, float], Mapping[str, Words]],
) -> Search:
    """Find the setting of the fewest errors on a development set.

    Take it to other utterances as it is: the rate of the best of many settings is too good to be
    reported. Of settings with as many errors, the one whose word penalty is nearest to 0 is taken,
    and of those the one of the least LM weight.

    Args:
        references: what was said, by utterance.
        hypotheses: what was recognised with each (lm_weight, word_penalty), by utterance.
    """
    if not hypotheses:
        raise ScoreError("a search needs what was recognised with one setting at least; got none")
    errors = {
        Setting(*setting): score(references, found).total
        for setting, found in sorted(hypotheses.items())
    }
    best = min(errors, key=lambda s: (errors[s].total, abs(s.word_penalty), s.lm_weight))
    return Search(best, errors)


def write_hypotheses(path: str | Path, hypotheses: Mapping[str, Words]) -> None:
    """Write what was recognised as Kaldi's text files have it: a line for each utterance.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "text"
    >>> write_hypotheses(path, {"b": [], "a": ["YES", "NO"]})
    >>> path.read_text(), read_hypotheses(path)
    ('a YES NO\\nb\\n', {'a': ('YES', 'NO'), 'b': ()})
    """
    for key, words in hypotheses.items():
        bad = [word for word in (key, *words) if word.split() != [word]]
        if bad:
            raise ScoreError(
                f"{bad[0]!r} of utterance {key!r} cannot be written to {path}: keys and words "
                "must not be empty nor have spaces in them"
            )
    lines = (" ".join([key, *hypotheses[key]]) + "\n" for key in sorted(hypotheses))
    write_atomically(Path(path), [line.encode() for line in lines])


def read_hypotheses(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Read a file of Kaldi's text format: a key, and its words, on each line.

    Raises:
        ScoreError: if the file is not there or no text, or a line has no key or that of another.
    """
    found: dict[str, tuple[str, ...]] = {}
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ScoreError(f"cannot read {path}: {error}; expected a text file in UTF-8") from error
    lines = text.removesuffix("\n").split("\n") if text else []  # other breaks are blanks
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields:
            raise ScoreError(
                f"{path}, line {number} is empty; expected a key and its words: remove the line"
            )
        if fields[0] in found:
            raise ScoreError(
                f"{path}, line {number}: utterance {fields[0]!r} is there twice; remove one of the "
                "two lines"
            )
        found[fields[0]] = tuple(fields[1:])
    return found


def _sum(errors: Iterable[Errors]) -> Errors:
    return sum(errors, Errors(0, 0, 0, 0))


def _sides(scored: WordErrorRate) -> tuple[list[list[str]], list[list[str]]]:
    return (
        [list(words) for words in scored.references.values()],
        [list(words) for words in scored.hypotheses.values()],
    )


def _some(keys: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(keys) - limit} more" if len(keys) > limit else ""
    return ", ".join(keys[:limit]) + more
