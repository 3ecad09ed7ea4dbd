"""The growing of decision trees: split greedily what gains the most likelihood, then merge leaves.

Every leaf's best question is the one that gains the most log-likelihood,

    gain = L(frames that answer yes) + L(frames that answer no) - L(all its frames)

where L is that of one Gaussian; the leaf with the largest gain is split, until there are enough.
Leaves of one tree that lie far apart in it may still be alike: those that lose less by sharing a
Gaussian than the poorest split gained are merged.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.gmm.clustering import log_likelihood, merge_least_losses
from natgrad.speech.gmm.questions import Questions
from natgrad.speech.gmm.tree_statistics import LEFT, PHONE, POSITION, RIGHT, TreeStatistics
from natgrad.speech.hmm import Topology
from natgrad.speech.phones import PhoneSet

__all__ = ["GrowingTrees", "number_leaves", "plant", "question_gains"]

Doubles = NDArray[np.float64]
Rows = NDArray[np.int64]


def question_gains(
    contexts: NDArray[np.int32], moments: Doubles, questions: Questions, least_count: float
) -> Doubles:
    """Return the gain of each question, (Q,), if asked of all these contexts.

    It is minus infinity where either answer has less than `least_count` frames.
    """
    total = moments.sum(axis=0)
    yes = np.empty((len(questions), moments.shape[1]))
    for column in (LEFT, PHONE, RIGHT):
        asked = questions.column == column
        members = questions.members[asked][:, contexts[:, column]]
        yes[asked] = members.astype(np.float64) @ moments
    no = total - yes
    is_possible = (yes[:, 0] >= least_count) & (no[:, 0] >= least_count)
    gains = np.full(len(questions), -np.inf)
    after = log_likelihood(yes[is_possible]) + log_likelihood(no[is_possible])
    gains[is_possible] = after - log_likelihood(total)
    return gains


@dataclass
class GrowingTrees:
    """Trees while they grow; `rows` are the contexts of each node."""

    statistics: TreeStatistics
    questions: Questions
    least_count: float
    rows: list[Rows] = field(default_factory=list)
    question: list[int] = field(default_factory=list)
    yes: list[int] = field(default_factory=list)
    no: list[int] = field(default_factory=list)

    def add_leaf(self, rows: Rows) -> int:
        """Add a node of these contexts, without a question; return its number."""
        self.rows.append(rows)
        for values in (self.question, self.yes, self.no):
            values.append(-1)
        return len(self.rows) - 1

    def split(self, nodes: list[int], num_leaves: int, least_gain: float) -> float:
        """Split these nodes and what comes of them; return the smallest gain of a split made."""
        missing = num_leaves - len(self.rows)
        queue = [entry for node in nodes for entry in self._best_split(node)]
        heapq.heapify(queue)
        smallest_gain = math.inf
        while queue and missing > 0 and -queue[0][0] >= least_gain:
            loss, node, question = heapq.heappop(queue)
            smallest_gain = min(smallest_gain, -loss)
            self._ask(node, question)
            missing -= 1
            for child in (self.yes[node], self.no[node]):
                for entry in self._best_split(child):
                    heapq.heappush(queue, entry)
        return smallest_gain

    def _best_split(self, node: int) -> list[tuple[float, int, int]]:
        rows = self.rows[node]
        moments = self.statistics.moments[rows]
        if moments[:, 0].sum() < 2 * self.least_count or len(rows) < 2 or not len(self.questions):
            return []
        contexts = self.statistics.contexts[rows]
        gains = question_gains(contexts, moments, self.questions, self.least_count)
        best = int(np.argmax(gains))
        return [(-float(gains[best]), node, best)] if gains[best] > 0 else []

    def _ask(self, node: int, question: int) -> None:
        rows = self.rows[node]
        asked = self.statistics.contexts[rows, self.questions.column[question]]
        answer = self.questions.members[question, asked]
        self.question[node] = question
        self.yes[node], self.no[node] = self.add_leaf(rows[answer]), self.add_leaf(rows[~answer])


def plant(growing: GrowingTrees, phones: PhoneSet, topology: Topology) -> NDArray[np.int32]:
    """Add a root for each state of each sound; their nodes, (sounds, states)."""
    most_states = max(topology.speech_states, topology.silence_states)
    root = np.full((len(phones.sounds), most_states), -1, dtype=np.int32)
    contexts = growing.statistics.contexts
    kind = phones.sound_of[contexts[:, PHONE]] * most_states + contexts[:, POSITION]
    order = np.argsort(kind, kind="stable")
    bounds = np.searchsorted(kind[order], np.arange(root.size + 1))
    for sound in range(len(phones.sounds)):
        phone = int(np.argmax(phones.sound_of == sound))
        for position in range(topology.num_states(phones, phone)):
            place = sound * most_states + position
            root[sound, position] = growing.add_leaf(order[bounds[place] : bounds[place + 1]])
    return root


def number_leaves(
    growing: GrowingTrees, root: NDArray[np.int32], largest_loss: float
) -> NDArray[np.int32]:
    """The pdf of each leaf: the leaves of each root get the next numbers; -1 for other nodes."""
    leaf_pdf = np.full(len(growing.rows), -1, dtype=np.int32)
    num_pdfs = 0
    for node in root[root >= 0].tolist():
        leaves = _leaves_below(growing, node)
        moments = [growing.statistics.moments[growing.rows[leaf]].sum(axis=0) for leaf in leaves]
        cluster = np.arange(len(leaves))
        for one, other in merge_least_losses(np.stack(moments), largest_loss):
            cluster[cluster == other] = one
        _, numbers = np.unique(cluster, return_inverse=True)
        leaf_pdf[leaves] = num_pdfs + numbers
        num_pdfs += int(numbers.max()) + 1
    return leaf_pdf


def _leaves_below(growing: GrowingTrees, node: int) -> list[int]:
    leaves, pending = [], [node]
    while pending:
        current = pending.pop()
        if growing.question[current] < 0:
            leaves.append(current)
        else:
            pending += [growing.no[current], growing.yes[current]]
    return leaves
