"""The demo's recipe in miniature: all stages in seconds, with errors accordingly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from natgrad.recipes.demo_recipe import DemoSize, demo_config, demo_recipe
from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.speech_config import ContextModel, settings_grid
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.train_config import (
    CombinationConfig,
    EngineConfig,
    NetworkShape,
    TrainingConfig,
)
from natgrad.run.stages import Facts
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.gmm.training import Schedule

SIZE = DemoSize(train=48, tune=4, report=6, text=60)
INLINE = EngineConfig("inline")


class SmallDemo(NamedTuple):
    root: Path
    facts: dict[str, Facts]

    @property
    def files(self) -> SpeechFiles:
        return SpeechFiles(self.root)


def small_demo() -> SpeechRecipe:
    usual = demo_config()
    schedule = Schedule(num_iterations=2, num_gaussians=250, last_growth=1, align_at=(2,))
    search = DecoderOptions(beam=8.0, max_active=200, lattice_beam=4.0)
    config = replace(
        usual,
        monophone=Schedule(4, 200, 3, (2, 3, 4)),
        triphone=ContextModel(180, schedule),
        lda_mllt=ContextModel(180, replace(schedule, mllt_at=(2,))),
        sat=ContextModel(180, replace(schedule, fmllr_at=(2,))),
        decoding=replace(
            usual.decoding,
            first=search,
            next=(search,),
            settings=settings_grid((9.0, 15.0), (0.0,)),
        ),
        dnn=replace(
            usual.dnn,
            network=NetworkShape(hidden=((40, 10), (40, 10)), iterations_per_layer=1),
            training=TrainingConfig(num_epochs=1.0, num_jobs=4),
            combination=CombinationConfig(num_models=2),
            samples_per_job=1500,
            validation_samples=500,
            train_subset_samples=500,
            decoder=search,
            num_realignments=1,
            other_speeds=(1.1,),
        ),
        monophone_utterances=32,
        lda_dim=20,
    )
    return demo_recipe(SIZE, config)


def files_of(root: Path) -> dict[str, int]:
    """Return all files below a directory, with when they were written."""
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}


def found_in(out: Path) -> dict[str, Found]:
    """Return what the measurements of an experiment have found, by name."""
    files = (out / "measurements").glob("*.json")
    return {file.stem: json.loads(file.read_text())["found"] for file in files}
