from __future__ import annotations

import numpy as np

from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.fst import graph_of_arcs
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.hmm_fst import expand_phones
from tests.speech.toy_graphs import labels_of_phones, paths, world

TOY = world("A:AH, B:B AH", triphones=True, marks_position=False)
SIL, AH, B = (TOY.phones.symbols.number(name) for name in ("SIL", "AH", "B"))
LABELS = ContextLabels(TOY.tree, TOY.states)


def expand(arcs: list[tuple[int, int, int, float, int]], windows: list[list[int]]) -> Graph:
    source, label, word, weight, target = zip(*arcs, strict=True)
    final = np.full(1 + max(target), np.inf)
    final[-1] = 0.5
    graph = graph_of_arcs(source, label, word, weight, target, final)
    return expand_phones(graph, windows, LABELS)


def test_phone_becomes_its_states_with_word_and_cost_on_the_first() -> None:
    expanded = expand([(0, 1, 7, 1.5, 1), (1, 2, 0, 0.25, 2)], [[], [0, SIL, B], [SIL, B, 0]])
    assert expanded.word.tolist() == [7, 0, 0, 0, 0]
    assert expanded.weight[expanded.first_arc[1]] == 0.25
    (path,) = paths(expanded, 10)
    assert (path.labels, path.cost) == (labels_of_phones(TOY, (SIL, B)), 1.5 + 0.25 + 0.5)


def test_symbols_take_no_state_and_have_labels_after_all_states() -> None:
    expanded = expand([(0, 1, 0, 0.0, 1), (1, 2, 0, 0.0, 2), (2, 0, 0, 0.0, 3)], [[], [0], [-9]])
    assert expanded.num_states == 4
    assert expanded.label.tolist() == [len(TOY.states) + 2, len(TOY.states) + 3, 0]


def test_phones_to_one_state_share_their_last_states_where_labels_are_the_same() -> None:
    windows = [[], *([left, AH, 0] for left in (0, SIL, AH, B))]
    rows = LABELS.of([0, SIL, AH, B], [AH] * 4, [0] * 4)
    expanded = expand([(0, label, 0, 0.0, 1) for label in (1, 2, 3, 4)], windows)
    assert expanded.num_states == 2 + len(np.unique(rows[:, 1]))
    assert len(np.unique(rows[:, 1])) < 4
    found = sorted(path.labels for path in paths(expanded, 10))
    assert found == sorted(map(tuple, rows[:, :2].tolist()))
