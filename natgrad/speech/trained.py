"""A trained model with how it sees its training data: what the next model is trained from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.run.model_file import Model, read_of_kind, write_model
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import SpeakerTransforms

__all__ = [
    "Alignments",
    "Trained",
    "read_alignments",
    "read_transforms",
    "write_alignments",
    "write_transforms",
]

Alignments = Mapping[str, NDArray[np.int32]]  # the HMM states of all frames, by utterance

MODEL, ALIGNMENTS, TRANSFORMS = (
    f"{name}.safetensors" for name in ("model", "alignments", "transforms")
)
ALIGNMENTS_KIND, TRANSFORMS_KIND = "alignments", "speaker transforms"


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, the alignments it was trained on, and the speakers' transforms if it has any."""

    model: AcousticModel
    alignments: Alignments
    transforms: SpeakerTransforms | None = None
    failures: Mapping[str, str] = field(default_factory=dict)  # utterances without alignment

    def write(self, directory: str | Path) -> None:
        """Write all of it in a directory, which is made if need be."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        if self.transforms is None:
            (directory / TRANSFORMS).unlink(missing_ok=True)  # of another model
        else:
            write_transforms(directory / TRANSFORMS, self.transforms)
        write_alignments(directory / ALIGNMENTS, self.alignments, self.failures)
        self.model.write(directory / MODEL)

    @staticmethod
    def read(directory: str | Path) -> Trained:
        """Read what `write` wrote."""
        directory = Path(directory)
        transforms = directory / TRANSFORMS
        alignments, failures = read_alignments(directory / ALIGNMENTS)
        return Trained(
            AcousticModel.read(directory / MODEL),
            alignments,
            read_transforms(transforms) if transforms.exists() else None,
            failures,
        )


def write_alignments(
    path: str | Path, alignments: Alignments, failures: Mapping[str, str] | None = None
) -> None:
    """Write alignments, and why other utterances have none."""
    keys = sorted(alignments)
    states = np.concatenate([np.empty(0, np.int32), *(alignments[key] for key in keys)])
    about = {
        "kind": ALIGNMENTS_KIND,
        "keys": keys,
        "num_frames": [len(alignments[key]) for key in keys],
        "failures": dict(failures or {}),
    }
    write_model(path, {"states": torch.from_numpy(states)}, about)


def read_alignments(path: str | Path) -> tuple[dict[str, NDArray[np.int32]], dict[str, str]]:
    """Read alignments, and why other utterances have none."""
    return read_of_kind(path, ALIGNMENTS_KIND, _alignments_of)


def _alignments_of(model: Model) -> tuple[dict[str, NDArray[np.int32]], dict[str, str]]:
    about, states = model.description, model.tensors["states"].numpy()
    bounds = np.cumsum([0, *about["num_frames"]])
    if bounds[-1] != len(states):
        raise ValueError(f"utterances of {bounds[-1]} frames, and {len(states)} states")
    parts = [states[begin:end] for begin, end in pairwise(bounds)]
    return dict(zip(about["keys"], parts, strict=True)), about["failures"]


def write_transforms(path: str | Path, transforms: SpeakerTransforms) -> None:
    """Write speakers' transforms."""
    tensors = {name: torch.from_numpy(matrix) for name, matrix in sorted(transforms.items())}
    write_model(path, tensors, {"kind": TRANSFORMS_KIND})


def read_transforms(path: str | Path) -> dict[str, NDArray[np.float64]]:
    """Read speakers' transforms."""
    return read_of_kind(
        path,
        TRANSFORMS_KIND,
        lambda model: {name: tensor.numpy() for name, tensor in model.tensors.items()},
    )
