"""A training run of a few seconds, on vectors around class means."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.data import Examples, Segment, build, segments_of_vectors
from natgrad.recipes.train import TrainConfig
from natgrad.run.config import from_mapping
from natgrad.run.events import read_events

NUM_CLASSES, NUM_FEATURES = 6, 12


def vectors(num_vectors: int, seed: int) -> list[Segment]:
    random = np.random.default_rng(seed)
    means = np.random.default_rng(0).normal(size=(NUM_CLASSES, NUM_FEATURES))
    labels = random.integers(0, NUM_CLASSES, num_vectors)
    features = means[labels] + random.normal(size=(num_vectors, NUM_FEATURES))
    return list(segments_of_vectors(features.astype(np.float32), labels, key=f"source {seed}"))


def small_examples(directory: Path, num_vectors: int = 4000, **options: Any) -> Examples:
    usual = {"num_jobs": 2, "samples_per_job": 500, "validation_samples": 400}
    return build(
        directory,
        [partial(vectors, num_vectors // 2, 1), partial(vectors, num_vectors // 2, 2)],
        num_classes=NUM_CLASSES,
        **{**usual, "train_subset_samples": 400, **options},
    )


def small_config(directory: Path, examples: Path, /, **tables: dict[str, Any]) -> TrainConfig:
    """A configuration; `tables` adds keys to those of the same name."""
    usual: dict[str, dict[str, Any]] = {
        "run": {"directory": str(directory)},
        "data": {"examples": str(examples)},
        "network": {"hidden": [[40, 10], [40, 10]], "iterations_per_layer": 2},
        "training": {"num_epochs": 3, "num_jobs": 2, "minibatch_size": 64},
        "optimizer": {"rank_in": 5, "rank_out": 10},
        "combination": {"num_models": 4},
        "engine": {"name": "inline"},
    }
    names = {**usual, **tables}
    return from_mapping(TrainConfig, {n: {**usual.get(n, {}), **tables.get(n, {})} for n in names})


def events_of(run: Path, kind: str) -> list[dict[str, Any]]:
    """What a run has said of one kind."""
    return [event for event in read_events(run / "events.jsonl") if event["event"] == kind]
