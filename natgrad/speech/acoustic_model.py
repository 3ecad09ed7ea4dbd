"""A GMM-HMM: all that is needed to score frames, and to build graphs for the scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.run.model_file import Model, read_of_kind, write_model
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.tree import DecisionTree
from natgrad.speech.hmm import ContextTree, HmmStates, MonophoneTree, Topology
from natgrad.speech.phones import PhoneSet

__all__ = ["AcousticModel"]

KIND = "acoustic model"


@dataclass(frozen=True, eq=False)
class AcousticModel:
    """What a frame looks like in each state of each phone.

    Args:
        front_end: makes the features.
        tree: the pdf of a phone's state in its context.
        states: all HMM states.
        gmms: of the pdfs.
        unadapted: for features of a speaker that there is no transform of yet; None if the
            mixtures are for those anyway.
    """

    front_end: FrontEnd
    tree: ContextTree
    states: HmmStates
    gmms: GmmSet
    unadapted: GmmSet | None = None

    def write(self, path: str | Path) -> None:
        """Write a model file."""
        arrays: dict[str, NDArray[Any]] = {
            **self.front_end.to_arrays(),
            "self_loop": self.states.self_loop,
            **_prefixed("gmms", self.gmms.to_arrays()),
        }
        if self.unadapted is not None:
            arrays |= _prefixed("unadapted", self.unadapted.to_arrays())
        if isinstance(self.tree, DecisionTree):
            arrays |= _prefixed("tree", self.tree.to_arrays())
        phones, topology = self.states.phones, self.states.topology
        description = {
            "kind": KIND,
            "silences": phones.silences,
            "speech": phones.speech,
            "marks_position": phones.marks_position,
            "speech_states": topology.speech_states,
            "silence_states": topology.silence_states,
        }
        tensors = {
            name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()
        }
        write_model(path, tensors, description)

    @staticmethod
    def read(path: str | Path) -> AcousticModel:
        """Read the model file that `write` wrote.

        Raises:
            ModelFileError: it is missing, damaged, or of another kind; it is named.
        """
        return read_of_kind(path, KIND, AcousticModel._of)

    @staticmethod
    def _of(model: Model) -> AcousticModel:
        about = model.description
        arrays = {name: tensor.numpy() for name, tensor in model.tensors.items()}
        phones = PhoneSet(tuple(about["silences"]), tuple(about["speech"]), about["marks_position"])
        topology = Topology(about["speech_states"], about["silence_states"])
        of_tree = _with_prefix("tree", arrays)
        tree: ContextTree = (
            DecisionTree.from_arrays(of_tree, phones, topology)
            if of_tree
            else MonophoneTree(phones, topology)
        )
        unadapted = _with_prefix("unadapted", arrays)
        states = HmmStates.of(phones, topology, tree, arrays["self_loop"])
        gmms = GmmSet.from_arrays(_with_prefix("gmms", arrays))
        if (len(states.self_loop), gmms.num_pdfs) != (len(states), tree.num_pdfs):
            raise ValueError(
                f"its tree has {len(states)} states and {tree.num_pdfs} pdfs, and there are "
                f"self-loops of {len(states.self_loop)} and mixtures of {gmms.num_pdfs}"
            )
        return AcousticModel(
            FrontEnd.from_arrays(arrays),
            tree,
            states,
            gmms,
            GmmSet.from_arrays(unadapted) if unadapted else None,
        )


def _prefixed(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _with_prefix(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{prefix}."
    return {name[len(start) :]: a for name, a in arrays.items() if name.startswith(start)}
