"""The directory of a run: who may write in it, and what is where.

config.json               the whole configuration
lock                      held by the process that drives the run
events.jsonl              what happened
models/0007.safetensors   the model after outer iteration 7; 0000 is the one to begin with
jobs/0007/3.safetensors   what job 3 of iteration 7 has trained, until it is averaged
final.safetensors         the result
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from natgrad.atomic import rename_durably, write_atomically
from natgrad.run.config import ConfigError
from natgrad.run.lock import RunInUseError, hold

__all__ = ["RunDirectory", "RunInUseError"]


class RunDirectory:
    """The names in a run's directory; nothing is written but by the methods that say so."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()  # jobs run elsewhere, with another working directory

    @property
    def config(self) -> Path:
        """The run's configuration, complete, as JSON."""
        return self.path / "config.json"

    @property
    def events(self) -> Path:
        """The run's events."""
        return self.path / "events.jsonl"

    @property
    def final(self) -> Path:
        """The model that the run is for."""
        return self.path / "final.safetensors"

    def model(self, iteration: int) -> Path:
        """The model after an outer iteration; 0 is the one that training begins with."""
        return self.path / "models" / f"{iteration:04d}.safetensors"

    def remodelled(self, iteration: int) -> Path:
        """The model that an iteration begins with, if its structure was changed before it."""
        return self.path / "models" / f"{iteration:04d}.start.safetensors"

    def job_result(self, iteration: int, job: int) -> Path:
        """What a job has trained."""
        return self.path / "jobs" / f"{iteration:04d}" / f"{job}.safetensors"

    @property
    def final_candidate(self) -> Path:
        """The final model before all has been said of it."""
        return self.path / "jobs" / "final.safetensors"

    def iterations(self) -> list[int]:
        """Return the outer iterations whose models are here, in order."""
        models = [file for file in self._models() if file.suffixes == [".safetensors"]]
        return sorted(int(file.stem) for file in models)

    def last_iteration(self) -> int | None:
        """Return the last outer iteration that is complete, or None before the first model."""
        return max(self.iterations(), default=None)

    def _models(self) -> list[Path]:
        return sorted((self.path / "models").glob("*.safetensors"))

    # -- what writes -----------------------------------------------------------------------------

    @contextmanager
    def drive(self) -> Iterator[None]:
        """Make the directory if need be, and be the only process that drives a run in it."""
        with hold(self.path):
            (self.path / "models").mkdir(exist_ok=True)
            yield

    def keep_config(self, config: Mapping[str, Any], free: tuple[str, ...] = ()) -> None:
        """Write the configuration, or see that it is the one that the run began with.

        The tables in `free` may differ from those the run began with: they are not compared.
        """
        if self.config.exists():
            before = json.loads(self.config.read_text(encoding="utf-8"))
            differing = [
                f"{key} was {_text(old)} and is {_text(new)}"
                for key, old, new in _differences(before, config)
                if key.split(".")[0] not in free
            ]
            if differing:
                raise ConfigError(
                    f"the run in {self.path} began with another configuration: "
                    f"{'; '.join(differing)}. Go on with the old one, or choose another directory"
                )
        write_atomically(self.config, [json.dumps(config, indent=2).encode() + b"\n"])

    def publish_final(self) -> None:
        """Let the final candidate be the final model: the run is over."""
        rename_durably(self.final_candidate, self.final)

    def remove_jobs(self) -> None:
        """Remove what jobs have left: all of it is in a model, or will be trained again."""
        shutil.rmtree(self.path / "jobs", ignore_errors=True)

    def prune_models(self, keep: set[int]) -> None:
        """Remove the models of all iterations but these."""
        for file in self._models():
            if int(file.name.split(".")[0]) not in keep:
                file.unlink(missing_ok=True)


def _differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in {**before, **after}:
            inner = f"{key}.{name}" if key else name
            yield from _differences(before.get(name), after.get(name), inner)
    elif before != after:
        yield key, before, after


def _text(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)
