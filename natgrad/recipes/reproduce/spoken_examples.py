"""Examples of an experiment's own, from the alignments of a finished recipe."""

from __future__ import annotations

from dataclasses import replace

from natgrad.recipes.dnn_stages import build_examples
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.reproduce.finished_recipe import FinishedRecipe
from natgrad.recipes.reproduce.speech_runs import EXAMPLES, ExampleSettings
from natgrad.recipes.train_config import EngineConfig

__all__ = ["write_spoken_examples"]


def write_spoken_examples(
    recipe: FinishedRecipe,
    settings: ExampleSettings,
    num_jobs: int,
    engine: EngineConfig,
    bench: Bench,
) -> Found:
    """Write examples into the measurement's directory: utterances as they were spoken."""
    dnn = replace(
        recipe.config.dnn,
        training=replace(recipe.config.dnn.training, num_jobs=num_jobs),
        samples_per_job=settings.samples_per_job,
        validation_samples=settings.validation_samples,
        train_subset_samples=settings.train_subset_samples,
        piece_frames=settings.piece_frames,
        other_speeds=(),
    )
    with recipe.opened(bench.progress, engine, replace(recipe.config, dnn=dnn)) as shop:
        examples = build_examples(shop, bench.directory / EXAMPLES, labels=settings.labels)
    return {
        "samples": examples.num_samples,
        "blocks": examples.num_blocks,
        "classes": examples.num_classes,
    }
