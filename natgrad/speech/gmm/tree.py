"""A decision tree: which contexts of a phone's state share a distribution.

Each state of each sound has its own tree of questions on the phone's neighbours and on places in
the word; all phones of a sound (its places in the word) share it. Silences are never split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from natgrad.run.model_file import Model, read_of_kind, write_model
from natgrad.speech.gmm.clustering import VARIANCE_FLOOR
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.questions import Questions
from natgrad.speech.gmm.tree_growing import GrowingTrees, number_leaves, plant
from natgrad.speech.gmm.tree_statistics import LEFT, PHONE, POSITION, RIGHT, TreeStatistics
from natgrad.speech.hmm import Topology
from natgrad.speech.phones import PhoneSet

__all__ = ["DecisionTree", "build_tree"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int32]

KIND = "decision tree"
NODE_ARRAYS = ("root", "question", "yes", "no", "leaf_pdf")


@dataclass(frozen=True, eq=False)
class DecisionTree:
    """Trees of M nodes in all: a node has a question and two children, or it is a leaf with a pdf.

    It is a natgrad.speech.hmm.ContextTree.
    """

    phones: PhoneSet
    topology: Topology
    questions: Questions
    root: Ints  # (number of sounds, most states of a phone) a node, or -1 where there is no state
    question: Ints  # (M,) -1 in leaves
    yes: Ints  # (M,) the child if the answer is yes; -1 in leaves
    no: Ints  # (M,) the other child; -1 in leaves
    leaf_pdf: Ints  # (M,) -1 where it is not a leaf

    @property
    def context_width(self) -> int:
        """How many phones a pdf depends on."""
        return 3

    @property
    def num_pdfs(self) -> int:
        """The number of pdfs; leaves that were merged share one."""
        return int(self.leaf_pdf.max()) + 1

    def pdf(self, left: Ints, phone: Ints, right: Ints, position: int) -> Ints:
        """Return the pdf of states in context; see ContextTree."""
        contexts = np.broadcast_arrays(left, phone, right)
        roots = self.root[self.phones.sound_of[contexts[PHONE]], position]
        if (roots < 0).any():
            raise ValueError(
                f"the pdfs of state {position} were asked for, counted from 0, also of phones that "
                f"have fewer states; there are {self.topology}"
            )
        leaves = _find_leaves(
            np.stack([column.ravel() for column in contexts], axis=1).astype(np.int32),
            *(roots.ravel(), self.question, self.yes, self.no),
            *(self.questions.column, self.questions.members),
        )
        return np.asarray(self.leaf_pdf[leaves].reshape(roots.shape))

    def pdfs_of_phone(self, phone: int, position: int) -> list[int]:
        """Return the pdfs of a phone's state in all contexts; see ContextTree."""
        everyone = np.ones(len(self.phones), dtype=np.bool_)
        itself = np.arange(len(self.phones)) == phone
        found = set()
        pending = [(int(self.root[self.phones.sound_of[phone], position]), everyone, everyone)]
        while pending:
            node, lefts, rights = pending.pop()
            question = int(self.question[node])
            if question < 0:
                found.add(int(self.leaf_pdf[node]))
                continue
            column, members = self.questions.column[question], self.questions.members[question]
            for child, answers in ((self.yes[node], members), (self.no[node], ~members)):
                possible = [lefts, itself, rights]
                possible[column] = possible[column] & answers
                if possible[column].any():
                    pending.append((int(child), possible[LEFT], possible[RIGHT]))
        return sorted(found)

    def initial_gmms(
        self, statistics: TreeStatistics, variance_floor: float = VARIANCE_FLOOR
    ) -> GmmSet:
        """Return pdfs of one Gaussian each, the most likely of the frames that fall to them.

        A pdf without frames (as of a sound that was never said) gets the Gaussian of all frames.
        """
        moments = np.zeros((self.num_pdfs, statistics.moments.shape[1]))
        for position in range(self.root.shape[1]):
            rows = statistics.contexts[:, POSITION] == position
            contexts = statistics.contexts[rows]
            pdfs = self.pdf(contexts[:, LEFT], contexts[:, PHONE], contexts[:, RIGHT], position)
            np.add.at(moments, pdfs, statistics.moments[rows])
        moments[moments[:, 0] == 0] = statistics.moments.sum(axis=0)
        means, squares = np.split(moments[:, 1:] / moments[:, :1], 2, axis=1)
        return GmmSet.single(means, np.maximum(squares - means**2, variance_floor))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of this tree."""
        nodes = {name: getattr(self, name) for name in NODE_ARRAYS}
        return {**nodes, "column": self.questions.column, "members": self.questions.members}

    @staticmethod
    def from_arrays(
        arrays: Mapping[str, NDArray[Any]], phones: PhoneSet, topology: Topology
    ) -> DecisionTree:
        """Return the tree that `to_arrays` gave the arrays of."""
        questions = Questions(arrays["column"], arrays["members"])
        nodes = {name: arrays[name] for name in NODE_ARRAYS}
        return DecisionTree(phones, topology, questions, **nodes)

    def write(self, path: str | Path) -> None:
        """Write a model file."""
        tensors = {name: torch.from_numpy(array) for name, array in self.to_arrays().items()}
        phones, topology = asdict(self.phones), asdict(self.topology)
        write_model(path, tensors, {"kind": KIND, "phones": phones, "topology": topology})

    @staticmethod
    def read(path: str | Path) -> DecisionTree:
        """Read the model file that `write` wrote."""
        return read_of_kind(path, KIND, DecisionTree._of)

    @staticmethod
    def _of(model: Model) -> DecisionTree:
        arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        of_phones = model.description["phones"]
        phones = PhoneSet(
            tuple(of_phones["silences"]), tuple(of_phones["speech"]), of_phones["marks_position"]
        )
        return DecisionTree.from_arrays(arrays, phones, Topology(**model.description["topology"]))


@njit(cache=True)
def _find_leaves(
    contexts: Ints,
    roots: Ints,
    question: Ints,
    yes: Ints,
    no: Ints,
    column: Ints,
    members: Bools,
) -> Ints:
    leaves = roots.copy()
    for place in range(len(roots)):
        node = roots[place]
        while question[node] >= 0:
            asked = question[node]
            answer = members[asked, contexts[place, column[asked]]]
            node = yes[node] if answer else no[node]
        leaves[place] = node
    return leaves


def build_tree(
    statistics: TreeStatistics,
    phones: PhoneSet,
    topology: Topology,
    questions: Questions,
    num_leaves: int,
    least_count: float = 50.0,
    least_gain: float = 300.0,
    cluster: bool = True,
) -> DecisionTree:
    """Return the tree of `num_leaves` leaves, or of fewer where no split is worth it.

    Args:
        statistics: of all data.
        phones: the phones.
        topology: how many states they have.
        questions: see `derive_questions`.
        num_leaves: how many leaves to split to; merging leaves left 16 to 18 % fewer
            on LibriSpeech. Little data gives fewer, too: AN4 has about 600 of 1800.
        least_count: frames that a leaf of a split has at least.
        least_gain: log-likelihood that a split gains at least. (As neighbouring frames are much
            alike, also a random split of a leaf gains some 100 or 200.)
        cluster: merge leaves of a sound's state that are alike.
    """
    _check(statistics, phones, topology)
    growing = GrowingTrees(statistics, questions, least_count)
    root = plant(growing, phones, topology)
    num_roots = len(growing.rows)
    if num_leaves < num_roots:
        raise ValueError(
            f"num_leaves is {num_leaves}, but the states of all sounds need one each, which is "
            f"{num_roots}; ask for some hundreds more than that"
        )
    is_speech = [node for sound in root[len(phones.silences) :].tolist() for node in sound]
    smallest_gain = growing.split([node for node in is_speech if node >= 0], num_leaves, least_gain)
    leaf_pdf = number_leaves(growing, root, smallest_gain if cluster else -math.inf)
    question, yes, no = (
        np.array(values, dtype=np.int32) for values in (growing.question, growing.yes, growing.no)
    )
    return DecisionTree(phones, topology, questions, root, question, yes, no, leaf_pdf)


def _check(statistics: TreeStatistics, phones: PhoneSet, topology: Topology) -> None:
    num_states = [topology.num_states(phones, phone) for phone in range(len(phones))]
    phone, position = statistics.contexts[:, PHONE], statistics.contexts[:, POSITION]
    is_known = (phone > 0) & (phone < len(phones))
    is_known[is_known] = position[is_known] < np.array(num_states)[phone[is_known]]
    if not is_known.all():
        wrong = statistics.contexts[int(np.argmin(is_known))].tolist()
        raise ValueError(
            f"the statistics have the context (left, phone, right, position) {tuple(wrong)}, but "
            f"there are {len(phones) - 1} phones of up to {max(num_states)} states: were they "
            "accumulated with other phones or another topology?"
        )
