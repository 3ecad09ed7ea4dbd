"""The directory of a run: who may write in it, and what is where.

config.json               the whole configuration
lock                      held by the process that drives the run
events.jsonl              what happened
models/0007.safetensors   the model after outer iteration 7; 0000 is the one to begin with
jobs/0007/3.safetensors   what job 3 of iteration 7 has trained, until it is averaged
final.safetensors         the result

Where an iteration leaves more to the next than its model, until the next is complete:

models/0007.next.safetensors      what jobs begin with after iteration 7: its outer step's end
models/0007.momentum.safetensors  the momentum of the outer optimizer
states/0007/3-of-16.safetensors   what the optimizer of a job has learned
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from natgrad.atomic import leftovers, rename_durably, write_atomically
from natgrad.run.config import ConfigError
from natgrad.run.lock import RunInUseError, hold

__all__ = ["RunDirectory", "RunInUseError"]

ITERATION = r"[0-9]{4}|[1-9][0-9]{4,}"  # as :04d writes it
PLACE_NAME = re.compile(ITERATION)
MODEL_NAME = re.compile(rf"({ITERATION})(\.start|\.next|\.momentum)?\.safetensors")
STATE_NAME = re.compile(r"[0-9]+-of-([0-9]+)\.safetensors")
OWN_PLACES = ("models", "jobs", "jobs/*", "states/*")
OWN_PATH_KEY = "run.directory"
PATH_KEYS = ("data.examples", "network.transfer_from")


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

    def next_start(self, iteration: int) -> Path:
        """Where an iteration's outer step leads: what the jobs of the next begin with."""
        return self.path / "models" / f"{iteration:04d}.next.safetensors"

    def momentum(self, iteration: int) -> Path:
        """The outer optimizer's momentum after an iteration."""
        return self.path / "models" / f"{iteration:04d}.momentum.safetensors"

    def job_state(self, iteration: int, job: int) -> Path:
        """What the optimizer of a job has learned, beside what the job has trained."""
        return self.path / "jobs" / f"{iteration:04d}" / f"{job}.state.safetensors"

    def states(self, iteration: int, num: int) -> list[Path]:
        """The states that an iteration leaves to the jobs of the next, if it leaves so many."""
        place = self._place_of_states(iteration)
        return [place / f"{index}-of-{num}.safetensors" for index in range(num)]

    def states_left(self, iteration: int) -> list[Path]:
        """Return all states that an iteration has left, also those that were lost since."""
        found = self._place_of_states(iteration).glob("*-of-*.safetensors")
        names = [STATE_NAME.fullmatch(file.name) for file in found]
        num = max((int(name[1]) for name in names if name), default=0)
        return self.states(iteration, num)

    def _place_of_states(self, iteration: int) -> Path:
        return self.path / "states" / f"{iteration:04d}"

    @property
    def final_candidate(self) -> Path:
        """The final model before all has been said of it."""
        return self.path / "jobs" / "final.safetensors"

    def iterations(self) -> list[int]:
        """Return the outer iterations whose models are here, in order."""
        return sorted(number for number, kind, _ in self._models() if kind is None)

    def last_iteration(self) -> int | None:
        """Return the last outer iteration that is complete, or None before the first model."""
        return max(self.iterations(), default=None)

    def _models(self) -> Iterator[tuple[int, str | None, Path]]:
        """Yield iteration, kind (as ".next") and path of the models; files of others are left out.

        Somebody may have put a "best.safetensors" beside them.
        """
        for file in sorted((self.path / "models").glob("*.safetensors")):
            if name := MODEL_NAME.fullmatch(file.name):
                yield int(name[1]), name[2], file

    # -- what writes -----------------------------------------------------------------------------

    @contextmanager
    def drive(self) -> Iterator[None]:
        """Make the directory if need be, and be the only process that drives a run in it."""
        with hold(self.path, OWN_PLACES):
            (self.path / "models").mkdir(exist_ok=True)
            yield

    def keep_config(
        self,
        config: Mapping[str, Any],
        free: tuple[str, ...] = (),
        added: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write the configuration, or see that it is the one that the run began with.

        The tables in `free` may differ from those the run began with: they are not compared.
        `added` are tables and keys that older runs do not have, with what they mean by that.
        """
        differing = self.differences(config, free, added)
        if differing:
            raise ConfigError(
                f"the run in {self.path} began with another configuration: "
                f"{'; '.join(differing)}. Go on with the old one, or choose another directory"
            )
        write_atomically(self.config, [json.dumps(config, indent=2).encode() + b"\n"])

    def differences(
        self,
        config: Mapping[str, Any],
        free: tuple[str, ...] = (),
        added: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[str]:
        """Return in what the configuration that the run began with, if it did, is another.

        How a path is written does not count ("./ex" is "ex"), nor what the run's own directory was
        called: it may have been moved.

        Raises:
            ConfigError: if what the run has kept is damaged.
        """
        if not self.config.exists():
            return []
        before = _with_added(self._kept_config(), added or {})
        return [
            f"{key} was {_text(old)} and is {_text(new)}"
            for key, old, new in _differences(before, config)
            if key.split(".")[0] not in free and not _is_same_path(key, old, new)
        ]

    def _kept_config(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.config.read_text(encoding="utf-8"))
        except ValueError as error:  # no UTF-8, or no JSON
            raise ConfigError(self._damaged_config(str(error))) from error
        if not isinstance(kept, dict):
            raise ConfigError(self._damaged_config(f"it is {_text(kept)[:60]}"))
        return kept

    def _damaged_config(self, found: str) -> str:
        return (
            f"{self.config} is not the configuration that the run has written there ({found}): "
            "expected a JSON object. Take it from a copy of the run, or remove it, if the "
            "configuration is surely the one that the run began with"
        )

    def publish_final(self) -> None:
        """Let the final candidate be the final model: the run is over."""
        rename_durably(self.final_candidate, self.final)

    def remove_jobs(self) -> None:
        """Remove what jobs have left: all of it is in a model, or will be trained again."""
        place = self.path / "jobs"
        for iteration in place.glob("*"):
            if PLACE_NAME.fullmatch(iteration.name):
                shutil.rmtree(iteration, ignore_errors=True)
        with suppress(OSError):  # there is none, or somebody else's files are in it
            for file in leftovers(place):
                file.unlink()
            place.rmdir()

    def clear_states(self, iteration: int) -> None:
        """Make an empty place for the states of an iteration, whatever a crash has left there."""
        place = self._place_of_states(iteration)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)

    def keep_job_states(self, iteration: int, jobs: Sequence[int]) -> None:
        """Let the states of these jobs be those that an iteration leaves, numbered from 0."""
        self.clear_states(iteration)
        for job, state in zip(jobs, self.states(iteration, len(jobs)), strict=True):
            rename_durably(self.job_state(iteration, job), state)

    def prune_handover(self, last: int | None = None) -> None:
        """Remove what iterations have left to the next beside models, of all but the last."""
        kept = "" if last is None else f"{last:04d}"
        for number, kind, file in self._models():
            if kind in (".next", ".momentum") and number != last:
                file.unlink(missing_ok=True)
        for place in self.path.glob("states/*"):
            if PLACE_NAME.fullmatch(place.name) and place.name != kept:
                shutil.rmtree(place, ignore_errors=True)

    def prune_models(self, keep: set[int]) -> None:
        """Remove the models of all iterations but these."""
        for number, _, file in self._models():
            if number not in keep:
                file.unlink(missing_ok=True)


def _with_added(kept: Mapping[str, Any], added: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a kept configuration with the tables and keys that it is too old to have."""
    tables = {name: kept.get(name, {}) for name in added}
    # What should be a table, and is none, stays: it is a difference to be told.
    new = {n: {**added[n], **table} for n, table in tables.items() if isinstance(table, Mapping)}
    return {**kept, **new}


def _is_same_path(key: str, before: Any, after: Any) -> bool:
    if key == OWN_PATH_KEY:
        return True  # the run is where it is
    is_path = key in PATH_KEYS and isinstance(before, str) and isinstance(after, str)
    return is_path and os.path.abspath(before) == os.path.abspath(after)


def _differences(before: Any, after: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in {**before, **after}:
            inner = f"{key}.{name}" if key else name
            yield from _differences(before.get(name), after.get(name), inner)
    elif before != after:
        yield key, before, after


def _text(value: Any) -> str:
    return "not set" if value is None else json.dumps(value)
