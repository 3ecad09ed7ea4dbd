"""What an engine is asked to do for a network: train it on a block, evaluate it, take gradients.

The functions here are what `natgrad.parallel` sends to workers: they know networks, optimizers and
blocks, which it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from natgrad.data import Block, BlockEntry, Examples, Minibatch, block_path, open_examples
from natgrad.freed_memory import keep_freed_memory
from natgrad.nn import Network, NetworkConfig
from natgrad.optim import NGSGD, share_parameters, use_native_kernels
from natgrad.optim.native import KernelsError, kernels_in_use, load_kernels
from natgrad.parallel.job import Job, JobResult, job_settings, run_job
from natgrad.parallel.learner import Learner
from natgrad.recipes.fisher_states import load_state, state_of
from natgrad.run.config import ConfigError
from natgrad.run.model_file import Model, read_model

__all__ = [
    "NetworkLearner",
    "check_held_out",
    "compile_kernels",
    "evaluate_model",
    "native_kernels",
    "objective_of",
    "parameter_names",
    "restore",
    "train_job",
]

EVALUATION_SIZE = 2048  # samples at a time: large enough to be fast, small enough for any memory


def restore(model: Model) -> Network:
    """Return the network that a model file holds."""
    network = Network(NetworkConfig(**model.description["network"]))
    network.load_state_dict(model.tensors)
    return network


def parameter_names(model: Model) -> frozenset[str]:
    """Return which tensors of a model file are trained."""
    network = Network(NetworkConfig(**model.description["network"]))
    return frozenset(name for name, _ in network.named_parameters())


def objective_of(network: Network, minibatch: Minibatch) -> Tensor:
    """Return the log-probability of the labels, summed over samples by weight: to be maximised."""
    return log_probability(network(minibatch.features), minibatch)


def log_probability(outputs: Tensor, minibatch: Minibatch) -> Tensor:
    """Return what the outputs of a network make of the labels, summed over samples by weight."""
    if minibatch.soft is None and minibatch.weights is None:
        return -F.cross_entropy(outputs, minibatch.labels, reduction="sum")
    if minibatch.soft is None:
        each = -F.cross_entropy(outputs, minibatch.labels, reduction="none")
    else:
        chosen = torch.log_softmax(outputs, dim=1).gather(1, minibatch.soft.classes)
        each = (chosen * minibatch.soft.probabilities).sum(dim=1)
    return each.sum() if minibatch.weights is None else (each * minibatch.weights).sum()


class NetworkLearner:
    """A network, NG-SGD, and the minibatches of one block."""

    def __init__(self, job: Job, network: Network, optimizer: NGSGD) -> None:
        self.job = job
        self.network = network
        self.optimizer = optimizer

    @classmethod
    def begin(cls, job: Job, model: Model) -> NetworkLearner:
        """Begin with a model file's parameters, and an earlier job's Fisher factors, if any."""
        network = restore(model)
        options = job.options["optimizer"]
        optimizer = NGSGD(network, lr=job.learning_rate, fused=True, **options)
        if job.state is not None:
            load_state(optimizer, network, read_model(job.state).tensors, job.renewed)
        return cls(job, network, optimizer)

    def tensors(self) -> dict[str, Tensor]:
        """Return the network's parameters and buffers."""
        return self.network.state_dict()

    def minibatches(self) -> Iterator[Minibatch]:
        """Read the job's block, and yield its minibatches in an order drawn from the seed."""
        block = Block.read(block_path(self.job.options["examples"], self.job.block))
        yield from block.minibatches(self.job.options["minibatch_size"], self.job.seed)

    def learn(self, minibatch: Minibatch) -> tuple[float, float]:
        """Take one step of NG-SGD."""
        objective = objective_of(self.network, minibatch)
        self.optimizer.zero_grad()
        (-objective).backward()
        self.optimizer.step()
        return objective.item(), minibatch.total_weight

    def replica(self) -> NetworkLearner:
        """Return a learner for another thread: the same parameters, the same Fisher factors."""
        network = share_parameters(self.network)
        return NetworkLearner(self.job, network, self.optimizer.replica(network))

    def state(self) -> dict[str, Tensor]:
        """Return the Fisher factors of all layers."""
        return state_of(self.optimizer, self.network)

    def statistics(self) -> dict[str, Any]:
        """Return each layer's statistics; spectra only of the first job, as all are much alike."""
        statistics = self.optimizer.layer_statistics()
        for layer in statistics.values():
            for key in ("removed_in", "removed_out"):
                spectrum = layer.pop(key, None)
                if spectrum is not None and self.job.index == 0:
                    layer[key] = [round(value, 4) for value in spectrum]
        return statistics


def train_job(job: Job) -> JobResult:
    """Train a network on one block."""
    keep_freed_memory()  # without it, a job of DNN2 takes a sixth longer (LOG.md)
    with ExitStack() as until_done:

        def begin(job: Job, model: Model) -> Learner:
            # Here it is the job that fails without a compiler, and not its worker that is lost.
            until_done.enter_context(native_kernels(job.options["native_kernels"]))
            return NetworkLearner.begin(job, model)

        return run_job(job, begin)


@contextmanager
def native_kernels(use: bool) -> Iterator[None]:
    """Use the native kernels, or do not; what the process did before, it does again afterwards."""
    were_in_use = kernels_in_use() is not None
    if use:
        compile_kernels()
    use_native_kernels(use)
    try:
        yield
    finally:
        use_native_kernels(were_in_use)


def compile_kernels(otherwise: str = "") -> None:
    """Compile the native kernels, or raise ConfigError, which says why not, and what to do.

    `otherwise` is what else there is to do.
    """
    try:
        load_kernels()
    except KernelsError as error:
        raise ConfigError(f"training.native_kernels is true: {error}{otherwise}") from error


def evaluate_model(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return a model's objective and accuracy on the training subset and the validation data."""
    with job_settings(seed=0):
        network = restore(read_model(path))
        examples = open_examples(options["examples"])
        return {
            "train": _evaluate(network, examples.train_subset),
            "valid": _evaluate(network, examples.validation),
        }


def check_held_out(examples: Examples) -> None:
    """Raise ConfigError if there are held-out data of which no sample counts."""
    for name in ("validation", "train_subset"):
        entry: BlockEntry | None = getattr(examples, name)
        if entry is not None:
            parts = Block.read(entry.path).minibatches(EVALUATION_SIZE, seed=0)
            if not sum(part.total_weight for part in parts) > 0:
                raise ConfigError(
                    f"all samples in {entry.path} ({name}) have weight 0, so no model can be "
                    "judged by them: build the examples with more of them held out"
                )


@torch.no_grad()
def _evaluate(network: Network, block: BlockEntry | None) -> dict[str, float] | None:
    if block is None:
        return None
    objective = correct = samples = 0.0
    for minibatch in Block.read(block.path).minibatches(EVALUATION_SIZE, seed=0):
        outputs = network(minibatch.features)
        is_right = (outputs.argmax(dim=1) == minibatch.labels).float()
        weights = torch.ones_like(is_right) if minibatch.weights is None else minibatch.weights
        objective += log_probability(outputs, minibatch).item()
        correct += float(is_right @ weights)
        samples += minibatch.total_weight
    return {"objective": objective / samples, "accuracy": correct / samples, "samples": samples}
