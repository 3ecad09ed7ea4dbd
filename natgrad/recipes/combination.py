"""The end of a run: its last models become the final one (appendix C.4)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from natgrad.data import Block, Examples, Minibatch, open_examples
from natgrad.nn import Network
from natgrad.parallel.average import average_files
from natgrad.parallel.combine import Objective, combine
from natgrad.parallel.engines import WorkerLost
from natgrad.parallel.job import job_settings
from natgrad.parallel.last_models import iteration_groups, mean_of_last
from natgrad.parallel.outer import RunFailedError
from natgrad.parallel.plan import Iteration
from natgrad.recipes.network_job import (
    EVALUATION_SIZE,
    evaluate_model,
    log_probability,
    restore,
)
from natgrad.recipes.train_config import CombinationConfig
from natgrad.run.config import ConfigError
from natgrad.run.directory import RunDirectory
from natgrad.run.model_file import Model, ModelFileError, read_model, write_model

__all__ = ["combine_models", "combine_run", "iterations_to_combine"]

MAX_EVALUATIONS = 20  # by L-BFGS; more gained nothing on data that it did not see
NUM_PARTS = 16  # of the subset, whose gradients make the preconditioner's Fisher matrix


def iterations_to_combine(
    config: CombinationConfig, plan: Sequence[Iteration], examples: Examples
) -> list[list[int]]:
    """Return the iterations whose models are averaged to be each of those to combine."""
    if config.method == "last":
        return [[plan[-1].number]]
    blocks_to_combine_on(examples, config.data)  # or complain, before the run
    first = max((it.number for it in plan if it.remodel is not None), default=1)
    return iteration_groups(
        len(plan), len(plan) / plan[-1].epoch, config.num_models, first_iteration=first
    )


def blocks_to_combine_on(examples: Examples, data: str) -> list[Path]:
    """Return the blocks of the training subset, of the validation data, or of both."""
    wanted = {
        "training subset": (examples.train_subset, "train_subset_samples"),
        "validation data": (examples.validation, "validation_samples"),
    }
    if data != "both":
        del wanted["validation data" if data == "train" else "training subset"]
    paths = []
    for name, (entry, option) in wanted.items():
        if entry is None:
            raise ConfigError(
                f"models are to be combined by what they are on the {name}, but "
                f"{examples.directory} has none: build it with {option}, or combine by other data "
                "(of a run: combination.data, or 'last' as combination.method)"
            )
        paths.append(entry.path)
    return paths


def combine_run(
    config: CombinationConfig,
    run: RunDirectory,
    groups: Sequence[Sequence[int]],
    examples: Examples,
    engine: Executor,
    max_attempts: int,
    emit: Callable[..., None],
) -> None:
    """Combine a run's models on the engine, and write the final one."""
    paths = [[str(run.model(number)) for number in group] for group in groups]
    arguments = (
        paths,
        str(run.final_candidate),
        str(examples.directory),
        config.method,
        config.data,
    )
    for attempt in range(1, max_attempts + 1):
        future = engine.submit(combine_job, *arguments)
        lost = future.exception()
        if lost is None:
            break
        if attempt == max_attempts or not isinstance(lost, WorkerLost):
            raise RunFailedError(f"the models could not be combined: {lost}") from lost
    facts = future.result()
    emit("combine", method=config.method, inputs=[list(group) for group in groups], **facts)
    run.publish_final()
    run.remove_jobs()


def combine_models(
    paths: Sequence[str | Path],
    out: str | Path,
    examples: str | Path,
    method: str = "generalised",
    data: str = "both",
) -> dict[str, Any]:
    """Combine model files into one, by what they are on a set of examples.

    Raises:
        ModelFileError: if a file is no model, or the models are of different networks.
    """
    common_description(paths)
    return combine_job([[str(path)] for path in paths], str(out), str(examples), method, data)


def combine_job(
    groups: Sequence[Sequence[str]], out: str, examples: str, method: str, data: str
) -> dict[str, Any]:
    """Average each group of model files, combine these, write the result, and tell of it."""
    begin = time.perf_counter()
    with job_settings(seed=0):
        description = read_model(groups[-1][-1]).description
        models = [average_files(group, [1.0] * len(group)) for group in groups]
        tensors = models[-1]
        facts: dict[str, Any] = {}
        if method != "last":
            found = open_examples(examples)
            _check_fit(description["network"], found)
            blocks = blocks_to_combine_on(found, data)
            subset = SubsetObjective(Model(models[-1], description), blocks)
            tensors, facts = _combine(method, models, subset)
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        write_model(out, tensors, description)
    final = evaluate_model(out, {"examples": examples})
    return {**facts, **final, "seconds": time.perf_counter() - begin}


