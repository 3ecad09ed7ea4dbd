"""Lexicons: how each word is pronounced, in one or more ways, and where silence may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from natgrad.speech.phones import PhoneSet
from natgrad.speech.symbols import EPSILON

__all__ = [
    "Lexicon",
    "LexiconError",
    "Pronunciation",
    "complain_about",
    "complain_about_name",
]

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
DISAMBIGUATION = re.compile(r"#\d+")  # graphs keep these names for themselves
SENTENCE_EDGES = ("<s>", "</s>")  # and language models these
VARIANT = re.compile(r"(.+)\((\d+)\)")  # WORD(2), as Sphinx writes further pronunciations
COMMENT = ";;"  # begins a line of a lexicon's file that means nothing


class LexiconError(ValueError):
    """A lexicon is wrong; the message names the file and line, or the word."""


@dataclass(frozen=True, order=True)
class Pronunciation:
    """One way to say a word; its probability is relative to the word's most likely one."""

    word: str
    sounds: tuple[str, ...]
    probability: float = 1.0


@dataclass(frozen=True)
class Lexicon:
    """Words with all their pronunciations, sorted by word and sounds.

    >>> lexicon = Lexicon([Pronunciation("YES", ("Y", "EH", "S")), Pronunciation("A", ("EY",)),
    ...                    Pronunciation("A", ("AH",))])
    >>> [" ".join(way.sounds) for way in lexicon.of("A")], lexicon.sounds
    (['AH', 'EY'], ('AH', 'EH', 'EY', 'S', 'Y'))

    Args:
        pronunciations: of all words, in any order.
        silence: the sound that may be between words, and at both ends.
        silence_probability: how likely it is there.
        unknown_word: the word that stands for those not in the lexicon, or None. It is one of the
            words, with one pronunciation of a single sound; see `with_unknown_word`.

    Raises:
        LexiconError: a word has no sounds, a pronunciation is there twice, or has a wrong name.
    """

    pronunciations: Sequence[Pronunciation]
    silence: str = "SIL"
    silence_probability: float = 0.5
    unknown_word: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "pronunciations", tuple(sorted(self.pronunciations)))
        sounds = (*self._all_sounds, self.silence)
        for names, what in ((self._by_word, "word"), (sounds, "sound")):
            for name in names:
                if complaint := complain_about_name(name, what):
                    raise LexiconError(complaint)
        _refuse_repeats(self.pronunciations)
        for way in self.pronunciations:
            if complaint := complain_about(way):
                raise LexiconError(complaint)
        if not 0.0 < self.silence_probability < 1.0:
            raise LexiconError(
                f"silence_probability is {self.silence_probability}; expected more than 0 and less "
                "than 1"
            )
        self._check_unknown_word()

    def _check_unknown_word(self) -> None:
        if self.unknown_word is None:
            return
        ways = self.of(self.unknown_word)
        if len(ways) != 1 or len(ways[0].sounds) != 1:
            said = "; ".join(" ".join(way.sounds) for way in ways) or "nothing"
            raise LexiconError(
                f"the unknown word {self.unknown_word} is pronounced {said}; expected one "
                "pronunciation of one sound, which stands for any speech"
            )

    @cached_property
    def _by_word(self) -> dict[str, list[Pronunciation]]:
        ways: dict[str, list[Pronunciation]] = {}
        for way in self.pronunciations:
            ways.setdefault(way.word, []).append(way)
        return ways

    @cached_property
    def _all_sounds(self) -> tuple[str, ...]:
        return tuple(sorted({sound for way in self.pronunciations for sound in way.sounds}))

    @cached_property
    def words(self) -> frozenset[str]:
        """All words."""
        return frozenset(self._by_word)

    @property
    def silences(self) -> tuple[str, ...]:
        """The sounds that are not speech: silence, and that of the unknown word."""
        if self.unknown_word is None:
            return (self.silence,)
        sound = self.of(self.unknown_word)[0].sounds[0]
        return (self.silence, sound) if sound != self.silence else (self.silence,)

    @property
    def sounds(self) -> tuple[str, ...]:
        """The sounds of speech, sorted."""
        return tuple(sound for sound in self._all_sounds if sound not in self.silences)

    def __contains__(self, word: str) -> bool:
        return word in self._by_word

    def __len__(self) -> int:
        return len(self.pronunciations)

    def of(self, word: str) -> list[Pronunciation]:
        """Return the pronunciations of a word; none if it is not here."""
        return list(self._by_word.get(word, ()))

    def phone_set(self, marks_position: bool = True) -> PhoneSet:
        """Return the phones that models of this lexicon need."""
        return PhoneSet(self.silences, self.sounds, marks_position)

    def restricted_to(self, words: Iterable[str]) -> Lexicon:
        """Return the part of this lexicon that has these words (and the unknown word).

        Raises:
            LexiconError: some of them are not here; it names them.
        """
        wanted = set(words)
        if missing := sorted(wanted - self.words):
            raise LexiconError(
                f"{len(missing)} words are not in the lexicon: {' '.join(missing[:10])}"
                f"{' ...' if len(missing) > 10 else ''}. Add them, or let `pronounce` find how "
                "they are said"
            )
        if self.unknown_word is not None:
            wanted.add(self.unknown_word)
        return replace(self, pronunciations=[p for p in self.pronunciations if p.word in wanted])

    def with_unknown_word(self, word: str = "<UNK>", sound: str = "SPN") -> Lexicon:
        """Return this lexicon with a word for all that it lacks, said as a sound of its own."""
        others = [way for way in self.pronunciations if way.word != word]
        return replace(
            self, pronunciations=[*others, Pronunciation(word, (sound,))], unknown_word=word
        )

    def reestimated(
        self, counts: Mapping[tuple[str, tuple[str, ...]], float], smoothing: float = 1.0
    ) -> Lexicon:
        """Return this lexicon with probabilities from how often each pronunciation was said.

        A pronunciation is taken to have been said `smoothing` times its probability more often
        than it was, and the result is divided by that of the word's most frequent one (a word with
        many pronunciations shall not cost more than one with a single one). Words that were never
        said keep their probabilities.

        >>> lexicon = Lexicon([Pronunciation("A", ("AH",)), Pronunciation("A", ("EY",))])
        >>> [way.probability for way in lexicon.reestimated({("A", ("AH",)): 3}).of("A")]
        [1.0, 0.25]

        Args:
            counts: by word and sounds, as counted in alignments.
            smoothing: more than 0, so that no pronunciation is ruled out.

        Raises:
            LexiconError: a count is of a pronunciation that is not here, or negative.
        """
        if not smoothing > 0.0:
            raise LexiconError(f"smoothing is {smoothing}; expected more than 0")
        known = {(way.word, way.sounds) for way in self.pronunciations}
        for (word, sounds), count in counts.items():
            if (word, sounds) not in known or not 0.0 <= count < float("inf"):
                raise LexiconError(
                    f"{word} is said to have been pronounced {' '.join(sounds)} {count} times; "
                    "expected a count, of a pronunciation in the lexicon"
                )
        said = {
            (way.word, way.sounds): counts.get((way.word, way.sounds), 0.0)
            + smoothing * way.probability
            for way in self.pronunciations
        }
        most = {word: max(said[word, way.sounds] for way in self.of(word)) for word in self.words}
        ways = [
            replace(way, probability=said[way.word, way.sounds] / most[way.word])
            for way in self.pronunciations
        ]
        return replace(self, pronunciations=ways)


