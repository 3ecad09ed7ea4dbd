"""Small models, and literal lists of all that a graph accepts, one path after another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.hmm import ContextTree, HmmStates, MonophoneTree, Topology
from natgrad.speech.lexicon.lexicon import Lexicon, Pronunciation
from natgrad.speech.phones import PhoneSet
from natgrad.speech.symbols import Symbols

Ints = NDArray[np.int32]

Said = tuple[tuple[int, ...], float]  # phones and their probability

PER_STATE = 3  # pdfs that a state of speech can have in the toy tree


@dataclass(frozen=True)
class ToyTree:
    """Triphones: a state's pdf is one of three, by an arbitrary rule; silence has one."""

    phones: PhoneSet
    topology: Topology
    context_width: int = 3

    @cached_property
    def first_pdfs(self) -> dict[tuple[int, int], list[int]]:
        found: dict[tuple[int, int], list[int]] = {}
        num_pdfs = 0
        for phone in range(1, len(self.phones)):
            count = 1 if phone in self.phones.silence_numbers else PER_STATE
            for position in range(self.topology.num_states(self.phones, phone)):
                found[phone, position] = list(range(num_pdfs, num_pdfs + count))
                num_pdfs += count
        return found

    @property
    def num_pdfs(self) -> int:
        return 1 + max(max(pdfs) for pdfs in self.first_pdfs.values())

    def pdf(self, left: Ints, phone: Ints, right: Ints, position: int) -> Ints:
        triples = zip(left.tolist(), phone.tolist(), right.tolist(), strict=True)
        return np.array([self.pdf_of_one(*t, position) for t in triples], dtype=np.int32)

    def pdf_of_one(self, left: int, phone: int, right: int, position: int) -> int:
        pdfs = self.first_pdfs[phone, position]
        return pdfs[(left * (position + 1) + 2 * right + (left * right) % 5) % len(pdfs)]

    def pdfs_of_phone(self, phone: int, position: int) -> list[int]:
        return self.first_pdfs[phone, position]


@dataclass(frozen=True)
class World:
    """A lexicon with models for it."""

    lexicon: Lexicon
    words: Symbols
    tree: ContextTree
    states: HmmStates

    @property
    def phones(self) -> PhoneSet:
        return self.states.phones


def world(
    entries: str, *, triphones: bool, marks_position: bool = True, silence_probability: float = 0.3
) -> World:
    """Return models for a lexicon written "WORD:SOUND SOUND/probability, WORD:SOUND"."""
    ways = []
    for entry in entries.split(","):
        word, _, said = entry.strip().partition(":")
        sounds, _, probability = said.partition("/")
        ways.append(Pronunciation(word, tuple(sounds.split()), float(probability or 1.0)))
    lexicon = Lexicon(ways, silence_probability=silence_probability)
    phones = lexicon.phone_set(marks_position)
    topology = Topology(speech_states=2, silence_states=3)
    tree: ContextTree = MonophoneTree(phones, topology)
    if triphones:
        tree = ToyTree(phones, topology)
    states = HmmStates.of(phones, topology, tree)
    spread = np.linspace(0.2, 0.9, len(states))
    states = HmmStates(
        phones, topology, states.phone, states.position, states.pdf, spread, states.num_pdfs
    )
    return World(lexicon, word_symbols(lexicon), tree, states)


class Accepted(NamedTuple):
    """One way through a graph: labels (each HMM state once), words, and the cost of it all."""

    labels: tuple[int, ...]
    words: tuple[int, ...]
    cost: float


def labels_of_phones(world: World, phones: tuple[int, ...]) -> tuple[int, ...]:
    """Return the labels of a whole utterance's phones, by the definition."""
    labels = []
    for place, phone in enumerate(phones):
        left = phones[place - 1] if place else 0
        right = phones[place + 1] if place + 1 < len(phones) else 0
        for position in range(world.states.topology.num_states(world.phones, phone)):
            at_left, here, at_right = (np.array([x], np.int32) for x in (left, phone, right))
            pdf = int(world.tree.pdf(at_left, here, at_right, position)[0])
            labels.append(1 + world.states.number[phone, position, pdf])
    return tuple(labels)


