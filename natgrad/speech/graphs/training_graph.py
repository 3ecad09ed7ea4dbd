"""Graphs of utterances whose words are known: alignments through them train the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.lexicon_fst import SilenceCosts, WordPhones, phones_of_word
from natgrad.speech.graphs.self_loops import TransitionCosts
from natgrad.speech.hmm import ContextTree, HmmStates
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.symbols import Symbols

__all__ = ["TrainingGraphs"]

NO_PHONE = 0  # beyond the edges of the utterance
START = 0


@dataclass(frozen=True, eq=False)
class TrainingGraphs:
    """Makes the graphs of utterances: any pronunciation of each word, silences between or not.

    There are no epsilons in them, every state but the first has a self-loop, and a word is on the
    arc that enters its first state.

    >>> from natgrad.speech.hmm import MonophoneTree, Topology
    >>> from natgrad.speech.lexicon.lexicon import Pronunciation
    >>> from natgrad.speech.graphs.lexicon_fst import word_symbols
    >>> lexicon = Lexicon([Pronunciation("A", ("AH",))])
    >>> phones, topology = lexicon.phone_set(), Topology(speech_states=2, silence_states=2)
    >>> tree = MonophoneTree(phones, topology)
    >>> states = HmmStates.of(phones, topology, tree)
    >>> graphs = TrainingGraphs(lexicon, word_symbols(lexicon), tree, states)
    >>> graph = graphs.graph(["A", "A"])
    >>> graph.num_states, graph.num_arcs
    (11, 22)
    """

    lexicon: Lexicon
    words: Symbols
    tree: ContextTree
    states: HmmStates
    self_loop_scale: float = 0.1

    def graph(self, words: Sequence[str]) -> Graph:
        """Return the graph of an utterance of these words.

        Raises:
            ValueError: if there are no words, or one that the lexicon does not have; it is named.
        """
        if not words:
            raise ValueError(
                "an utterance without words has no training graph: give it a transcript, or "
                "leave it out"
            )
        network = _PhoneNetwork.of_silence(*self._silence)
        for word in words:
            network.add_word(*self._word(word))
        return _expand(network, self._labels, self._costs)

    def _word(self, word: str) -> tuple[int, list[WordPhones]]:
        known = self._known_words
        if word not in known:
            ways = phones_of_word(self.lexicon, word, self.states.phones)
            if word not in self.words:
                raise ValueError(f"the word {word} has no number: number the words by word_symbols")
            known[word] = (self.words.number(word), ways)
        return known[word]

    @cached_property
    def _known_words(self) -> dict[str, tuple[int, list[WordPhones]]]:
        return {}

    @cached_property
    def _silence(self) -> tuple[int, SilenceCosts]:
        phone = self.states.phones.symbols.number(self.lexicon.silence)
        return phone, SilenceCosts.of(self.lexicon)

    @cached_property
    def _labels(self) -> ContextLabels:
        return ContextLabels(self.tree, self.states)

    @cached_property
    def _costs(self) -> TransitionCosts:
        return TransitionCosts.of(self.states, self.self_loop_scale)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass
class _PhoneNetwork:
    """The phones of an utterance, numbered in topological order, and which may follow which.

    Node 0 is the start, and no phone.
    """

    silence_phone: int
    silence_costs: SilenceCosts
    phone: list[int] = field(default_factory=list)
    word: list[int] = field(default_factory=list)  # that begins there, or 0
    following: list[list[tuple[int, float]]] = field(default_factory=list)  # nodes with costs
    last: list[tuple[int, float]] = field(default_factory=list)  # nodes to go on from, with costs

    @staticmethod
    def of_silence(silence_phone: int, silence_costs: SilenceCosts) -> _PhoneNetwork:
        """Return the network of no words: there may be silence."""
        network = _PhoneNetwork(silence_phone, silence_costs)
        network._end_word([network._add_node(NO_PHONE)])
        return network

    def add_word(self, word: int, pronunciations: Sequence[WordPhones]) -> None:
        """Append a word, and the silence that may follow it."""
        before, ends = self.last, []
        for phones, cost in pronunciations:
            node = self._add_node(phones[0], word)
            for previous, previous_cost in before:
                self.following[previous].append((node, previous_cost + cost))
            for phone in phones[1:]:
                self.following[node].append((len(self.phone), 0.0))
                node = self._add_node(phone)
            ends.append(node)
        self._end_word(ends)

    def _end_word(self, ends: Sequence[int]) -> None:
        silence = self._add_node(self.silence_phone)
        for node in ends:
            self.following[node].append((silence, self.silence_costs.present))
        self.last = [*((node, self.silence_costs.absent) for node in ends), (silence, 0.0)]

    def _add_node(self, phone: int, word: int = 0) -> int:
        self.phone.append(phone)
        self.word.append(word)
        self.following.append([])
        return len(self.phone) - 1


class _Copy(NamedTuple):
    """A node of the network between neighbours of its own; if they do not matter, they are 0."""

    node: int
    left: int
    right: int


class _Step(NamedTuple):
    """From the end of a copy (or from the start, -1) into another, which begins a word or not."""

    source: int
    target: int
    word: int
    cost: float


def _copy_per_context(network: _PhoneNetwork, depends_on_context: bool) -> list[_Copy]:
    phone = network.phone
    if not depends_on_context:
        return [_Copy(node, NO_PHONE, NO_PHONE) for node in range(1, len(phone))]
    lefts: list[set[int]] = [set() for _ in phone]
    rights: list[set[int]] = [set() for _ in phone]
    for node, following in enumerate(network.following):
        for other, _ in following:
            lefts[other].add(phone[node])
            rights[node].add(phone[other])
    for node, _ in network.last:
        rights[node].add(NO_PHONE)
    return [
        _Copy(node, left, right)
        for node in range(1, len(phone))
        for left in sorted(lefts[node])
        for right in sorted(rights[node])
    ]


def _steps(network: _PhoneNetwork, copies: Sequence[_Copy], depends: bool) -> list[_Step]:
    phone, word = network.phone, network.word
    entered: dict[tuple[int, int], list[int]] = {}
    for number, copy in enumerate(copies):
        entered.setdefault((copy.node, copy.left), []).append(number)
    steps = [
        _Step(-1, target, word[other], cost)
        for other, cost in network.following[START]
        for target in entered[other, NO_PHONE]
    ]
    for number, (node, _, right) in enumerate(copies):
        left = phone[node] if depends else NO_PHONE
        for other, cost in network.following[node]:
            if not depends or phone[other] == right:
                steps += [_Step(number, to, word[other], cost) for to in entered[other, left]]
    return steps


def _expand(network: _PhoneNetwork, labels: ContextLabels, costs: TransitionCosts) -> Graph:
    """Give each phone its states, in a row; state 0 is the start."""
    depends = labels.tree.context_width > 1
    copies = _copy_per_context(network, depends)
    node, left, right = np.array(copies, dtype=np.int32).T
    phone = np.array(network.phone, dtype=np.int32)[node]
    table = labels.of(left, phone, right)
    num_states = labels.num_states[phone].astype(np.int64)
    first = 1 + np.cumsum(num_states) - num_states
    last = np.append(first + num_states - 1, START)  # the start is copy -1
    final = np.full(1 + num_states.sum(), np.inf)
    for ending, cost in network.last:
        final[last[:-1][(node == ending) & (right == NO_PHONE)]] = cost

    steps = _steps(network, copies, depends)
    step_source, step_target, step_word = np.array([step[:3] for step in steps]).T
    states = np.arange(1, len(final))
    inner = np.delete(states, first - 1)  # those that are entered from the state before
    source = np.concatenate([states, inner - 1, last[step_source]])
    target = np.concatenate([states, inner, first[step_target]])
    label = np.append(0, table[table > 0])[target]
    weight = np.where(source == target, costs.stay[label], costs.leave[label])
    weight[len(states) + len(inner) :] += [step.cost for step in steps]
    word = np.zeros(len(source), dtype=np.int32)
    word[len(states) + len(inner) :] = step_word
    return graph_of_arcs(source, label, word, weight, target, final, START)
