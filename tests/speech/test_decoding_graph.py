from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from natgrad.speech.graphs.decoding_graph import GraphError, decoding_graph, decoding_graph_file
from natgrad.speech.graphs.grammar_fst import restricted_to
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.graph_file import read_graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.hmm import HmmStates, MonophoneTree, Topology
from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.lm.arpa import read_arpa
from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE
from natgrad.speech.symbols import Symbols
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

SHARED = Path(__file__).parents[3] / "shared"
SCALE = 0.1
PER_ARC = 0.0005  # costs are rounded to multiples of 1/1024
MOST_LABELS = 8

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
            said[words] = list(spoken(toy, words, SCALE, MOST_LABELS))
        found += [way._replace(cost=way.cost + cost) for way in said[words]]
    return found


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("marks_position", [False, True])
@pytest.mark.parametrize("triphones", [False, True])
@pytest.mark.parametrize("entries", LEXICONS.values(), ids=LEXICONS.keys())
def test_graph_has_each_way_to_say_each_sentence_at_its_cost(
    entries: str, triphones: bool, marks_position: bool, order: int
) -> None:
    toy = world(entries, triphones=triphones, marks_position=marks_position)
    for seed in (0, 1):
        grammar = random_entries(sorted(toy.lexicon.words), order, seed)
        graph = graph_of(toy, grammar)
        found = list(paths(graph, MOST_LABELS))
        assert_same(found, accepted(toy, grammar), tolerance=2 * MOST_LABELS * PER_ARC)
        assert_self_loops_are_right(graph, toy, SCALE)


UNIGRAMS: Entries = {
    (BEGIN,): (IMPOSSIBLE, 0.0), (END,): (-1.0, 0.0), ("A",): (-1.0, 0.0), ("I",): (-2.0, 0.0),
}  # fmt: skip


def test_words_that_only_the_lexicon_has_do_not_occur() -> None:
    toy = world("A:AH, I:AY, U:UW", triphones=True)
    graph = graph_of(toy, UNIGRAMS)
    assert set(graph.word.tolist()) == {0, toy.words.number("A"), toy.words.number("I")}


def test_same_arguments_give_the_same_bits() -> None:
    toy = world(LEXICONS["homophones"], triphones=True)
    grammar = random_entries(sorted(toy.lexicon.words), 3, seed=5)
    one, other = graph_of(toy, grammar), graph_of(toy, grammar)
    for name in ("first_arc", "label", "word", "weight", "target", "final"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_cached_graph_is_the_one_that_was_made(tmp_path: Path) -> None:
    toy = world("A:AH, I:AY", triphones=True)
    arguments = (toy.lexicon, model_of(UNIGRAMS), toy.words, toy.tree, toy.states)
    made = decoding_graph(*arguments)
    file = decoding_graph_file(tmp_path / "graphs", *arguments)
    written = file.stat().st_mtime_ns
    read = read_graph(decoding_graph_file(tmp_path / "graphs", *arguments))
    assert file.stat().st_mtime_ns == written
    for name in ("start", "first_arc", "label", "word", "weight", "target", "final"):
        np.testing.assert_array_equal(getattr(made, name), getattr(read, name))
    decoding_graph_file(tmp_path / "graphs", *arguments, self_loop_scale=0.2)
    assert len(list((tmp_path / "graphs").iterdir())) == 2


def test_words_without_a_pronunciation_are_named() -> None:
    toy = world("A:AH", triphones=False)
    with pytest.raises(GraphError, match=r"1 words of the language model .*: I\. Add them"):
        graph_of(toy, UNIGRAMS)


def test_lexicon_with_a_sound_without_a_model_is_refused() -> None:
    toy, other = world("A:AH, I:AY", triphones=False), world("A:AH, I:AA IY", triphones=False)
    with pytest.raises(ValueError, match=r"word I is pronounced AA IY, .* no sound AA, IY"):
        decoding_graph(other.lexicon, model_of(UNIGRAMS), other.words, toy.tree, toy.states)


def test_words_without_numbers_are_refused() -> None:
    toy = world("A:AH, I:AY", triphones=False)
    with pytest.raises(ValueError, match="words of the language model have no number: I"):
        decoding_graph(toy.lexicon, model_of(UNIGRAMS), Symbols(["A"]), toy.tree, toy.states)


def test_grammar_without_sentences_is_refused() -> None:
    toy = world("A:AH, I:AY", triphones=False)
    endless = {**UNIGRAMS, (END,): (IMPOSSIBLE, 0.0)}
    with pytest.raises(GraphError, match="accepts no sentence"):
        graph_of(toy, endless)


def test_determinization_that_grows_too_far_is_given_up() -> None:
    toy = world(LEXICONS["homophones"], triphones=True)
    grammar = model_of(random_entries(sorted(toy.lexicon.words), 3, seed=5))
    with pytest.raises(GraphError, match=r"needs more than 10 states: prune the language model"):
        decoding_graph(toy.lexicon, grammar, toy.words, toy.tree, toy.states, most_states=10)


@pytest.mark.skipif(not (SHARED / "data/an4").exists(), reason="needs ../shared/data/an4")
def test_an4_has_a_graph_of_its_words_but_those_left_out() -> None:
    lexicon = read_lexicon(SHARED / "data/an4/etc/an4.dic")
    model = read_arpa(SHARED / "data/an4/etc/an4.ug.lm")
    phones, words, topology = lexicon.phone_set(), word_symbols(lexicon), Topology()
    tree = MonophoneTree(phones, topology)
    states = HmmStates.of(phones, topology, tree)
    with pytest.raises(GraphError, match="no pronunciation: <UNK>"):
        decoding_graph(lexicon, model, words, tree, states)
    left_out = {"HALL", "LANE", "MEMORY", "TWELVTH", "WEAN"}
    grammar = restricted_to(model, lexicon.words - left_out)
    graph = decoding_graph(lexicon, grammar, words, tree, states)
    spoken_words = {words.name(number) for number in set(graph.word.tolist()) - {0}}
    assert spoken_words == set(grammar.vocabulary) - {BEGIN, END}
    assert not spoken_words & left_out
    assert len(spoken_words) > 90