def spoken(
    world: World, words: tuple[str, ...], scale: float, most_labels: int = 1000
) -> Iterator[Accepted]:
    """Yield all ways to say words, with the costs of lexicon, silences and leaving states."""
    probability = world.lexicon.silence_probability
    silence = world.phones.symbols.number(world.lexicon.silence)
    choices = [((silence,), probability), ((), 1.0 - probability)]

    def num_labels(phones: tuple[int, ...]) -> int:
        return sum(world.states.topology.num_states(world.phones, phone) for phone in phones)

    def ways(before: tuple[int, ...], rest: tuple[str, ...], likelihood: float) -> Iterator[Said]:
        for quiet, quiet_probability in choices:
            phones, so_far = before + quiet, likelihood * quiet_probability
            if num_labels(phones) > most_labels:
                continue
            if not rest:
                yield phones, so_far
                continue
            for way in world.lexicon.of(rest[0]):
                said = phones + world.phones.in_word(way.sounds)
                yield from ways(said, rest[1:], so_far * way.probability)

    numbers = tuple(world.words.number(word) for word in words)
    for phones, likelihood in ways((), words, 1.0):
        labels = labels_of_phones(world, phones)
        leaving = sum(math.log(1.0 - world.states.self_loop[label - 1]) for label in labels)
        yield Accepted(labels, numbers, -math.log(likelihood) - scale * leaving)


def paths(graph: Graph, most_labels: int) -> Iterator[Accepted]:
    """Yield every way through a graph with at most so many labels, self-loops not taken."""
    stack: list[tuple[int, Accepted]] = [(graph.start, Accepted((), (), 0.0))]
    while stack:
        state, (labels, words, cost) = stack.pop()
        if math.isfinite(graph.final[state]):
            yield Accepted(labels, words, cost + float(graph.final[state]))
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            label, word = int(graph.label[arc]), int(graph.word[arc])
            if graph.target[arc] == state:
                assert label
                continue
            now = labels + (label,) * (label > 0)
            if len(now) <= most_labels:
                then = Accepted(now, words + (word,) * (word > 0), cost + float(graph.weight[arc]))
                stack.append((int(graph.target[arc]), then))


def assert_same(found: list[Accepted], expected: list[Accepted], tolerance: float) -> None:
    """Refuse two lists that are not of the same labels, words and costs, each as often."""
    found, expected = sorted(found), sorted(expected)
    assert [path[:2] for path in found] == [path[:2] for path in expected]
    costs, expected_costs = ([path.cost for path in paths] for paths in (found, expected))
    np.testing.assert_allclose(costs, expected_costs, rtol=0, atol=tolerance)


def assert_self_loops_are_right(graph: Graph, world: World, scale: float) -> None:
    """Refuse a graph where a label does not lead to a state with a self-loop of that label."""
    source = np.repeat(np.arange(graph.num_states), np.diff(graph.first_arc))
    loops = source == graph.target
    label_of_loop = np.zeros(graph.num_states, dtype=np.int32)
    label_of_loop[source[loops]] = graph.label[loops]
    assert len(np.unique(source[loops])) == loops.sum()
    np.testing.assert_array_equal(graph.label[~loops], label_of_loop[graph.target[~loops]])
    assert not graph.word[loops].any()
    expected = -scale * np.log(world.states.self_loop[graph.label[loops] - 1])
    np.testing.assert_allclose(graph.weight[loops], expected, rtol=1e-5)


def random_graph(num_states: int, num_arcs: int, seed: int, acyclic: bool = False) -> Graph:
    """Return a graph of arcs between any states (from lower to higher ones, if acyclic)."""
    random = np.random.default_rng(seed)
    ends = random.integers(num_states, size=(2, num_arcs))
    if acyclic:
        ends = np.sort(ends, axis=0)[:, np.diff(np.sort(ends, axis=0), axis=0)[0] > 0]
    source, target = ends
    size = len(source)
    final = np.where(random.random(num_states) < 0.4, random.random(num_states), np.inf)
    return graph_of_arcs(
        source,
        random.integers(4, size=size),
        random.integers(3, size=size),
        random.random(size),
        target,
        final,
        start=0 if acyclic else int(random.integers(num_states)),
    )
