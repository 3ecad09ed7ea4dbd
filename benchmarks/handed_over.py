"""What an outer optimizer and Fisher factors that are handed over cost between two iterations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.harness import per_call, take_rounds
from benchmarks.table import Row, Table
from natgrad import NGSGD
from natgrad.nn import NetworkConfig
from natgrad.nn import build as build_network
from natgrad.parallel.outer_step import OuterOptimizer, outer_step
from natgrad.recipes.fisher_states import average_states, state_of
from natgrad.run.model_file import read_model, write_model

__all__ = ["measure_handover"]

MINIBATCH = 128  # more than the ranks, so that factors are whole


def measure_handover(
    config: NetworkConfig, num_jobs: int, num_rounds: int, directory: Path
) -> list[Table]:
    """Time the outer step with its two files, and factors: a job's, and the mean of all jobs'."""
    torch.set_num_threads(1)  # as in the outer loop
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    start = network.state_dict()
    mean = {name: tensor + 0.01 * torch.randn_like(tensor) for name, tensor in start.items()}
    moved = {name for name, _ in network.named_parameters()}
    files = [directory / f"{job}.safetensors" for job in range(num_jobs)]
    for file in files:
        write_model(file, _learned(config), {}, durable=False)
    optimizer = OuterOptimizer(momentum=0.9)
    momentum = outer_step(start, mean, {}, optimizer, moved).momentum
    stepped = outer_step(start, mean, momentum, optimizer, moved)
    state = read_model(files[0]).tensors

    def write_two() -> None:
        write_model(directory / "momentum.safetensors", stepped.momentum, {})
        write_model(directory / "next.safetensors", stepped.start, {})

    parts: dict[str, Callable[[], object]] = {
        "outer step": lambda: outer_step(start, mean, momentum, optimizer, moved),
        "its two files": write_two,
        "a job writes factors": lambda: write_model(directory / "job.safetensors", state, {}),
        "a job reads factors": lambda: read_model(files[0]),
        "mean of all jobs' factors": lambda: average_states(
            [read_model(file).tensors for file in files], [1.0] * num_jobs
        ),
    }
    values = take_rounds({name: per_call(part, 1, 1e3) for name, part in parts.items()}, num_rounds)
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    megabytes = files[0].stat().st_size / 1e6
    title = (
        f"handed over, {num_jobs} jobs, {num_parameters} parameters, {megabytes:.1f} MB of factors"
    )
    rows = tuple(Row(name, of_part) for name, of_part in values.items())
    return [Table(title, "ms", rows)]


def _learned(config: NetworkConfig) -> dict[str, torch.Tensor]:
    """Return what a job has learned of the Fisher matrix after a minibatch."""
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    torch.nn.init.normal_(network.output.weight, std=0.1)  # or layers below have no derivative
    optimizer = NGSGD(network, lr=1e-4)
    inputs = torch.randn(MINIBATCH, config.num_inputs)
    classes = torch.randint(config.num_outputs, (MINIBATCH,))
    F.cross_entropy(network(inputs), classes, reduction="sum").backward()
    optimizer.step()
    return state_of(optimizer, network)
