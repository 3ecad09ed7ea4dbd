"""Stages that train the network: its examples, the run, its priors."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from natgrad.data import build, open_examples
from natgrad.data.examples import INDEX
from natgrad.recipes.dnn import AlignedSource, estimate_priors
from natgrad.recipes.network_job import evaluate_model
from natgrad.recipes.train import train
from natgrad.recipes.train_config import DataConfig, RunConfig, TrainConfig
from natgrad.recipes.workshop import Workshop
from natgrad.run.directory import RunDirectory
from natgrad.run.stages import Facts
from natgrad.speech.trained import Trained

__all__ = ["train_network", "write_examples", "write_priors"]

BUILD_WORKERS = 2


def write_examples(shop: Workshop) -> Facts:
    """Write the aligned frames of all training utterances as blocks of examples."""
    dnn = shop.config.dnn
    trained = Trained.read(shop.files.gmm("sat"))
    model = trained.model
    sources = []
    for share in shop.shares("train"):
        keys = [item.key for item in share.items if item.key in trained.alignments]
        alignments = {key: trained.alignments[key] for key in keys}
        sources.append(
            AlignedSource(share, alignments, model.front_end, trained.transforms, model.states.pdf)
        )
    if (shop.files.examples / INDEX).exists():
        shutil.rmtree(shop.files.examples)
    examples = build(
        shop.files.examples,
        sources,
        num_classes=model.states.num_pdfs,
        left_context=dnn.context,
        right_context=dnn.context,
        num_jobs=dnn.training.num_jobs,
        samples_per_job=dnn.samples_per_job,
        validation_samples=dnn.validation_samples,
        train_subset_samples=dnn.train_subset_samples,
        num_workers=min(BUILD_WORKERS, os.cpu_count() or 1),
    )
    return {"samples": examples.num_samples, "blocks": examples.num_blocks}


def train_network(
    shop: Workshop, on_event: Callable[[dict[str, Any]], None] | None = None
) -> Facts:
    """Train the network with NG-SGD and parameter averaging, or go on with it."""
    dnn = shop.config.dnn
    config = TrainConfig(
        run=RunConfig(str(shop.files.network)),
        data=DataConfig(str(shop.files.examples)),
        network=dnn.network,
        training=dnn.training,
        combination=dnn.combination,
        engine=replace(shop.engine, num_workers=None),
    )
    final = train(config, on_event)
    reached = evaluate_model(str(final), {"examples": config.data.examples})
    return {"train": reached["train"], "valid": reached["valid"]}


def write_priors(shop: Workshop) -> Facts:
    """Estimate the priors of the classes: the network's mean posterior."""
    final = RunDirectory(shop.files.network).final
    return dict(estimate_priors(final, open_examples(shop.files.examples), shop.files.priors))
