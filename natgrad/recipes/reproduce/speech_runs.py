"""Measurements that several experiments share: examples of speech, and training runs on them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from natgrad.recipes.reproduce.experiment import Bench, Found, Measurement
from natgrad.recipes.train_config import EngineConfig, settings_of
from natgrad.run.config import to_mapping

__all__ = ["DATA", "EXAMPLES", "ExampleSettings", "examples_of", "measure_examples", "measure_run"]

DATA = "with the directories of finished recipes: natgrad recipe NAME --out DIR/NAME makes them"
EXAMPLES = "examples"
ENGINE = EngineConfig()  # as many processes as there are cores


@dataclass(frozen=True)
class ExampleSettings:
    """The examples that networks are trained and judged on.

    samples_per_job: K of the paper
    validation_samples, train_subset_samples: that objectives are measured on
    piece_frames: of the pieces that utterances are scattered in
    labels: classes: the "pdf" of a triphone's state, or the "sound_state" whatever its context
    """

    samples_per_job: int = 8_000
    validation_samples: int = 20_000
    train_subset_samples: int = 20_000
    piece_frames: int = 20
    labels: Literal["pdf", "sound_state"] = "pdf"

    @property
    def classes(self) -> str:
        """The classes, in words."""
        which = {"pdf": "triphones", "sound_state": "sounds, whatever their context,"}
        return f"the states of {which[self.labels]} that the GMM-HMM aligned"


def measure_examples(
    recipe: str,
    settings: ExampleSettings,
    num_jobs: int,
    data: Path | None,
    name: str = EXAMPLES,
) -> Measurement:
    """Return what builds the examples of runs from a finished recipe, for so many jobs."""

    def build(bench: Bench) -> Found:
        # Here, as in all that follow, so that experiments without speech need none of its extras.
        from natgrad.recipes.reproduce.finished_recipe import find_recipe
        from natgrad.recipes.reproduce.spoken_examples import write_spoken_examples

        assert data is not None, "the experiment says that it needs data"
        return write_spoken_examples(find_recipe(data, recipe), settings, num_jobs, ENGINE, bench)

    own = {"recipe": recipe, "num_jobs": num_jobs, **to_mapping(settings)}
    return Measurement(name, own, build)


def examples_of(bench: Bench, name: str = EXAMPLES) -> Path:
    """Return the directory of the examples, for a measurement that needs them."""
    return bench.beside(name) / EXAMPLES


def measure_run(
    name: str, seed: int, diagnostics_every: int, examples: str = EXAMPLES, **tables: Any
) -> Measurement:
    """Return a training run on the examples of that name; `tables` are those of `TrainConfig`."""

    def run(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.training_run import follow_training

        return follow_training(
            bench, examples_of(bench, examples), seed, diagnostics_every, engine=ENGINE, **tables
        )

    own: dict[str, Any] = {key: settings_of(table) for key, table in tables.items()}
    own |= {"seed": seed, "diagnostics_every": diagnostics_every}
    return Measurement(name, own, run, needs=(examples,))
