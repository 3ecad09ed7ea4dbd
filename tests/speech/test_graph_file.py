from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from natgrad.run.model_file import ModelFileError, read_model, write_model
from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.graph_file import hash_of, make_once, read_graph, write_graph
from natgrad.speech.graphs.self_loops import TransitionCosts
from natgrad.speech.symbols import Symbols
from tests.speech.toy_grammars import model_of, random_entries
from tests.speech.toy_graphs import World, random_graph, world

ENTRIES = "A:AH, I:AY/0.5, I:AH"


def hash_here(
    toy: World, seed: int = 0, order: int = 2, scale: float = 0.1, algorithm: int = 1
) -> str:
    grammar = model_of(random_entries(["A", "I"], order, seed))
    costs = TransitionCosts.of(toy.states, scale)
    labels = ContextLabels(toy.tree, toy.states)
    return hash_of(toy.lexicon, grammar, toy.words, labels, costs, algorithm)


def test_hash_depends_on_all_that_a_graph_depends_on() -> None:
    toy = world(ENTRIES, triphones=True)
    other_probability = world(ENTRIES.replace("0.5", "0.6"), triphones=True)
    more_silence = world(ENTRIES, triphones=True, silence_probability=0.4)
    other_staying = replace(toy.states, self_loop=toy.states.self_loop**2)
    hashes = [
        hash_here(toy),
        hash_here(toy, seed=1),
        hash_here(toy, order=3),
        hash_here(toy, scale=0.2),
        hash_here(toy, algorithm=2),
        hash_here(other_probability),
        hash_here(more_silence),
        hash_here(replace(toy, states=other_staying)),
        hash_here(replace(toy, words=Symbols(["I", "A"]))),
        hash_here(world(ENTRIES, triphones=True, marks_position=False)),
        hash_here(world(ENTRIES, triphones=False)),
    ]
    assert len(set(hashes)) == len(hashes)


def test_hash_of_equal_things_is_the_same() -> None:
    assert hash_here(world(ENTRIES, triphones=True)) == hash_here(world(ENTRIES, triphones=True))


def test_graph_on_disk_is_made_once(tmp_path: Path) -> None:
    graphs = [random_graph(5, 9, seed=seed) for seed in (0, 1)]
    waiting = list(graphs)
    for _ in range(2):
        got = read_graph(make_once(tmp_path / "new", "key", lambda: waiting.pop(0)))
        np.testing.assert_array_equal(got.weight, graphs[0].weight)
        assert got.start == graphs[0].start
    assert len(waiting) == 1


def test_graph_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail() -> Graph:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        make_once(tmp_path / "new", "key", fail)
    assert list(tmp_path.iterdir()) == []


def test_damaged_graph_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "graph-key.safetensors"
    write_graph(path, random_graph(5, 9, seed=0))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match="graph-key"):
        read_graph(make_once(tmp_path, "key", lambda: random_graph(5, 9, seed=0)))


@pytest.mark.parametrize("name", ["first_arc", "label", "word", "weight", "target", "final"])
@pytest.mark.parametrize("more", [-1, 1])
def test_graph_whose_arrays_do_not_fit_together_is_refused_by_name(
    tmp_path: Path, name: str, more: int
) -> None:
    write_graph(tmp_path / "whole", random_graph(5, 9, seed=0))
    model = read_model(tmp_path / "whole")
    array = model.tensors[name]
    tensors = {**model.tensors, name: torch.cat([array, array[-1:]])[: len(array) + more]}
    write_model(tmp_path / "broken", tensors, model.description)
    with pytest.raises(ModelFileError, match=rf"broken is not a whole graph: .*{name} \d"):
        read_graph(tmp_path / "broken")


def test_graph_whose_arcs_are_out_of_order_or_without_a_start_is_refused_by_name(
    tmp_path: Path,
) -> None:
    write_graph(tmp_path / "whole", random_graph(5, 9, seed=0))
    model = read_model(tmp_path / "whole")
    write_model(tmp_path / "broken", model.tensors, {})
    with pytest.raises(ModelFileError, match="broken is not a whole graph: it has no start"):
        read_graph(tmp_path / "broken")
    first_arc = model.tensors["first_arc"].clone()
    for place, value in ((0, 1), (2, 9)):
        shifted = first_arc.clone()
        shifted[place] = value
        tensors = {**model.tensors, "first_arc": shifted}
        write_model(tmp_path / "broken", tensors, model.description)
        with pytest.raises(ModelFileError, match="broken is not a whole graph"):
            read_graph(tmp_path / "broken")


def test_file_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "other.safetensors", {}, {})
    with pytest.raises(ModelFileError, match=r"other\.safetensors is not a graph"):
        read_graph(tmp_path / "other.safetensors")
