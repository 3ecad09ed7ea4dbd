"""What the training system costs beside the training itself.

    python -m benchmarks.averaging [average] [iteration] [driver] [--json FILE]

average: a model of DNN2's size (19.3 million parameters) from 16 jobs: reading their files,
averaging, writing the mean durably, and reading it for the next job.
iteration: whole outer iterations of DNN2 on local processes, with reading, training, saving and
averaging, against bare training loops on the same minibatches, in memory already; in turn. With
two jobs at a time, and two bare loops at a time, too.
driver: 1000 outer iterations of 16 tiny jobs: the driver's memory, and its own time per iteration.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.examples import FEATURE_DIM, utterances
from benchmarks.step import NETWORKS, training_step
from natgrad import NGSGD
from natgrad.data import Block, Examples, build, open_examples, segments_of_vectors
from natgrad.nn import Network, NetworkConfig
from natgrad.nn import build as build_network
from natgrad.parallel.average import average_files
from natgrad.parallel.engines import open_engine
from natgrad.parallel.outer import relative_change
from natgrad.recipes.train import (
    CombinationConfig,
    DataConfig,
    EngineConfig,
    NetworkShape,
    RunConfig,
    TrainConfig,
    TrainingConfig,
    train,
)
from natgrad.run.events import read_events
from natgrad.run.model_file import read_model, write_model

MINIBATCH = 512
OUTER_ITERATION_SECONDS = 60.0  # the paper's K = 400000 takes longer still


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    network: NetworkConfig = NETWORKS["dnn2"]
    num_models: int = 16
    repetitions: int = 7
    samples_per_job: int = 12_800
    num_iterations: int = 5
    driver_iterations: int = 1000
    driver_jobs: int = 16


# -- averaging ---------------------------------------------------------------------------------


def measure_average(size: Size, directory: Path) -> dict[str, float]:
    """Return the median seconds of each part of what is between two outer iterations."""
    torch.set_num_threads(1)  # as in the outer loop
    config = size.network
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    description = {"network": asdict(network.config)}
    paths = [directory / f"{job}.safetensors" for job in range(size.num_models)]
    for path in paths:
        torch.nn.init.normal_(network.output.weight)
        write_model(path, network.state_dict(), description, durable=False)
    parts: dict[str, list[float]] = {"average": [], "change": [], "write": [], "hand out": []}
    for _ in range(size.repetitions):
        times = [time.perf_counter()]
        mean = average_files(paths, [1000.0 + job for job in range(size.num_models)])
        times.append(time.perf_counter())
        relative_change(read_model(paths[0]).tensors, mean)
        times.append(time.perf_counter())
        write_model(directory / "mean.safetensors", mean, description)
        times.append(time.perf_counter())
        Network(config).load_state_dict(read_model(directory / "mean.safetensors").tensors)
        times.append(time.perf_counter())
        for seconds, (begin, end) in zip(parts.values(), pairwise(times), strict=True):
            seconds.append(end - begin)
    return {name: statistics.median(seconds) for name, seconds in parts.items()}


# -- whole iterations --------------------------------------------------------------------------


def bare_loop(examples: str, block: int, network: NetworkConfig) -> float:
    """Train on a block that is in memory as minibatches, and return samples per second."""
    torch.set_num_threads(1)
    minibatches = list(
        Block.read(open_examples(examples).block_paths[block]).minibatches(MINIBATCH, seed=0)
    )
    model = build_network(network.num_inputs, network.num_outputs, network.hidden)
    optimizer = NGSGD(model, lr=1e-5, fused=True)
    begin = time.perf_counter()
    for minibatch in minibatches:
        training_step(model, optimizer, minibatch.features, minibatch.labels)()
    return sum(map(len, minibatches)) / (time.perf_counter() - begin)


def dnn_examples(size: Size, directory: Path) -> Examples:
    config = size.network
    side_dim = config.num_inputs - 17 * FEATURE_DIM
    num_frames = size.samples_per_job * 2
    source = partial(utterances, 0, num_frames, config.num_outputs, side_dim)
    return build(
        directory,
        [source],
        num_classes=config.num_outputs,
        left_context=8,
        right_context=8,
        num_jobs=2,
        samples_per_job=size.samples_per_job,
    )


def measure_iterations(size: Size, directory: Path) -> dict[str, Any]:
    """Return samples per second of whole iterations and of bare loops, by the number of jobs."""
    examples = dnn_examples(size, directory / "examples")
    results: dict[str, Any] = {}
    for num_jobs in (1, 2):
        with open_engine("local", num_jobs) as bare_engine:
            whole, bare = _alternate(size, directory, examples, num_jobs, bare_engine)
        ratios = [a / b for a, b in zip(whole, bare, strict=True)]
        results[str(num_jobs)] = {"whole": whole, "bare": bare, "ratios": ratios}
    return results


def _alternate(
    size: Size, directory: Path, examples: Examples, num_jobs: int, engine: Executor
) -> tuple[list[float], list[float]]:
    """Let whole iterations and bare loops take turns: the loops run when an iteration is over."""
    from benchmarks.averaging import bare_loop  # workers import it, but not the main script

    whole: list[float] = []
    bare: list[float] = []
    begun = time.perf_counter()

    def on_event(event: dict[str, Any]) -> None:
        nonlocal begun
        if event["event"] != "iteration":
            return
        whole.append(event["samples"] / (time.perf_counter() - begun))
        loops = [
            engine.submit(bare_loop, str(examples.directory), job, size.network)
            for job in range(num_jobs)
        ]
        bare.append(sum(loop.result() for loop in loops))
        begun = time.perf_counter()

    config = TrainConfig(
        run=RunConfig(str(directory / f"run-{num_jobs}")),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(
            hidden=tuple(size.network.hidden_widths),
            initial_num_hidden=None,
            output="plain",
            normalize_input=False,
        ),
        training=TrainingConfig(
            num_epochs=(size.num_iterations + 1) * num_jobs / examples.num_blocks,
            num_jobs=num_jobs,
            initial_effective_lr=1e-5,
            final_effective_lr=1e-5,
            minibatch_size=MINIBATCH,
        ),
        combination=CombinationConfig(method="last"),
    )
    train(config, on_event)
    return whole[1:], bare[1:]  # the first iteration starts the workers


# -- the driver --------------------------------------------------------------------------------


def resident_megabytes() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def tiny_vectors(num_vectors: int) -> Any:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, num_vectors)
    return segments_of_vectors(random.normal(size=(num_vectors, 4)).astype(np.float32), labels)


def measure_driver(size: Size, directory: Path) -> dict[str, Any]:
    """Return the driver's memory after each tenth of a long run, and its own time per iteration."""
    examples = build(
        directory / "examples",
        [partial(tiny_vectors, 64 * size.driver_jobs)],
        num_classes=3,
        num_jobs=size.driver_jobs,
        samples_per_job=64,
        validation_samples=64,
        train_subset_samples=64,
    )
    megabytes: list[float] = []

    def on_event(event: dict[str, Any]) -> None:
        every = max(1, size.driver_iterations // 10)
        if event["event"] == "iteration" and event["iteration"] % every == 0:
            megabytes.append(resident_megabytes())

    num_workers = 2
    config = TrainConfig(
        run=RunConfig(str(directory / "run")),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(hidden=((8, 4),), initial_num_hidden=None),
        training=TrainingConfig(num_epochs=size.driver_iterations, num_jobs=size.driver_jobs),
        engine=EngineConfig(num_workers=num_workers),
        combination=CombinationConfig(method="last"),
    )
    train(config, on_event)
    events = read_events(directory / "run" / "events.jsonl")
    in_jobs: dict[int, float] = {}
    for event in events:
        if event["event"] == "job":
            in_jobs[event["iteration"]] = in_jobs.get(event["iteration"], 0.0) + event["seconds"]
    ends = [event["time"] for event in events if event["event"] == "iteration"]
    own = [
        end - begin - in_jobs[number] / num_workers
        for number, (begin, end) in enumerate(pairwise(ends), start=2)
    ]
    return {
        "megabytes": megabytes,
        "overhead_ms": 1e3 * statistics.median(own),
        "overhead_ms_of_the_last_tenth": 1e3 * statistics.median(own[-max(1, len(own) // 10) :]),
        "events_megabytes": (directory / "run" / "events.jsonl").stat().st_size / 1e6,
    }


# -- all together ------------------------------------------------------------------------------


def print_average(parts: dict[str, float]) -> None:
    total = sum(parts.values())
    for name, seconds in parts.items():
        print(f"  {name:10} {1e3 * seconds:7.0f} ms")
    share = 100 * total / OUTER_ITERATION_SECONDS
    print(f"  {'all':10} {1e3 * total:7.0f} ms: {share:.2f} % of an outer iteration of 60 s")


def print_iterations(results: dict[str, Any]) -> None:
    for num_jobs, row in results.items():
        lower, median, upper = statistics.quantiles(row["ratios"], n=4)
        print(
            f"  {num_jobs} job(s): {statistics.median(row['whole']):.0f} samples/s, bare "
            f"{statistics.median(row['bare']):.0f}; ratio {median:.3f} ({lower:.3f}-{upper:.3f})"
        )
    for kind in ("whole", "bare"):
        one, two = (statistics.median(results[num_jobs][kind]) for num_jobs in ("1", "2"))
        print(f"  {kind}: 2 jobs have {two / one / 2:.3f} x 2 the throughput of one")


def print_driver(figures: dict[str, Any]) -> None:
    memory = ", ".join(f"{value:.0f}" for value in figures["megabytes"])
    print(f"  memory after each tenth: {memory} MB; events {figures['events_megabytes']:.1f} MB")
    print(
        f"  beside its jobs an iteration takes {figures['overhead_ms']:.1f} ms "
        f"({figures['overhead_ms_of_the_last_tenth']:.1f} ms in the last tenth)"
    )


PARTS = {
    "average": (measure_average, print_average),
    "iteration": (measure_iterations, print_iterations),
    "driver": (measure_driver, print_driver),
}


def main(arguments: list[str] | None = None, size: Size | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--json", help="write the figures there too")
    options = parser.parse_args(arguments)
    if not set(options.parts) <= PARTS.keys():
        parser.error(f"the parts are {', '.join(PARTS)}, but got {', '.join(options.parts)}")
    figures = {}
    for name in options.parts or PARTS:
        measure, show = PARTS[name]
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory() as directory:
            figures[name] = measure(size or Size(), Path(directory))
        show(figures[name])
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
