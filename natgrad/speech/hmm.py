"""Hidden Markov models of phones: left to right, every state emits one frame or more.

An alignment is an array of state numbers, one a frame. As states are never skipped and a phone's
states follow one another, a phone begins wherever the first state of a phone follows another
state: from an alignment one can read the phones and how long each took.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.phones import PhoneSet

__all__ = ["ContextTree", "HmmStates", "MonophoneTree", "PhoneSpan", "Topology", "TransitionCounts"]

Ints = NDArray[np.int32]

INITIAL_SELF_LOOP = 0.75
SMALLEST_EXIT = 0.01  # no state is stayed in for ever, whatever the counts say


@dataclass(frozen=True)
class Topology:
    """How many states a phone has. At least two: else a phone that follows itself is not seen."""

    speech_states: int = 3
    silence_states: int = 3

    def __post_init__(self) -> None:
        if min(self.speech_states, self.silence_states) < 2:
            raise ValueError(
                f"a phone needs at least 2 states, but speech_states is {self.speech_states} and "
                f"silence_states {self.silence_states}"
            )

    def num_states(self, phones: PhoneSet, phone: int) -> int:
        """Return the number of states of a phone."""
        return self.silence_states if phone in phones.silence_numbers else self.speech_states


class ContextTree(Protocol):
    """Which distribution ("pdf") a phone's state has, given the phones beside it."""

    @property
    def num_pdfs(self) -> int:
        """The number of distributions."""

    @property
    def context_width(self) -> int:
        """How many phones a distribution depends on: 1 or 3."""

    def pdf(self, left: Ints, phone: Ints, right: Ints, position: int) -> Ints:
        """Return the pdfs of the states at `position` of phones in context, elementwise.

        A neighbour of 0 is the edge of the utterance.
        """

    def pdfs_of_phone(self, phone: int, position: int) -> list[int]:
        """Return, in order, the pdfs that a phone's state has in any context."""


@dataclass(frozen=True)
class MonophoneTree:
    """One pdf for each state of each sound, whatever is beside it and wherever in the word."""

    phones: PhoneSet
    topology: Topology
    context_width: int = 1

    @cached_property
    def _first_pdf(self) -> Ints:
        firsts = [int(np.argmax(self.phones.sound_of == s)) for s in range(len(self.phones.sounds))]
        sizes = [self.topology.num_states(self.phones, phone) for phone in firsts]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)

    @property
    def num_pdfs(self) -> int:
        """The number of pdfs."""
        return int(self._first_pdf[-1])

    def pdf(self, left: Ints, phone: Ints, right: Ints, position: int) -> Ints:
        """Return the pdf of a state; see ContextTree."""
        return (self._first_pdf[self.phones.sound_of[phone]] + position).astype(np.int32)

    def pdfs_of_phone(self, phone: int, position: int) -> list[int]:
        """Return the pdf of a phone's state; see ContextTree."""
        return [int(self._first_pdf[self.phones.sound_of[phone]]) + position]


class PhoneSpan(NamedTuple):
    """A phone of an alignment: it has the frames from `begin` to before `end`."""

    phone: int
    begin: int
    end: int


@dataclass(frozen=True)
class TransitionCounts:
    """How many frames each state had, and how often it was entered."""

    frames: NDArray[np.int64]
    visits: NDArray[np.int64]

    def __add__(self, other: TransitionCounts) -> TransitionCounts:
        return TransitionCounts(self.frames + other.frames, self.visits + other.visits)


