"""Graphs on disk, and a directory of those that were made, by the content of what they are of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.run.model_file import ModelFileError, read_model, write_model
from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.self_loops import TransitionCosts
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.lm.ngram import NgramModel
from natgrad.speech.symbols import Symbols

__all__ = ["hash_of", "make_once", "read_graph", "write_graph"]

ARRAYS = ("first_arc", "label", "word", "weight", "target", "final")


def write_graph(path: Path | str, graph: Graph) -> None:
    """Write a graph, atomically.

    >>> import tempfile
    >>> from natgrad.speech.graphs.fst import graph_of_arcs
    >>> path = Path(tempfile.mkdtemp()) / "graph.safetensors"
    >>> write_graph(path, graph_of_arcs([0], [1], [2], [0.5], [1], [np.inf, 0.0]))
    >>> read_graph(path).word
    array([2], dtype=int32)
    """
    tensors = {name: torch.from_numpy(getattr(graph, name)) for name in ARRAYS}
    write_model(path, tensors, {"start": graph.start})


def read_graph(path: Path | str) -> Graph:
    """Read a graph; raise ModelFileError, which names the file, if it is not a whole one."""
    model = read_model(path)
    if set(model.tensors) != set(ARRAYS):
        raise ModelFileError(
            f"{path} is not a graph: it has {', '.join(sorted(model.tensors)) or 'no arrays'}; "
            f"expected {', '.join(sorted(ARRAYS))}"
        )
    arrays = {name: model.tensors[name].numpy() for name in ARRAYS}
    if "start" not in model.description:
        raise ModelFileError(f"{path} is not a whole graph: it has no start; make it again")
    graph = Graph(start=model.description["start"], **arrays)
    if not _is_whole(graph):
        lengths = ", ".join(f"{name} {len(array)}" for name, array in arrays.items())
        raise ModelFileError(
            f"{path} is not a whole graph: its arrays do not fit together ({lengths}); it is "
            "damaged: make it again"
        )
    return graph


def _is_whole(graph: Graph) -> bool:
    """Return whether the arcs of the states are all arcs, and each array has one of each."""
    first = graph.first_arc
    arcs = (graph.label, graph.word, graph.weight, graph.target)
    if len(first) != graph.num_states + 1 or first[0] != 0 or (np.diff(first) < 0).any():
        return False
    return all(len(array) == first[-1] for array in arcs)


def make_once(directory: Path, key: str, make: Callable[[], Graph]) -> Path:
    """Return the file of the graph of that key; if it is not there, make and write it."""
    path = directory / f"graph-{key}.safetensors"
    if not path.exists():
        graph = make()
        directory.mkdir(parents=True, exist_ok=True)
        write_graph(path, graph)
    return path


def hash_of(
    lexicon: Lexicon,
    grammar: NgramModel,
    words: Symbols,
    labels: ContextLabels,
    costs: TransitionCosts,
    algorithm: int,
) -> str:
    """Return a hash of all that a decoding graph depends on.

    Of the tree, that is the labels of each phone between any two others: trees that give the same
    have the same hash, whatever is inside.
    """
    digest = hashlib.sha256(f"natgrad decoding graph {algorithm}".encode())
    phones = labels.states.phones
    silence = (lexicon.silence, lexicon.silence_probability)
    for text in (*lexicon.pronunciations, silence, *grammar.vocabulary, *words, *phones.symbols):
        digest.update(f"{text!r}\n".encode())
    arrays: list[NDArray[Any]] = [*costs]
    for table in grammar.orders:
        arrays += [table.ngrams, table.log_prob, table.backoff]
    for array in arrays:
        digest.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).data)
    left, right = np.indices((len(phones),) * 2, dtype=np.int32).reshape(2, -1)
    for phone in range(1, len(phones)):
        digest.update(labels.of(left, np.full_like(left, phone), right).data)
    return digest.hexdigest()[:32]
