"""How a network comes to its shape in the course of a run (appendices C.5, C.6 and C.7).

It begins with few hidden layers, zero softmax parameters and a fixed transform of its input; one
by one the other hidden layers are added; and it may be mixed up to sub-classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor

from natgrad.data import Block, Examples
from natgrad.nn import (
    ClassStatistics,
    Network,
    build,
    grow,
    input_transform,
    mix_up,
    transfer,
)
from natgrad.parallel.job import job_settings
from natgrad.parallel.outer import derive_seed
from natgrad.parallel.plan import Iteration
from natgrad.recipes.network_job import restore
from natgrad.recipes.train_config import NetworkShape
from natgrad.run.config import ConfigError
from natgrad.run.model_file import Model, read_model

__all__ = ["check_beginning", "initial_model", "remodel", "with_changes"]

STATISTICS_SIZE = 4096  # samples at a time


def check_beginning(shape: NetworkShape, examples: Examples) -> None:
    """Raise ConfigError, or ModelFileError, if training cannot begin with what it is to."""
    if shape.transfer_from is not None:
        _transferred(shape, examples, counts=None)


def initial_model(shape: NetworkShape, examples: Examples, seed: int) -> Model:
    """Return the network that training begins with."""
    seed = derive_seed(seed, "initial network")
    with job_settings(seed):
        network = _initial_network(shape, examples, torch.Generator().manual_seed(seed))
    description = {
        "network": asdict(network.config),
        "input": {
            "feature_dim": examples.feature_dim,
            "side_dim": examples.side_dim,
            "left_context": examples.left_context,
            "right_context": examples.right_context,
        },
        "class_counts": [float(count) for count in examples.class_counts],
    }
    return Model(network.state_dict(), description)


def _initial_network(
    shape: NetworkShape, examples: Examples, generator: torch.Generator
) -> Network:
    counts = None
    if shape.output == "prior_scale":  # a class that was not seen counts as seen once
        counts = torch.as_tensor(examples.class_counts).clamp_min(1.0)
    if shape.transfer_from is not None:
        return _transferred(shape, examples, counts)
    return build(
        examples.input_dim,
        examples.num_classes,
        shape.hidden[: shape.initial_num_hidden],
        nonlinearity=shape.nonlinearity,
        p=shape.p,
        input_transform=_normalization(shape, examples) if shape.normalize_input else None,
        class_counts=counts,
        generator=generator,
    )


def _transferred(shape: NetworkShape, examples: Examples, counts: Tensor | None) -> Network:
    assert shape.transfer_from is not None
    network = restore(read_model(shape.transfer_from))
    if network.config.num_inputs != examples.input_dim:
        raise ConfigError(
            f"the network in {shape.transfer_from} has {network.config.num_inputs} inputs, but the "
            f"examples have {examples.input_dim}: build examples of the same features and context"
        )
    expected = shape.hidden[: shape.initial_num_hidden]
    if tuple(network.config.hidden) != expected:
        raise ConfigError(
            f"the network in {shape.transfer_from} has the hidden layers {network.config.hidden}, "
            f"but the run is to begin with {expected}: network.hidden must begin with the same, "
            f"and network.initial_num_hidden be {len(network.config.hidden)}"
        )
    return transfer(network, examples.num_classes, class_counts=counts)


def _normalization(shape: NetworkShape, examples: Examples) -> tuple[Tensor, Tensor]:
    """Estimate the input transform (C.6) on the first samples: they are in random order."""
    statistics = ClassStatistics(examples.input_dim, examples.num_classes)
    blocks = (Block.read(path) for path in examples.block_paths)
    minibatches = (block.minibatches(STATISTICS_SIZE, seed=0) for block in blocks)
    for minibatch in chain.from_iterable(minibatches):
        statistics.accumulate(minibatch.features, minibatch.labels)
        if float(statistics.counts.sum()) >= shape.normalization_samples:
            break
    return input_transform(statistics.mean, statistics.within, statistics.between)


def with_changes(
    plan: Sequence[Iteration], shape: NetworkShape, examples: Examples, picks_best: bool = True
) -> list[Iteration]:
    """Return a plan in which the network grows, and is mixed up, as its shape says.

    With `picks_best`, iterations that begin with random parameters are fresh; else none is.
    """
    num_hidden, first = len(shape.hidden), shape.initial_num_hidden
    changes: dict[int, dict[str, Any]] = {}
    for index in range(num_hidden if first is None else first, num_hidden):
        number = 1 + (len(changes) + 1) * shape.iterations_per_layer
        width = shape.hidden[index]
        changes[number] = {"change": "grow", "width": width, "num_hidden": index + 1}
    last = max(changes, default=1)
    if last > len(plan):
        raise ConfigError(
            f"the run has {len(plan)} outer iterations, but the last hidden layer is added before "
            f"iteration {last}: train for more epochs, build more and smaller blocks, lower "
            "network.iterations_per_layer, or raise network.initial_num_hidden"
        )
    fresh = {1, *changes} if picks_best else set()
    if shape.output == "mix_up":
        number = _first_beyond(plan, shape.mix_up_at)
        if number <= last and changes:
            raise ConfigError(
                f"the network would be mixed up before iteration {number}, but grows until "
                f"iteration {last}, which drops the sub-classes: raise network.mix_up_at"
            )
        num_subclasses = shape.num_subclasses
        if num_subclasses is None:
            num_subclasses = 2 * examples.num_classes
        if num_subclasses < examples.num_classes:
            raise ConfigError(
                f"network.num_subclasses is {num_subclasses}, but the examples have "
                f"{examples.num_classes} classes, which need at least one each"
            )
        changes[number] = {"change": "mix_up", "num_subclasses": num_subclasses}
    return [
        replace(
            iteration,
            remodel=changes.get(iteration.number),
            is_fresh=iteration.number in fresh,
        )
        for iteration in plan
    ]


def _first_beyond(plan: Sequence[Iteration], progress: float) -> int:
    """Return the first iteration that begins when that part of the run is over, not before 2."""
    for before, iteration in pairwise(plan):
        if before.epoch >= progress * plan[-1].epoch:
            return iteration.number
    raise ConfigError(
        f"a network is mixed up between two iterations, but the run has {len(plan)}: train for "
        "more epochs, or build more and smaller blocks"
    )


def remodel(model: Model, change: Mapping[str, Any], seed: int) -> Model:
    """Return the model after a change that `with_changes` has planned."""
    network = restore(model)
    generator = torch.Generator().manual_seed(seed)
    if change["change"] == "grow":
        network = grow(network, change["width"], generator=generator)
    else:
        counts = torch.tensor(model.description["class_counts"], dtype=torch.float64)
        network = mix_up(network, counts, change["num_subclasses"], generator=generator)
    return Model(network.state_dict(), {**model.description, "network": asdict(network.config)})