@dataclass(frozen=True, eq=False)
class HmmStates:
    """Every state that a phone can have in some context: (phone, position in it, pdf).

    States are numbered from 0; in graphs, where 0 is epsilon, a state's label is its number + 1.

    >>> phones = PhoneSet(("SIL",), ("AH",), marks_position=False)
    >>> topology = Topology(speech_states=2, silence_states=3)
    >>> states = HmmStates.of(phones, topology, MonophoneTree(phones, topology))
    >>> states.phone, states.position, states.pdf_of_label
    (array([1, 1, 1, 2, 2], dtype=int32), array([0, 1, 2, 0, 1], dtype=int32), \
array([-1,  0,  1,  2,  3,  4], dtype=int32))
    >>> states.spans([0, 1, 1, 2, 3, 3, 4, 3, 4])
    [PhoneSpan(phone=1, begin=0, end=4), PhoneSpan(phone=2, begin=4, end=7), \
PhoneSpan(phone=2, begin=7, end=9)]
    """

    phones: PhoneSet
    topology: Topology
    phone: Ints  # (K,)
    position: Ints  # (K,)
    pdf: Ints  # (K,)
    self_loop: NDArray[np.float64]  # (K,) the probability of staying
    num_pdfs: int

    @staticmethod
    def of(
        phones: PhoneSet,
        topology: Topology,
        tree: ContextTree,
        self_loop: NDArray[np.float64] | None = None,
    ) -> HmmStates:
        """List the states that a tree can give."""
        rows = [
            (phone, position, pdf)
            for phone in range(1, len(phones))
            for position in range(topology.num_states(phones, phone))
            for pdf in tree.pdfs_of_phone(phone, position)
        ]
        phone, position, pdf = np.array(rows, dtype=np.int32).T.copy()
        staying = np.full(len(rows), INITIAL_SELF_LOOP) if self_loop is None else self_loop
        return HmmStates(phones, topology, phone, position, pdf, staying, tree.num_pdfs)

    def __len__(self) -> int:
        return len(self.phone)

    @cached_property
    def pdf_of_label(self) -> Ints:
        """(K + 1,) the pdf of each label of a graph; -1 for epsilon."""
        return np.concatenate([[-1], self.pdf]).astype(np.int32)

    @cached_property
    def sound_state(self) -> Ints:
        """(K,) the number of each state's sound and position in it, whatever the context."""
        sounds = self.phones.sound_of[self.phone]
        _, numbers = np.unique(np.stack([sounds, self.position]), axis=1, return_inverse=True)
        return numbers.reshape(-1).astype(np.int32)

    @cached_property
    def is_silence(self) -> NDArray[np.bool_]:
        """(K,) whether each state is of silence or noise."""
        return np.isin(self.phone, sorted(self.phones.silence_numbers))

    @cached_property
    def number(self) -> dict[tuple[int, int, int], int]:
        """The number of a (phone, position, pdf)."""
        keys = zip(self.phone.tolist(), self.position.tolist(), self.pdf.tolist(), strict=True)
        return {key: number for number, key in enumerate(keys)}

    def entries(self, alignment: Ints | list[int]) -> NDArray[np.int64]:
        """Return the frames at which a state is entered: those where another was before."""
        aligned = np.asarray(alignment)
        return np.flatnonzero(np.diff(aligned, prepend=-1))

    def spans(self, alignment: Ints | list[int]) -> list[PhoneSpan]:
        """Return the phones of an alignment, in order."""
        aligned = np.asarray(alignment, dtype=np.int32)
        entered = self.entries(aligned)
        begins = entered[self.position[aligned[entered]] == 0].tolist()
        ends = [*begins, len(aligned)][1:]
        phones = self.phone[aligned[begins]].tolist()
        return [PhoneSpan(*span) for span in zip(phones, begins, ends, strict=True)]

    def count(self, alignments: Iterable[Ints]) -> TransitionCounts:
        """Count frames and visits of each state."""
        frames = np.zeros(len(self), dtype=np.int64)
        visits = np.zeros(len(self), dtype=np.int64)
        for alignment in alignments:
            frames += np.bincount(alignment, minlength=len(self))
            visits += np.bincount(alignment[self.entries(alignment)], minlength=len(self))
        return TransitionCounts(frames, visits)

    def reestimated(self, counts: TransitionCounts, least_visits: int = 5) -> HmmStates:
        """Return these states with the self-loop probabilities that make the counts most likely.

        A state that was seen less than `least_visits` times gets the mean of all.
        """
        exits = counts.visits / np.maximum(counts.frames, 1)
        mean = counts.visits.sum() / max(int(counts.frames.sum()), 1)
        exits = np.where(counts.visits >= least_visits, exits, mean)
        staying = 1.0 - np.clip(exits, SMALLEST_EXIT, 1.0 - SMALLEST_EXIT)
        return replace(self, self_loop=staying)
