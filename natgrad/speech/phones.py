"""The phones that models and graphs tell apart, and the sounds of a dictionary that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.symbols import Symbols

__all__ = ["PhoneSet"]

# Where in its word a phone is: at its beginning, inside, at its end, or alone.
BEGIN, INSIDE, END, ALONE = "_B", "_I", "_E", "_S"
MARKS = (BEGIN, INSIDE, END, ALONE)


@dataclass(frozen=True)
class PhoneSet:
    """Sounds, as a dictionary writes them; and phones: sounds marked by their place in the word.

    Phones have numbers from 1, for graphs; sounds from 0, for tables. The sounds of silence (and
    noise) come first, are not marked, and have no context of their own.

    >>> phones = PhoneSet(silences=("SIL",), speech=("AH", "B"))
    >>> [phones.symbols.name(number) for number in phones.in_word(["B", "AH", "B"])]
    ['B_B', 'AH_I', 'B_E']
    >>> len(phones), phones.sounds, int(phones.sound_of[phones.symbols.number("B_S")])
    (10, ('SIL', 'AH', 'B'), 2)
    """

    silences: tuple[str, ...]
    speech: tuple[str, ...]
    marks_position: bool = True

    @property
    def sounds(self) -> tuple[str, ...]:
        """The names of all sounds, silences first."""
        return (*self.silences, *self.speech)

    @cached_property
    def symbols(self) -> Symbols:
        """The phones by number."""
        marks = MARKS if self.marks_position else ("",)
        return Symbols([*self.silences, *(name + mark for name in self.speech for mark in marks)])

    @cached_property
    def sound_of(self) -> NDArray[np.int32]:
        """For each number of a phone (0 is none, with -1), its sound."""
        num_marks = len(MARKS) if self.marks_position else 1
        repeats = [1] * len(self.silences) + [num_marks] * len(self.speech)
        sounds = np.repeat(np.arange(len(self.sounds)), repeats)
        return np.concatenate([[-1], sounds]).astype(np.int32)

    @cached_property
    def silence_numbers(self) -> frozenset[int]:
        """The numbers of the phones that are silence or noise."""
        return frozenset(range(1, len(self.silences) + 1))

    def in_word(self, pronunciation: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of the phones that a word of these sounds has."""
        return tuple(
            self.symbols.number(sound + self._mark(sound, place, len(pronunciation)))
            for place, sound in enumerate(pronunciation)
        )

    def mark_of(self, phone: int) -> str:
        """Return the mark of a phone's place in its word: "_B", "_I", "_E", "_S"; or "" if none."""
        if not self.marks_position or phone in self.silence_numbers:
            return ""
        return self.symbols.name(phone)[-2:]

    def unknown_sounds(self, pronunciation: Iterable[str]) -> list[str]:
        """Return those of a pronunciation's sounds that are not in this set."""
        return [sound for sound in pronunciation if sound not in self.sounds]

    def _mark(self, sound: str, place: int, length: int) -> str:
        if not self.marks_position or sound in self.silences:
            return ""
        if length == 1:
            return ALONE
        return BEGIN if place == 0 else END if place == length - 1 else INSIDE

    def __len__(self) -> int:
        return len(self.symbols)
