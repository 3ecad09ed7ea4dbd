"""Lattices on disk: those of many utterances in one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from natgrad.run.model_file import read_model, write_model
from natgrad.speech.decoding.lattice import Lattice

__all__ = ["LatticeFileError", "read_lattices", "write_lattices"]

KIND = "lattices"
OF_STATES = ("frame", "final")
OF_ARCS = ("source", "target", "label", "word", "graph_cost", "acoustic_cost")


class LatticeFileError(ValueError):
    """A file that should hold lattices holds something else."""


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
        LatticeFileError: if it is a model file of another kind.
        ModelFileError: if it is not a model file, or not a whole one.
    """
    model = read_model(path)
    facts = model.description
    if facts.get("kind") != KIND:
        raise LatticeFileError(
            f"{path} holds {facts.get('kind', 'a model')!r}, not lattices: was another file meant?"
        )
    columns = {name: tensor.numpy() for name, tensor in model.tensors.items()}
    arcs_end = np.cumsum([0, *facts["num_arcs"]]).tolist()
    states_end = np.cumsum([0, *facts["num_states"]]).tolist()
    lattices = {}
    for place, key in enumerate(facts["utterances"]):
        states = slice(*states_end[place : place + 2])
        arcs = slice(*arcs_end[place : place + 2])
        lattices[key] = Lattice(
            num_frames=facts["num_frames"][place],
            reached_final=facts["reached_final"][place],
            **{name: columns[name][states].copy() for name in OF_STATES},
            **{name: columns[name][arcs].copy() for name in OF_ARCS},
        )
    return lattices
