"""Questions that a decision tree may ask about a phone or its neighbours: "is it one of these?".

Sets of sounds come from the data: the sounds, each modelled by one Gaussian over all its contexts,
are merged bottom-up, always the two clusters that lose the least likelihood by it; every cluster
on the way, from single sounds up, is a set that sounds alike. The first, a middle, and the last
state of a sound are clustered apart, as a sound's end acts on what follows, and its beginning on
what comes before. Sets of places in the word come from the marks of phones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.clustering import merge_least_losses
from natgrad.speech.gmm.tree_statistics import (
    LEFT,
    PHONE,
    POSITION,
    RIGHT,
    TreeStatistics,
)
from natgrad.speech.phones import ALONE, BEGIN, END, INSIDE, PhoneSet

__all__ = ["Questions", "cluster_bottom_up", "derive_questions"]

Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Sets of marks. But for silences, which have none, any other set is the complement of one of these.
MARK_SETS = ((BEGIN,), (INSIDE,), (END,), (ALONE,), (BEGIN, ALONE), (END, ALONE), (BEGIN, END))


@dataclass(frozen=True, eq=False)
class Questions:
    """Q questions: `column[q]` (LEFT, PHONE or RIGHT) is asked whether it is in `members[q]`."""

    column: NDArray[np.int32]  # (Q,)
    members: Bools  # (Q, number of phones + 1); a neighbour of 0, the edge, is as the first silence

    def __len__(self) -> int:
        return len(self.column)


def derive_questions(statistics: TreeStatistics, phones: PhoneSet) -> Questions:
    """Return questions on the sounds of neighbours, and on the place in the word of all three.

    The sound of a phone itself is not asked about, as each sound has its own tree.
    """
    sets = [_phones_of(phones, sounds) for sounds in _alike_sounds(statistics, phones)]
    marks = _mark_sets(phones)
    rows = {LEFT: _distinct([*sets, *marks]), PHONE: marks, RIGHT: _distinct([*sets, *marks])}
    column = np.repeat(list(rows), [len(members) for members in rows.values()])
    members = np.array([row for of_column in rows.values() for row in of_column], dtype=np.bool_)
    return Questions(column.astype(np.int32), members.reshape(len(column), len(phones)))


def cluster_bottom_up(moments: Doubles) -> list[frozenset[int]]:
    """Return every cluster met on the way from single rows to one: 2 n - 1 for n rows.

    Rows without frames are left out.

    >>> moments = np.array([[9.0, 0.0, 9.0], [9.0, 9.0, 18.0], [9.0, 90.0, 909.0]])
    >>> [sorted(cluster) for cluster in cluster_bottom_up(moments)]
    [[0], [1], [2], [0, 1], [0, 1, 2]]
    """
    rows = np.flatnonzero(moments[:, 0] > 0)
    clusters = [frozenset([int(row)]) for row in rows]
    met = list(clusters)
    for one, other in merge_least_losses(moments[rows]):
        clusters[one] |= clusters[other]
        met.append(clusters[one])
    return met


def _alike_sounds(statistics: TreeStatistics, phones: PhoneSet) -> list[frozenset[int]]:
    """The sets of sounds of all three clusterings; all sounds together are no question."""
    sounds = phones.sound_of[statistics.contexts[:, PHONE]]
    positions = statistics.contexts[:, POSITION]
    last = np.zeros(len(phones.sounds), dtype=np.int32)
    np.maximum.at(last, sounds, positions)
    found: dict[frozenset[int], None] = {}
    for chosen in (np.zeros_like(last), last // 2, last):
        is_chosen = positions == chosen[sounds]
        moments = np.zeros((len(phones.sounds), statistics.moments.shape[1]))
        np.add.at(moments, sounds[is_chosen], statistics.moments[is_chosen])
        found.update(dict.fromkeys(cluster_bottom_up(moments)))
    return [sounds for sounds in found if len(sounds) < len(phones.sounds)]


def _phones_of(phones: PhoneSet, sounds: Iterable[int]) -> Bools:
    return _with_edge(np.isin(phones.sound_of, sorted(sounds)), phones)


def _mark_sets(phones: PhoneSet) -> list[Bools]:
    """The phones that have one of a set of marks, for each set; silences have none."""
    marks = np.array(["", *(phones.mark_of(phone) for phone in range(1, len(phones)))])
    return _distinct([_with_edge(np.isin(marks, marked), phones) for marked in MARK_SETS])


def _with_edge(members: Bools, phones: PhoneSet) -> Bools:
    members[0] = bool(phones.silences) and members[1]
    return members


def _distinct(rows: Iterable[Bools]) -> list[Bools]:
    """Rows that differ from one another and split the phones in two."""
    different: dict[bytes, Any] = {row.tobytes(): row for row in rows}
    return [row for row in different.values() if row.any() and not row.all()]
