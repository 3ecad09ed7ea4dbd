"""Stages that train the network: its examples, the run, its priors; and align with it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from natgrad.data import build, open_examples
from natgrad.data.examples import INDEX
from natgrad.recipes.dnn import AlignedSource, NetworkScorer, estimate_priors
from natgrad.recipes.network_job import evaluate_model
from natgrad.recipes.train import FREE_TABLES, train
from natgrad.recipes.train_config import DataConfig, RunConfig, TrainConfig
from natgrad.recipes.workshop import Workshop
from natgrad.run.config import to_mapping
from natgrad.run.directory import RunDirectory
from natgrad.run.stages import Facts
from natgrad.speech.gmm.training import GmmTrainer
from natgrad.speech.trained import Trained, read_alignments, write_alignments

__all__ = ["align_again", "network_scorer", "train_network", "write_examples", "write_priors"]

BUILD_WORKERS = 2


def write_examples(shop: Workshop, number: int = 0) -> Facts:
    """Write the aligned frames of all training utterances as blocks of examples."""
    dnn, files = shop.config.dnn, shop.files.dnn(number)
    trained = Trained.read(shop.files.gmm("sat"))
    model = trained.model
    alignments = read_alignments(files.alignments)[0] if number else trained.alignments
    sources = [
        AlignedSource(
            share,
            {item.key: alignments[item.key] for item in share.items if item.key in alignments},
            model.front_end,
            trained.transforms,
            model.states.pdf,
        )
        for share in shop.shares("train")
    ]
    shutil.rmtree(files.run, ignore_errors=True)  # it was trained on other examples
    if (files.examples / INDEX).exists():
        shutil.rmtree(files.examples)
    examples = build(
        files.examples,
        sources,
        num_classes=model.states.num_pdfs,
        left_context=dnn.context,
        right_context=dnn.context,
        num_jobs=dnn.training.num_jobs,
        samples_per_job=dnn.samples_per_job,
        validation_samples=dnn.validation_samples,
        train_subset_samples=dnn.train_subset_samples,
        piece_frames=dnn.piece_frames,
        num_workers=min(BUILD_WORKERS, os.cpu_count() or 1),
    )
    return {"samples": examples.num_samples, "blocks": examples.num_blocks}


def train_network(
    shop: Workshop,
    number: int = 0,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Facts:
    """Train the network with NG-SGD and parameter averaging, or go on with it."""
    dnn, files = shop.config.dnn, shop.files.dnn(number)
    config = TrainConfig(
        run=RunConfig(str(files.run)),
        data=DataConfig(str(files.examples)),
        network=dnn.network,
        training=dnn.training,
        combination=dnn.combination,
        engine=replace(shop.engine, num_workers=None),
    )
    if _is_of_another(config):
        shutil.rmtree(files.run)
    final = train(config, on_event)
    reached = evaluate_model(str(final), {"examples": config.data.examples})
    return {"train": reached["train"], "valid": reached["valid"]}


def _is_of_another(config: TrainConfig) -> bool:
    """Whether the run that is there was begun with other settings, and cannot be resumed."""
    kept = RunDirectory(config.run.directory).config
    if not kept.exists():
        return False
    before, now = json.loads(kept.read_bytes()), json.loads(json.dumps(to_mapping(config)))
    return any(before.get(table) != now[table] for table in now if table not in FREE_TABLES)


def write_priors(shop: Workshop, number: int = 0) -> Facts:
    """Estimate the priors of the classes: the network's mean posterior."""
    files = shop.files.dnn(number)
    final = RunDirectory(files.run).final
    return dict(estimate_priors(final, open_examples(files.examples), files.priors))


def network_scorer(shop: Workshop, number: int = 0) -> NetworkScorer:
    """Return what scores frames by a trained network."""
    context, files = shop.config.dnn.context, shop.files.dnn(number)
    return NetworkScorer(RunDirectory(files.run).final, files.priors, context, context)


def align_again(shop: Workshop, number: int) -> Facts:
    """Align the training utterances with the network, for the next one to be trained on."""
    before = Trained.read(shop.files.gmm("sat"))
    trainer = GmmTrainer(shop.shares("train"), shop.lexicon, shop.workers)
    scorer = network_scorer(shop, number - 1)
    aligned = trainer.align(before, shop.config.sat.schedule, scorer)
    path = shop.files.dnn(number).alignments
    path.parent.mkdir(parents=True, exist_ok=True)
    write_alignments(path, aligned.alignments, aligned.failures)
    pdf = before.model.states.pdf
    both = aligned.alignments.keys() & before.alignments.keys()
    num_frames = sum(len(aligned.alignments[key]) for key in both)
    changed = sum(
        int((pdf[aligned.alignments[key]] != pdf[before.alignments[key]]).sum()) for key in both
    )
    return {"changed": round(changed / num_frames, 4), "failures": dict(aligned.failures)}
