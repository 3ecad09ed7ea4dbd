"""Stages that train the network: its examples, the run, its priors; and align with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from natgrad.data import Examples, build, open_examples
from natgrad.data.examples import INDEX
from natgrad.recipes.dnn import (
    AlignedSource,
    NetworkScorer,
    choose_held_out,
    estimate_priors,
    sources_of,
)
from natgrad.recipes.network_job import evaluate_model
from natgrad.recipes.speech_files import at_speed
from natgrad.recipes.speeds import read_at_all_speeds
from natgrad.recipes.train import ADDED, FREE_TABLES, train
from natgrad.recipes.train_config import DataConfig, RunConfig, TrainConfig
from natgrad.recipes.workshop import NUM_SHARES, Workshop
from natgrad.run.config import to_mapping
from natgrad.run.directory import RunDirectory
from natgrad.run.stages import Facts
from natgrad.speech.gmm.training import GmmTrainer
from natgrad.speech.trained import Alignments, read_alignments, write_alignments

__all__ = [
    "align_again",
    "build_examples",
    "forget_network",
    "network_scorer",
    "train_network",
    "write_examples",
    "write_priors",
]

BUILD_WORKERS = 2


def write_examples(shop: Workshop, number: int = 0) -> Facts:
    """Write the aligned frames of all training utterances as blocks of examples."""
    files = shop.files.dnn(number)
    again = read_alignments(files.alignments)[0] if number else None
    shutil.rmtree(files.run, ignore_errors=True)  # it was trained on other examples
    examples = build_examples(shop, files.examples, again)
    return {"samples": examples.num_samples, "blocks": examples.num_blocks}


def build_examples(
    shop: Workshop,
    directory: Path,
    again: Alignments | None = None,
    labels: Literal["pdf", "sound_state"] = "pdf",
) -> Examples:
    """Write a directory of examples, in place of what is there.

    Held-out utterances are held out at all speeds, and are judged as they were spoken.

    Args:
        directory: where to.
        again: alignments to use instead of those of the mixtures.
        labels: classes: the pdfs of states in context, or states whatever their context.
    """
    dnn = shop.config.dnn
    at_speeds = read_at_all_speeds(shop)
    held_out = choose_held_out(shop.corpus("train"), dnn.validation_samples)
    label_of_state: NDArray[np.int32] = getattr(at_speeds[1.0].model.states, labels)
    training: list[AlignedSource] = []
    validation: list[AlignedSource] = []
    for speed, trained in at_speeds.items():
        corpus = shop.corpus("train", speed)
        hidden = {at_speed(key, speed) for key in held_out}
        seen = [item.key for item in corpus.items if item.key not in hidden]
        aligned = trained if again is None else replace(trained, alignments=again)
        shares = corpus.subset(seen).shares(NUM_SHARES)
        training += sources_of(shares, aligned, label_of_state)
        if speed == 1.0:
            shares = corpus.subset(sorted(hidden)).shares(NUM_SHARES)
            validation += sources_of(shares, aligned, label_of_state)
    if (directory / INDEX).exists():
        shutil.rmtree(directory)
    return build(
        directory,
        training,
        validation_sources=validation,
        num_classes=int(label_of_state.max()) + 1,
        left_context=dnn.context,
        right_context=dnn.context,
        num_jobs=dnn.training.num_jobs,
        samples_per_job=dnn.samples_per_job,
        train_subset_samples=dnn.train_subset_samples,
        piece_frames=dnn.piece_frames,
        num_workers=min(BUILD_WORKERS, os.cpu_count() or 1),
    )


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
    if RunDirectory(files.run).differences(to_mapping(config), FREE_TABLES, ADDED):
        shutil.rmtree(files.run)  # of other settings, with which it cannot go on
    final = train(config, on_event)
    reached = evaluate_model(str(final), {"examples": config.data.examples})
    return {"train": reached["train"], "valid": reached["valid"]}


def forget_network(shop: Workshop, number: int = 0) -> None:
    """Remove the run that trains the network, which else would go on, or be found complete."""
    shutil.rmtree(shop.files.dnn(number).run, ignore_errors=True)


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
    scorer = network_scorer(shop, number - 1)
    alignments: dict[str, NDArray[np.int32]] = {}
    failures: dict[str, str] = {}
    num_frames = num_changed = 0
    for speed, before in read_at_all_speeds(shop).items():
        trainer = GmmTrainer(shop.shares("train", speed), shop.lexicon, shop.workers)
        aligned = trainer.align(before, shop.config.sat.schedule, scorer)
        alignments |= aligned.alignments
        failures |= aligned.failures
        pdf = before.model.states.pdf
        for key in aligned.alignments.keys() & before.alignments.keys():
            is_changed = pdf[aligned.alignments[key]] != pdf[before.alignments[key]]
            num_frames, num_changed = num_frames + len(is_changed), num_changed + is_changed.sum()
    path = shop.files.dnn(number).alignments
    path.parent.mkdir(parents=True, exist_ok=True)
    write_alignments(path, alignments, failures)
    return {"changed": round(float(num_changed / num_frames), 4), "failures": failures}