@lru_cache(maxsize=1000)  # as the same few sounds are in every word
def complain_about_name(name: str, what: str) -> str | None:
    """Return why a word or sound cannot have a name, or None if it can."""
    if not name or name.split() != [name]:
        return f"{name!r} cannot be a {what}: expected a name without blanks"
    if name == EPSILON or DISAMBIGUATION.fullmatch(name) or name in SENTENCE_EDGES:
        return (
            f"{name} cannot be a {what}: graphs and language models keep that name for another use"
        )
    if not name.strip("#") or name.startswith(COMMENT):
        return (
            f"{name} cannot be a {what}, as it begins a comment in other files: take the comment "
            f"out, or give it a line of its own that begins with {COMMENT}"
        )
    if what == "word" and (variant := VARIANT.fullmatch(name)):
        return (
            f"{name} cannot be a word: in files, that is a further pronunciation of {variant[1]}; "
            "name it so"
        )
    if what == "sound" and NUMBER.fullmatch(name):
        return (
            f"{name} cannot be a sound: a number after a word is the probability of a "
            "pronunciation, on every line of a file or on none"
        )
    return None


def complain_about(way: Pronunciation) -> str | None:
    """Return what is wrong with a pronunciation, or None if nothing is."""
    if not way.sounds:
        return f"{way.word} has no sounds: write its pronunciation after it, or remove it"
    if not 0.0 < way.probability <= 1.0:
        return (
            f"{way.word} {' '.join(way.sounds)} has probability {way.probability}; expected more "
            "than 0 and at most 1 (the word's most likely pronunciation has 1)"
        )
    return None


def _refuse_repeats(ways: Sequence[Pronunciation]) -> None:
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for way in ways:
        if (way.word, way.sounds) in seen:
            raise LexiconError(
                f"{way.word} {' '.join(way.sounds)} is there twice; remove one of the two"
            )
        seen.add((way.word, way.sounds))
