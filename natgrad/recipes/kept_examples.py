"""A run goes on with the examples that it began with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from natgrad.atomic import write_atomically
from natgrad.data import Examples
from natgrad.data.examples import INDEX
from natgrad.run.config import ConfigError
from natgrad.run.directory import RunDirectory

__all__ = ["differing_examples", "keep_examples"]

FILE = "examples_began_with.json"


def keep_examples(run: RunDirectory, examples: Examples) -> None:
    """Write down what the examples are, or see that they are those that the run began with.

    Others in the same directory would give another plan in the middle of a run, and might validate
    on what it was trained on. Before the first model nothing is lost by others.
    """
    if run.last_iteration() is not None and (differing := differing_examples(run, examples)):
        raise ConfigError(
            f"the run in {run.path} began with other examples than those that are now in "
            f"{examples.directory}: {'; '.join(differing)}. Build them again as they were, or "
            "choose another run.directory, or remove that one"
        )
    facts = json.dumps(_facts(examples), indent=2).encode() + b"\n"
    write_atomically(run.path / FILE, [facts])


def differing_examples(run: RunDirectory, examples: Examples) -> list[str]:
    """Return in what the examples that the run began with are others.

    There is nothing to tell of a run that has not begun, or of one of an older version.
    """
    path = run.path / FILE
    return _differing(path, _facts(examples)) if path.exists() else []


def _facts(examples: Examples) -> dict[str, Any]:
    names = ("num_blocks", "num_samples", "num_classes", "input_dim", "num_jobs", "seed")
    facts = {name: getattr(examples, name) for name in names}
    # It has the sizes of all blocks, and the counts of classes.
    index = (examples.directory / INDEX).read_bytes()
    return {**facts, "index": hashlib.sha256(index).hexdigest()}


def _differing(path: Path, found: dict[str, Any]) -> list[str]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        differing = {name: kept[name] for name in found if kept[name] != found[name]}
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} is not what the run has written there ({error}): remove it, if the examples "
            "are surely those that the run began with"
        ) from error
    named = [
        f"{name} was {old} and is {found[name]}"
        for name, old in differing.items()
        if name != "index"
    ]
    return named or ["sizes of blocks, or counts of classes, are others" for _ in differing]
