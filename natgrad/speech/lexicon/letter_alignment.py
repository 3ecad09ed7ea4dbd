"""Which sounds each letter of a word stands for, learned from many words by EM.

A graphone is a letter with the sounds that it stands for, none to two: "X" with K S; in "PHOTO",
"P" with F and "H" with nothing. A word with its pronunciation is taken to be a sequence of
graphones that were drawn independently of one another. The probabilities that make a dictionary
most likely are found by expectation and maximisation over all ways to share out each word's
sounds; then each word's are shared out in the most likely way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = ["Graphone", "LetterAlignment", "Spoken", "align_letters"]

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
Spoken = tuple[str, tuple[str, ...]]  # a word and one pronunciation of it

MOST_SOUNDS = 2  # of a letter
NUM_ITERATIONS = 12  # the likelihood changes by less than a thousandth in the last of them


class Graphone(NamedTuple):
    """A letter, and the sounds that it stands for."""

    letter: str
    sounds: tuple[str, ...]


@dataclass(frozen=True)
class LetterAlignment:
    """The graphones of words.

    `graphones` are those in use; `sequences` has the numbers, from 0, of each word's graphones,
    one a letter, or None for a word that has more than two sounds for each letter. The
    `log_likelihoods` are those of all words at the beginning of each iteration of EM.
    """

    graphones: tuple[Graphone, ...]
    sequences: list[Ints | None]
    log_likelihoods: tuple[float, ...]


def align_letters(words: Sequence[Spoken], num_iterations: int = NUM_ITERATIONS) -> LetterAlignment:
    """Share out the sounds of every word among its letters.

    >>> words = [("FOX", ("F", "AA", "K", "S")), ("OFT", ("AA", "F", "T")), ("TOO", ("T", "AA"))]
    >>> alignment = align_letters(words)
    >>> [alignment.graphones[number].sounds for number in alignment.sequences[0]]
    [('F',), ('AA',), ('K', 'S')]
    """
    coded = _encode(words)
    size = len(coded.letters) * coded.graphones_per_letter
    probabilities = np.full(size, 1.0 / max(size, 1))
    log_likelihoods = []
    for _ in range(num_iterations):
        counts = np.zeros_like(probabilities)
        log_likelihoods.append(_expect(coded.arrays, probabilities, counts))
        probabilities = counts / max(float(counts.sum()), 1e-300)
    best = _share_out(coded.arrays, probabilities)
    used, numbers = np.unique(best[best >= 0], return_inverse=True)
    numbered = np.full(len(best), -1, dtype=np.int32)
    numbered[best >= 0] = numbers
    sequences = np.split(numbered, coded.arrays.letter_first[1:-1])
    return LetterAlignment(
        tuple(coded.name(int(number)) for number in used),
        [sequence if len(sequence) and sequence[0] >= 0 else None for sequence in sequences],
        tuple(log_likelihoods),
    )


class _Words(NamedTuple):
    """Words as numbers of letters and sounds, one word after another.

    The graphone of letter i with n sounds from sound j has number letter[i] + said[n, j].
    """

    letter: NDArray[np.int64]
    letter_first: Ints  # (words + 1,) where each word begins
    said: NDArray[np.int64]  # (3, sounds + 1)
    sound_first: Ints


@dataclass(frozen=True, eq=False)
class _Coded:
    """Words as numbers, and what the numbers mean."""

    letters: list[str]
    sounds: list[str]
    pairs: NDArray[np.int64]  # of sounds, those that occur: first * len(sounds) + second
    arrays: _Words

    @property
    def graphones_per_letter(self) -> int:
        """The number of ways to say a letter: nothing, a sound, a pair of sounds."""
        return 1 + len(self.sounds) + len(self.pairs)

    def name(self, number: int) -> Graphone:
        """Return the graphone that has a number in the table of all possible ones."""
        letter, said = divmod(number, self.graphones_per_letter)
        if said == 0:
            sounds: tuple[str, ...] = ()
        elif said <= len(self.sounds):
            sounds = (self.sounds[said - 1],)
        else:
            one, two = divmod(int(self.pairs[said - 1 - len(self.sounds)]), len(self.sounds))
            sounds = (self.sounds[one], self.sounds[two])
        return Graphone(self.letters[letter], sounds)


def _encode(words: Sequence[Spoken]) -> _Coded:
    letters, letter, letter_first = _number([word for word, _ in words])
    sounds, sound, sound_first = _number([said for _, said in words])
    has_next = np.ones(len(sound), dtype=np.bool_)
    has_next[sound_first[1:][np.diff(sound_first) > 0] - 1] = False
    codes = sound * len(sounds) + np.append(sound[1:], np.int64(0))[: len(sound)]
    pairs, pair_numbers = np.unique(codes[has_next], return_inverse=True)
    said = np.zeros((MOST_SOUNDS + 1, len(sound) + 1), dtype=np.int64)
    said[1, :-1] = 1 + sound
    said[2, :-1][has_next] = 1 + len(sounds) + pair_numbers
    per_letter = 1 + len(sounds) + len(pairs)
    arrays = _Words(letter * per_letter, letter_first, said, sound_first)
    return _Coded(letters, sounds, pairs, arrays)


def _number(sequences: Sequence[Sequence[str]]) -> tuple[list[str], NDArray[np.int64], Ints]:
    """The different names, their numbers in all sequences, and where each sequence begins."""
    names = sorted({name for sequence in sequences for name in sequence})
    number = {name: n for n, name in enumerate(names)}
    flat = np.array([number[name] for sequence in sequences for name in sequence], dtype=np.int64)
    ends = np.cumsum([0, *(len(sequence) for sequence in sequences)])
    return names, flat, ends.astype(np.int32)


# -- compiled ----------------------------------------------------------------------------------


@njit(cache=True)
def _expect(words: _Words, probabilities: Floats, counts: Floats) -> float:
    """Add to `counts` how often each graphone is expected; return the log-likelihood."""
    total = 0.0
    for word in range(len(words.letter_first) - 1):
        l0, s0 = words.letter_first[word], words.sound_first[word]
        num_letters = words.letter_first[word + 1] - l0
        num_sounds = words.sound_first[word + 1] - s0
        # before[i, j]: the probability of the first i letters with the first j sounds;
        # after[i, j]: that of the rest.
        before = np.zeros((num_letters + 1, num_sounds + 1))
        after = np.zeros((num_letters + 1, num_sounds + 1))
        before[0, 0] = 1.0
        after[num_letters, num_sounds] = 1.0
        for i in range(num_letters):
            for j in range(num_sounds + 1):
                if before[i, j] > 0.0:
                    for n in range(min(MOST_SOUNDS, num_sounds - j) + 1):
                        g = words.letter[l0 + i] + words.said[n, s0 + j]
                        before[i + 1, j + n] += before[i, j] * probabilities[g]
        whole = before[num_letters, num_sounds]
        if whole <= 0.0 or num_letters == 0:
            continue
        total += np.log(whole)
        for i in range(num_letters - 1, -1, -1):
            for j in range(num_sounds + 1):
                for n in range(min(MOST_SOUNDS, num_sounds - j) + 1):
                    g = words.letter[l0 + i] + words.said[n, s0 + j]
                    rest = probabilities[g] * after[i + 1, j + n]
                    after[i, j] += rest
                    counts[g] += before[i, j] * rest / whole
    return total


@njit(cache=True)
def _share_out(words: _Words, probabilities: Floats) -> NDArray[np.int64]:
    """The graphone of each letter in the most likely sequence of each word; -1 if there is none."""
    result = np.full(len(words.letter), -1, dtype=np.int64)
    for word in range(len(words.letter_first) - 1):
        l0, s0 = words.letter_first[word], words.sound_first[word]
        num_letters = words.letter_first[word + 1] - l0
        num_sounds = words.sound_first[word + 1] - s0
        best = np.zeros((num_letters + 1, num_sounds + 1))
        taken = np.zeros((num_letters + 1, num_sounds + 1), dtype=np.int32)
        best[0, 0] = 1.0
        for i in range(num_letters):
            for j in range(num_sounds + 1):
                for n in range(min(MOST_SOUNDS, num_sounds - j) + 1):
                    g = words.letter[l0 + i] + words.said[n, s0 + j]
                    if best[i, j] * probabilities[g] > best[i + 1, j + n]:
                        best[i + 1, j + n] = best[i, j] * probabilities[g]
                        taken[i + 1, j + n] = n
        if best[num_letters, num_sounds] > 0.0:
            j = num_sounds
            for i in range(num_letters, 0, -1):
                n = taken[i, j]
                j -= n
                result[l0 + i - 1] = words.letter[l0 + i - 1] + words.said[n, s0 + j]
    return result
