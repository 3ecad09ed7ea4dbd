"""What the training system costs beside the training itself.

    python -m benchmarks.averaging [driver] [average] [handover] [iteration]

driver: 1000 outer iterations of 16 tiny jobs: the driver's memory, and its own time per iteration.
average: a model of the size of the paper's DNN1 (19.3 million parameters) from 16 jobs: reading
their files, averaging, how far the mean has moved and how much the jobs agree, writing the mean
durably, and reading it for the next job.
handover: the same network's outer step, and its Fisher factors if jobs hand these over.
iteration: whole outer iterations of DNN2 on local processes, with reading, training, saving and
averaging, against bare training loops on the same minibatches, in memory already; one job and two
at a time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.driver import measure_driver
from benchmarks.handed_over import measure_handover
from benchmarks.harness import Benchmark, Findings, per_call, run_benchmark, take_rounds, tell
from benchmarks.step import NETWORKS
from benchmarks.table import Goal, Row, Table
from benchmarks.whole_iterations import MINIBATCH, measure_iterations
from natgrad.nn import Network, NetworkConfig
from natgrad.nn import build as build_network
from natgrad.parallel.average import average_files
from natgrad.parallel.steps import relative_change, step_cosines
from natgrad.run.model_file import read_model, write_model

OUTER_ITERATION_MS = 60_000.0  # the paper's K = 400000 takes longer still
MOST_OF_AN_ITERATION = 0.01
DNN1 = NetworkConfig(num_inputs=360, num_outputs=15_000, hidden=((5000, 500),) * 5)  # section 6


@dataclass(frozen=True)
class Size:
    """How much of everything: a network to average, and one to train."""

    averaged: NetworkConfig = DNN1
    network: NetworkConfig = NETWORKS["dnn2"]
    num_models: int = 16
    samples_per_job: int = 12_800
    driver_iterations: int = 1000
    driver_jobs: int = 16


QUICK = Size(
    averaged=NetworkConfig(num_inputs=7, num_outputs=5, hidden=((20, 5),)),
    network=NetworkConfig(num_inputs=700, num_outputs=5, hidden=((20, 5),)),
    num_models=3,
    samples_per_job=600,
    driver_iterations=3,
    driver_jobs=2,
)


def measure_average(
    config: NetworkConfig, num_models: int, num_rounds: int, directory: Path
) -> list[Table]:
    """Time each part of what is between two outer iterations."""
    torch.set_num_threads(1)  # as in the outer loop
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    description = {"network": asdict(network.config)}
    paths = [directory / f"{job}.safetensors" for job in range(num_models)]
    for path in paths:
        torch.nn.init.normal_(network.output.weight)
        write_model(path, network.state_dict(), description, durable=False)
    weights = [1000.0 + job for job in range(num_models)]
    mean, out = average_files(paths, weights), directory / "mean.safetensors"
    write_model(out, mean, description)
    names = {name for name, _ in network.named_parameters()}

    def cosines() -> object:
        return step_cosines(mean, [read_model(path).tensors for path in paths], names)

    parts: dict[str, Callable[[], object]] = {
        "average": lambda: average_files(paths, weights),
        "change": lambda: relative_change(read_model(paths[0]).tensors, mean),
        "cosines": cosines,
        "write": lambda: write_model(out, mean, description),
        "hand out": lambda: Network(config).load_state_dict(read_model(out).tensors),
    }
    values = take_rounds({name: per_call(part, 1, 1e3) for name, part in parts.items()}, num_rounds)
    rows = [Row(name, of_part) for name, of_part in values.items()]
    whole = tuple(map(sum, zip(*values.values(), strict=True)))
    rows.append(Row("all", whole, Goal(MOST_OF_AN_ITERATION * OUTER_ITERATION_MS)))
    num_parameters = sum(parameter.numel() for parameter in network.parameters())
    title = f"between two iterations, {num_models} models of {num_parameters} parameters"
    return [Table(title, "ms", tuple(rows), references=("all",))]


PARTS: dict[str, Callable[[Size, int, Path], list[Table]]] = {
    # First, as what the others leave in this process would count as the driver's memory.
    "driver": lambda size, num_rounds, directory: measure_driver(
        size.driver_iterations, size.driver_jobs, directory
    ),
    "average": lambda size, num_rounds, directory: measure_average(
        size.averaged, size.num_models, num_rounds, directory
    ),
    "handover": lambda size, num_rounds, directory: measure_handover(
        size.averaged, size.num_models, num_rounds, directory
    ),
    "iteration": lambda size, num_rounds, directory: measure_iterations(
        size.network, size.samples_per_job, num_rounds, directory
    ),
}


def measure(options: argparse.Namespace, findings: Findings) -> None:
    unknown = sorted(set(options.parts) - PARTS.keys())
    if unknown:
        raise ValueError(f"the parts are {', '.join(PARTS)}, but got {', '.join(unknown)}")
    size = QUICK if options.is_quick else Size()
    findings.settings |= {"size": asdict(size), "minibatch": MINIBATCH}
    wanted = options.parts or PARTS
    for name in (part for part in PARTS if part in wanted):  # in their own order
        tell(f"measuring: {name}")
        with tempfile.TemporaryDirectory() as directory:
            for table in PARTS[name](size, options.num_rounds, Path(directory)):
                findings.add(table)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (all)")


BENCHMARK = Benchmark("averaging", __doc__ or "", measure, num_rounds=7, add_options=add_options)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
