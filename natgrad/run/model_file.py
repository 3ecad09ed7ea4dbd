"""Model files: named tensors and what they are, in safetensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors
import safetensors.torch
from torch import Tensor

from natgrad.atomic import write_atomically

__all__ = ["Model", "ModelFileError", "read_model", "read_of_kind", "write_model"]

T = TypeVar("T")

METADATA_KEY = "natgrad"  # one key, as safetensors does not keep the order of several


class ModelFileError(ValueError):
    """A file that should be a model file is not, or not a whole one."""


@dataclass(frozen=True)
class Model:
    """The tensors of a model by name, and a JSON-able description of what they belong to."""

    tensors: dict[str, Tensor]
    description: dict[str, Any]


def write_model(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    description: Mapping[str, Any],
    durable: bool = True,
) -> None:
    """Write a model file atomically; the same arguments always give the same bytes.

    >>> import tempfile, torch
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> write_model(path, {"weight": torch.ones(2)}, {"layers": 1})
    >>> read_model(path)
    Model(tensors={'weight': tensor([1., 1.])}, description={'layers': 1})
    """
    metadata = {METADATA_KEY: json.dumps(description, sort_keys=True)}
    contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    write_atomically(Path(path), [safetensors.torch.save(contiguous, metadata)], durable)


def read_model(path: str | Path) -> Model:
    """Read a model file whole.

    Raises:
        ModelFileError: if it is missing, truncated, or of another kind; it names the file.
    """
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(f"{path} is a directory; expected a model file, NAME.safetensors")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no model file {path}") from error
    except (safetensors.SafetensorError, OSError) as error:
        raise ModelFileError(
            f"{path} is not a whole model file ({error}): was it cut short while copying? "
            "Expected a file in the safetensors format"
        ) from error
    if METADATA_KEY not in metadata:
        raise ModelFileError(
            f"{path} is in the safetensors format, but was not written by natgrad: its metadata "
            f"has no {METADATA_KEY!r}"
        )
    return Model(tensors, json.loads(metadata[METADATA_KEY]))


def read_of_kind(path: str | Path, kind: str, make: Callable[[Model], T]) -> T:
    """Return what a function makes of a model file whose description says that it is of a kind.

    Raises:
        ModelFileError: it is missing, of another kind, or the function finds something missing or
            amiss; it names the file.
    """
    model = read_model(path)
    found = model.description.get("kind")
    if found != kind:
        raise ModelFileError(f"{path} has {found!r} in it; expected {kind!r}")
    try:
        return make(model)
    except (LookupError, TypeError, ValueError) as error:
        lacks = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ModelFileError(
            f"{path} is not a whole file of {kind!r} ({lacks}): it is damaged, or of another "
            "version; make it again"
        ) from error
