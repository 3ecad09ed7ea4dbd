from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.decoding_graph import GraphError, decoding_graph
from natgrad.speech.graph import Graph
from natgrad.speech.ngram import BEGIN, END, IMPOSSIBLE, log_probability
from tests.speech.toy_grammars import Entries, model_of, random_entries, sentences
from tests.speech.toy_graphs import (
    Accepted,
    World,
    assert_same,
    assert_self_loops_are_right,
    paths,
    spoken,
    world,
)

SCALE = 0.1
PER_ARC = 0.0005  # costs are rounded to multiples of 1/1024
MOST_LABELS = 10

LEXICONS = {
    "variants and words of one phone": "A:AH, A:EY/0.25, I:AY",
    "homophones": "TWO:T UW, TO:T UW/0.5, TO:T AH, TOO:T UW, I:AY",
    "a word that begins another": "B:B EY, BE:B EY B, A:EY",
    "words that are silence, or have it inside": "A:AH, HUSH:SIL, HOLD:SIL SIL, AH:AH SIL",
}


def graph_of(toy: World, entries: Entries) -> Graph:
    return decoding_graph(
        toy.lexicon, model_of(entries), toy.words, toy.tree, toy.states, self_loop_scale=SCALE
    )


def accepted(toy: World, entries: Entries) -> list[Accepted]:
    """Return all sentences in all ways to say them, with the costs of both."""
    said: dict[tuple[str, ...], list[Accepted]] = {}
    found = []
    for words, cost in sentences(entries, most_words=MOST_LABELS // 2):
        if words not in said:
            ways = spoken(toy, words, SCALE)
            said[words] = [way for way in ways if len(way.labels) <= MOST_LABELS]
        found += [way._replace(cost=way.cost + cost) for way in said[words]]
    return found


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("marks_position", [False, True])
@pytest.mark.parametrize("triphones", [False, True])
@pytest.mark.parametrize("entries", LEXICONS.values(), ids=LEXICONS.keys())
def test_graph_has_each_way_to_say_each_sentence_at_its_cost(
    entries: str, triphones: bool, marks_position: bool, order: int, seed: int = 0
) -> None:
    toy = world(entries, triphones=triphones, marks_position=marks_position)
    grammar = random_entries(sorted(toy.lexicon.words), order, seed)
    graph = graph_of(toy, grammar)
    found = list(paths(graph, MOST_LABELS))
    assert_same(found, accepted(toy, grammar), tolerance=2 * MOST_LABELS * PER_ARC)
    assert_self_loops_are_right(graph, toy, SCALE)
