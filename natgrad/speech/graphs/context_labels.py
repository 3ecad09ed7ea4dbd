"""The labels of the HMM states that a phone has between its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from natgrad.speech.hmm import ContextTree, HmmStates

__all__ = ["ContextLabels"]

Ints = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class ContextLabels:
    """A tree's distributions as labels: numbers of HMM states + 1, as graphs have them.

    >>> from natgrad.speech.hmm import MonophoneTree, Topology
    >>> from natgrad.speech.phones import PhoneSet
    >>> phones = PhoneSet(("SIL",), ("AH",), marks_position=False)
    >>> topology = Topology(speech_states=2, silence_states=3)
    >>> tree = MonophoneTree(phones, topology)
    >>> labels = ContextLabels(tree, HmmStates.of(phones, topology, tree))
    >>> labels.of([0, 1], [1, 2], [2, 0])
    array([[1, 2, 3],
           [4, 5, 0]], dtype=int32)
    """

    tree: ContextTree
    states: HmmStates

    @cached_property
    def num_states(self) -> Ints:
        """How many states each phone has, by the phone's number; none for 0, which is no phone."""
        counts = np.zeros(len(self.states.phones), dtype=np.int32)
        np.maximum.at(counts, self.states.phone, self.states.position + 1)
        return counts

    def of(self, left: ArrayLike, phone: ArrayLike, right: ArrayLike) -> Ints:
        """Return (N, most states of a phone) the labels of N phones' states; 0 beyond the last.

        A neighbour of 0 is the edge of the utterance.
        """
        left, phone, right = (np.asarray(x, dtype=np.int32) for x in (left, phone, right))
        labels = np.zeros((len(phone), int(self.num_states.max())), dtype=np.int32)
        for position in range(labels.shape[1]):
            has = np.flatnonzero(self.num_states[phone] > position)
            pdf = self.tree.pdf(left[has], phone[has], right[has], position)
            labels[has, position] = self._labels(phone[has], position, pdf)
        return labels

    @cached_property
    def _sorted_keys(self) -> tuple[NDArray[np.int64], Ints]:
        keys = self._keys(self.states.phone, self.states.position, self.states.pdf)
        order = np.argsort(keys)
        return keys[order], order.astype(np.int32)

    def _keys(self, phone: Ints, position: Ints | int, pdf: Ints) -> NDArray[np.int64]:
        most_positions = int(self.num_states.max())
        place = phone.astype(np.int64) * most_positions + position
        return place * self.states.num_pdfs + pdf

    def _labels(self, phone: Ints, position: int, pdf: Ints) -> Ints:
        sorted_keys, order = self._sorted_keys
        keys = self._keys(phone, position, pdf)
        found = np.minimum(np.searchsorted(sorted_keys, keys), len(sorted_keys) - 1)
        wrong = np.flatnonzero(sorted_keys[found] != keys)
        if len(wrong):
            name = self.states.phones.symbols.name(int(phone[wrong[0]]))
            raise ValueError(
                f"the tree gives state {position} of phone {name} pdf {pdf[wrong[0]]}, which the "
                "HMM states do not have there: make them of this tree, by HmmStates.of"
            )
        return order[found] + np.int32(1)