def common_description(paths: Sequence[str | Path]) -> dict[str, Any]:
    """Return the description of the first of some models, which must all be of one network."""
    first, *others = (read_model(path).description for path in paths)
    for path, description in zip(paths[1:], others, strict=True):
        if description.get("network") != first.get("network"):
            raise ModelFileError(
                f"{path} is of another network than {paths[0]}: {description.get('network')}, "
                f"expected {first.get('network')}. Give models of one network"
            )
    return first


def _check_fit(network: Mapping[str, Any], examples: Examples) -> None:
    """Raise ConfigError if the network cannot be judged by these examples."""
    inputs, outputs = network["num_inputs"], network["num_outputs"]
    if inputs != examples.input_dim or outputs < examples.num_classes:  # fewer: some do not occur
        raise ConfigError(
            f"the models have {inputs} inputs and {outputs} classes, but the examples in "
            f"{examples.directory} have {examples.input_dim} and {examples.num_classes}: give "
            "those that the models were trained on, or others made like them"
        )


def _combine(
    method: str, models: Sequence[dict[str, Tensor]], subset: SubsetObjective
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    if method == "mean":
        mean = mean_of_last(models, subset.value)
        facts = {
            "objective": mean.objective,
            "objectives": [subset.value(model) for model in models],
            "mean_objective": mean.objectives[-1],
            "num_models": mean.num_models,
        }
        return mean.tensors, facts
    found = combine(
        models,
        subset.objective,
        subset.layers(),
        value=subset.value,
        parts=subset.parts(),
        max_evaluations=MAX_EVALUATIONS,
    )
    facts = {
        "objective": found.objective,
        "objectives": found.objectives,
        "mean_objective": found.mean_objective,
        "chosen": found.chosen,
        "weights": found.weights,
        "num_evaluations": found.num_evaluations,
    }
    return found.tensors, facts


class SubsetObjective:
    """The mean log-probability of the labels in some blocks, as a function of a network."""

    def __init__(self, model: Model, paths: Sequence[Path]) -> None:
        self.network: Network = restore(model)
        blocks = [Block.read(path) for path in paths]
        num_samples = sum(block.num_samples for block in blocks)
        size = min(EVALUATION_SIZE, -(-num_samples // NUM_PARTS))
        self.minibatches = [m for block in blocks for m in block.minibatches(size, seed=0)]

    def layers(self) -> dict[str, list[str]]:
        """Return the names of each layer's parameters."""
        layers: dict[str, list[str]] = {}
        for name, _ in self.network.named_parameters():
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        return layers

    @torch.no_grad()
    def value(self, tensors: dict[str, Tensor]) -> float:
        """Return the objective alone."""
        self.network.load_state_dict(tensors)
        total = sum(self._sum(minibatch).item() for minibatch in self.minibatches)
        return total / self._weight(self.minibatches)

    def objective(self, tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        """Return the objective and its gradient."""
        return self._objective(tensors, self.minibatches)

    def parts(self) -> list[Objective]:
        """Return the objective on parts of the subset."""

        def part(index: int) -> Objective:
            return lambda tensors: self._objective(tensors, self.minibatches[index::NUM_PARTS])

        return [part(index) for index in range(min(NUM_PARTS, len(self.minibatches)))]

    @torch.enable_grad()
    def _objective(
        self, tensors: dict[str, Tensor], minibatches: Sequence[Minibatch]
    ) -> tuple[float, dict[str, Tensor]]:
        self.network.load_state_dict(tensors)
        self.network.zero_grad()
        weight, total = self._weight(minibatches), 0.0
        for minibatch in minibatches:
            objective = self._sum(minibatch)
            (objective / weight).backward()
            total += objective.item()
        gradient = {name: p.grad for name, p in self.network.named_parameters()}
        return total / weight, {n: g.detach() for n, g in gradient.items() if g is not None}

    def _sum(self, minibatch: Minibatch) -> Tensor:
        return log_probability(self.network(minibatch.features), minibatch)

    @staticmethod
    def _weight(minibatches: Sequence[Minibatch]) -> float:
        return sum(minibatch.total_weight for minibatch in minibatches)
