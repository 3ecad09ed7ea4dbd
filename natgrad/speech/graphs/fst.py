"""Graphs as OpenFst's transducers and back, through OpenFst's own binary form."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import kaldifst
import numpy as np
from numpy.typing import ArrayLike

from natgrad.speech.graphs.graph import Graph

__all__ = ["from_fst", "graph_of_arcs", "to_fst"]

# A ConstFst on disk: header, states, arcs; all little-endian, nothing aligned.
MAGIC = 2125659606
FST_TYPE, ARC_TYPE = b"const", b"standard"
UNALIGNED_VERSION = 2
EXPANDED_PROPERTY = 1
HEADER = struct.Struct(f"<i i{len(FST_TYPE)}s i{len(ARC_TYPE)}s i i Q q q q")
STATE = np.dtype(
    [("final", "<f4"), ("first_arc", "<u4"), ("num_arcs", "<u4"), ("in_eps", "<u4"),
     ("out_eps", "<u4")]
)  # fmt: skip
ARC = np.dtype([("label", "<i4"), ("word", "<i4"), ("weight", "<f4"), ("target", "<i4")])


def graph_of_arcs(
    source: ArrayLike,
    label: ArrayLike,
    word: ArrayLike,
    weight: ArrayLike,
    target: ArrayLike,
    final: ArrayLike,
    start: int = 0,
) -> Graph:
    """Return the graph of arcs in any order; those of a state keep theirs.

    >>> graph = graph_of_arcs([1, 0], [5, 6], [0, 7], [0.5, 0.0], [1, 1], [np.inf, 0.0])
    >>> graph.first_arc, graph.label
    (array([0, 1, 2]), array([6, 5], dtype=int32))
    """
    source = np.asarray(source)
    order = np.argsort(source, kind="stable")
    final = np.asarray(final, dtype=np.float32)
    counts = np.bincount(source, minlength=len(final))
    return Graph(
        start=start,
        first_arc=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        label=np.asarray(label, dtype=np.int32)[order],
        word=np.asarray(word, dtype=np.int32)[order],
        weight=np.asarray(weight, dtype=np.float32)[order],
        target=np.asarray(target, dtype=np.int32)[order],
        final=final,
    )


def to_fst(graph: Graph) -> kaldifst.StdVectorFst:
    """Return a graph as a transducer from labels to words, in the tropical semiring."""
    states = np.zeros(graph.num_states, dtype=STATE)
    arcs = np.empty(graph.num_arcs, dtype=ARC)
    states["final"] = graph.final
    states["first_arc"] = graph.first_arc[:-1]
    states["num_arcs"] = np.diff(graph.first_arc)
    for name in ("label", "word", "weight", "target"):
        arcs[name] = getattr(graph, name)
    for name, labels in (("in_eps", graph.label), ("out_eps", graph.word)):
        before = np.concatenate([[0], np.cumsum(labels == 0)])
        states[name] = np.diff(before[graph.first_arc])
    header = HEADER.pack(
        MAGIC, len(FST_TYPE), FST_TYPE, len(ARC_TYPE), ARC_TYPE, UNALIGNED_VERSION, 0,
        EXPANDED_PROPERTY, graph.start, graph.num_states, graph.num_arcs,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="natgrad-fst-") as directory:
        path = Path(directory) / "graph.fst"
        with open(path, "wb") as file:
            file.write(header)
            file.write(states.data)
            file.write(arcs.data)
        return kaldifst.StdVectorFst(kaldifst.StdConstFst.read(str(path)))


def from_fst(fst: kaldifst.StdFst) -> Graph:
    """Return a transducer as a graph."""
    with tempfile.TemporaryDirectory(prefix="natgrad-fst-") as directory:
        path = Path(directory) / "graph.fst"
        if not kaldifst.StdConstFst(fst).write(str(path)):
            raise OSError(f"cannot write {path}: make room for temporary files")
        content = np.fromfile(path, dtype=np.uint8)
    *kind, version, _, _, start, num_states, num_arcs = HEADER.unpack(
        content[: HEADER.size].tobytes()
    )
    expected = [MAGIC, len(FST_TYPE), FST_TYPE, len(ARC_TYPE), ARC_TYPE]
    if kind != expected or version != UNALIGNED_VERSION:
        raise ValueError(f"OpenFst wrote {kind}, version {version}; expected {expected}, version 2")
    arcs_begin = HEADER.size + num_states * STATE.itemsize
    states = content[HEADER.size : arcs_begin].view(STATE)
    arcs = content[arcs_begin : arcs_begin + num_arcs * ARC.itemsize].view(ARC)
    return Graph(
        start=start,
        first_arc=np.append(states["first_arc"].astype(np.int64), num_arcs),
        label=arcs["label"].copy(),
        word=arcs["word"].copy(),
        weight=arcs["weight"].copy(),
        target=arcs["target"].copy(),
        final=states["final"].copy(),
    )
