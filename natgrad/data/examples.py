"""A directory of examples: what is in it, and where."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically

INDEX = "examples.json"
FORMAT = "natgrad examples"
VERSION = 1


class ExamplesError(ValueError):
    """A directory does not hold a finished, complete set of examples."""


@dataclass(frozen=True)
class BlockEntry:
    """What the index says of a block."""

    path: Path
    num_samples: int
    num_bytes: int


@dataclass(frozen=True, eq=False)
class Examples:
    """A set of examples on disk: N x M training blocks, and what belongs to them.

    Training block i is meant for job i % num_jobs of the epoch's outer iteration i // num_jobs.
    `validation` has whole segments that are not in training; `train_subset` has copies of training
    examples. Both are None if they were not asked for.
    """

    directory: Path
    feature_dim: int
    side_dim: int
    left_context: int
    right_context: int
    num_classes: int
    class_counts: NDArray[np.float64]  # of the training data, by weight
    num_jobs: int
    seed: int
    blocks: tuple[BlockEntry, ...]
    validation: BlockEntry | None
    train_subset: BlockEntry | None

    @property
    def input_dim(self) -> int:
        """Columns of a minibatch's features: all frames of the context, and the side vector."""
        return (self.left_context + 1 + self.right_context) * self.feature_dim + self.side_dim

    @property
    def num_blocks(self) -> int:
        """N x M."""
        return len(self.blocks)

    @property
    def num_samples(self) -> int:
        """Training examples."""
        return sum(block.num_samples for block in self.blocks)

    @property
    def num_bytes(self) -> int:
        """Of all training blocks."""
        return sum(block.num_bytes for block in self.blocks)

    @property
    def samples_per_block(self) -> float:
        """On average."""
        return self.num_samples / self.num_blocks

    @property
    def block_paths(self) -> tuple[Path, ...]:
        """Of the training blocks."""
        return tuple(block.path for block in self.blocks)


def open_examples(directory: Path | str) -> Examples:
    """The set of examples that `build` finished in a directory.

    Raises:
        ExamplesError: it is not there, not finished, of another version, or lacks a block.
    """
    directory = Path(directory)
    index = _read_index(directory)
    with _said_to_lack(directory):
        examples = _from_index(directory, index)
    extra = [entry for entry in (examples.validation, examples.train_subset) if entry is not None]
    for entry in (*examples.blocks, *extra):
        _check_is_there(entry)
    return examples


def block_path(directory: Path | str, number: int) -> Path:
    """The path of one training block, as `open_examples` would have it.

    The others are not looked at: there may be thousands, of which a job needs one.

    Raises:
        ExamplesError: as for `open_examples`, but only if it is this block that is lacking.
    """
    directory = Path(directory)
    index = _read_index(directory)
    with _said_to_lack(directory):
        entry = _entry_from_json(directory, index["blocks"][number])
    _check_is_there(entry)
    return entry.path


def _read_index(directory: Path) -> dict[str, Any]:
    try:
        index = json.loads((directory / INDEX).read_text())
    except FileNotFoundError:
        found = "there is no such directory" if not directory.exists() else f"it has no {INDEX}"
        raise ExamplesError(
            f"{directory}: not a finished set of examples, as {found}; build it with "
            "natgrad.data.build (a build that was interrupted can simply be run again)."
        ) from None
    except ValueError as error:
        raise ExamplesError(f"{directory / INDEX}: not valid JSON ({error}).") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise ExamplesError(f"{directory / INDEX}: not an index of examples.")
    if index.get("version") != VERSION:
        raise ExamplesError(
            f"{directory / INDEX}: of version {index.get('version')!r}, and this natgrad reads "
            f"version {VERSION}; build the examples again."
        )
    return index


@contextmanager
def _said_to_lack(directory: Path) -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError) as error:
        raise ExamplesError(f"{directory / INDEX}: lacks something ({error!r}).") from error


def write_index(examples: Examples) -> None:
    """Finish a set of examples: the last thing that is written."""
    index: dict[str, Any] = {
        name: value
        for name, value in vars(examples).items()
        if isinstance(value, int)  # dimensions, counts and the seed
    }
    index |= {"format": FORMAT, "version": VERSION}
    index["class_counts"] = examples.class_counts.tolist()
    index["blocks"] = [_entry_to_json(entry) for entry in examples.blocks]
    for name in ("validation", "train_subset"):
        entry = getattr(examples, name)
        index[name] = None if entry is None else _entry_to_json(entry)
    text = json.dumps(index, indent=1, sort_keys=True)
    write_atomically(examples.directory / INDEX, [text.encode()])


def _entry_to_json(entry: BlockEntry) -> dict[str, Any]:
    return {"file": entry.path.name, "samples": entry.num_samples, "bytes": entry.num_bytes}


def _entry_from_json(directory: Path, found: dict[str, Any]) -> BlockEntry:
    return BlockEntry(directory / found["file"], found["samples"], found["bytes"])


def _from_index(directory: Path, index: dict[str, Any]) -> Examples:
    optional = {
        name: None if index[name] is None else _entry_from_json(directory, index[name])
        for name in ("validation", "train_subset")
    }
    return Examples(
        directory=directory,
        feature_dim=index["feature_dim"],
        side_dim=index["side_dim"],
        left_context=index["left_context"],
        right_context=index["right_context"],
        num_classes=index["num_classes"],
        class_counts=np.array(index["class_counts"], dtype=np.float64),
        num_jobs=index["num_jobs"],
        seed=index["seed"],
        blocks=tuple(_entry_from_json(directory, found) for found in index["blocks"]),
        validation=optional["validation"],
        train_subset=optional["train_subset"],
    )


def _check_is_there(entry: BlockEntry) -> None:
    if not entry.path.exists():
        raise ExamplesError(f"{entry.path}: missing; copy it or build the examples again.")
    num_bytes = entry.path.stat().st_size
    if num_bytes != entry.num_bytes:
        raise ExamplesError(
            f"{entry.path}: it has {num_bytes} bytes but should have {entry.num_bytes}; copy it or "
            "build the examples again."
        )
