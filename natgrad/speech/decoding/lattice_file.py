"""Lattices on disk: those of many utterances in one file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.run.model_file import Model, read_of_kind, write_model
from natgrad.speech.decoding.lattice import Lattice

__all__ = ["read_lattices", "write_lattices"]

KIND = "lattices"
OF_STATES = ("frame", "final")
OF_ARCS = ("source", "target", "label", "word", "graph_cost", "acoustic_cost")


def write_lattices(path: str | Path, lattices: Mapping[str, Lattice]) -> None:
    """Write the lattices of some utterances, by name, as one model file."""
    ordered = list(lattices.values())
    tensors = {
        name: torch.from_numpy(np.concatenate([getattr(lattice, name) for lattice in ordered]))
        for name in OF_STATES + OF_ARCS
        if ordered
    }
    description = {
        "kind": KIND,
        "utterances": list(lattices),
        "num_states": [lattice.num_states for lattice in ordered],
        "num_arcs": [lattice.num_arcs for lattice in ordered],
        "num_frames": [lattice.num_frames for lattice in ordered],
        "reached_final": [lattice.reached_final for lattice in ordered],
    }
    write_model(path, tensors, description)


def read_lattices(path: str | Path) -> dict[str, Lattice]:
    """Read the lattices of a file, by utterance.

    Raises:
        ModelFileError: it is missing, damaged, or of another kind, or its arrays have fewer or more
            states or arcs than it says; it is named.
    """
    return read_of_kind(path, KIND, _lattices_of)


def _lattices_of(model: Model) -> dict[str, Lattice]:
    facts = model.description
    of_states = _parts(model, OF_STATES, "num_states")
    of_arcs = _parts(model, OF_ARCS, "num_arcs")
    return {
        key: Lattice(facts["num_frames"][place], facts["reached_final"][place], **states, **arcs)
        for place, (key, states, arcs) in enumerate(
            zip(facts["utterances"], of_states, of_arcs, strict=True)
        )
    }


def _parts(model: Model, names: Sequence[str], count: str) -> list[dict[str, NDArray[Any]]]:
    """Return each lattice's part of some arrays, given what the description counts them by."""
    counts = model.description[count]
    num_utterances = len(model.description["utterances"])
    if len(counts) != num_utterances:
        raise ValueError(f"{count} has {len(counts)} values; expected {num_utterances}")
    if not counts and not model.tensors:
        return []
    ends = np.cumsum([0, *counts]).tolist()
    columns = {name: model.tensors[name].numpy() for name in names}
    for name, column in columns.items():
        if len(column) != ends[-1]:
            raise ValueError(f"{name} has {len(column)} values; expected {ends[-1]}, by {count}")
    return [
        {name: column[begin:end].copy() for name, column in columns.items()}
        for begin, end in itertools.pairwise(ends)
    ]
