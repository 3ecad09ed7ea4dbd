"""What examples on disk cost: bytes, building, reading, and gathering against a training step.

    python -m benchmarks.data [--workers 1 2]

Utterances of 150 to 450 frames of 40 features, with labels that change every three frames, as those
of tied states do. Two cases: a context of 4 frames on each side; and 8, with a side vector of 20,
which makes the 700 inputs of the paper's DNN2. A block of the latter is read, and its minibatches
of 512 are gathered in turn with training steps of DNN2 (NGSGD, online, fused), all on one thread.

Building is timed by the clock, its start of processes included; the rest by the processor time that
it takes, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import (
    Benchmark,
    Findings,
    per_call,
    run_benchmark,
    take_rounds,
    tell,
    whole_above_zero,
)
from benchmarks.step import LR, NETWORKS, NUM_WARM_UP_STEPS, training_step
from benchmarks.table import Goal, Row, Table
from natgrad import NGSGD
from natgrad.data import Block, Examples, Minibatch, Segment, build
from natgrad.nn import NetworkConfig
from natgrad.nn import build as build_network

FEATURE_DIM = 40
MINIBATCH = 512
NUM_SOURCES = 4
FRAMES_PER_LABEL = 3
MOST_BYTES_PER_VALUE = 1.15
MOST_GATHER_MS = 20.0
MOST_SHARE_OF_TRAINING = 0.05


@dataclass(frozen=True)
class Size:
    """Of the corpus, of its blocks, and of the network that is trained on them."""

    num_samples: int = 2_000_000
    samples_per_job: int = 400_000
    num_builds: int = 3
    num_warm_up_steps: int = NUM_WARM_UP_STEPS
    network: NetworkConfig = NETWORKS["dnn2"]


QUICK = Size(
    num_samples=12_000,
    samples_per_job=12_000,
    num_builds=1,
    num_warm_up_steps=1,
    network=NetworkConfig(num_inputs=700, num_outputs=50, hidden=((20, 5),)),
)


@dataclass(frozen=True)
class Case:
    """Frames of context on each side, and the dimension of the side vector."""

    context: int
    side_dim: int

    def __str__(self) -> str:
        return f"context {self.context}" + f", side vector {self.side_dim}" * (self.side_dim > 0)


def utterances(number: int, num_frames: int, num_classes: int, side_dim: int) -> Iterator[Segment]:
    """Slices of random walks that were drawn once: what is timed is the building."""
    random = np.random.default_rng(number)
    noise = random.standard_normal((2000, FEATURE_DIM), dtype=np.float32)
    frames = noise + np.apply_along_axis(np.convolve, 0, noise, np.ones(9), mode="same") / 3
    frames = frames.astype(np.float32)
    remaining = num_frames
    while remaining > 0:
        length = min(int(random.integers(150, 450)), remaining)
        begin = random.integers(len(frames) - length)
        lengths = random.integers(1, 2 * FRAMES_PER_LABEL, length)
        labels = np.repeat(random.integers(num_classes, size=length), lengths)[:length]
        side = random.standard_normal(side_dim) if side_dim else None
        yield Segment(
            f"speaker{number:03d}-{remaining:07d}",
            frames[begin : begin + length],
            labels,
            side=side,
        )
        remaining -= length


def write_case(directory: Path, case: Case, size: Size, num_workers: int) -> Examples:
    num_classes = size.network.num_outputs
    num_frames = size.num_samples // NUM_SOURCES
    sources = [
        partial(utterances, number, num_frames, num_classes, case.side_dim)
        for number in range(NUM_SOURCES)
    ]
    return build(
        directory,
        sources,
        num_classes=num_classes,
        left_context=case.context,
        right_context=case.context,
        samples_per_job=size.samples_per_job,
        num_workers=num_workers,
    )


def building_rate(case: Case, size: Size, num_workers: int) -> float:
    """Build a set in a place that is not kept, and return its frames per second."""
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        examples = write_case(Path(directory, "examples"), case, size, num_workers)
        return examples.num_samples / (time.perf_counter() - begin)


def measure_building(case: Case, size: Size, workers: Sequence[int]) -> Table:
    methods = {
        f"{number} worker{'s' * (number > 1)}": partial(building_rate, case, size, number)
        for number in workers
    }
    values = take_rounds(methods, size.num_builds, num_warm_up=0)
    rows = tuple(Row(name, of_method) for name, of_method in values.items())
    return Table(f"building, {case}", "frames/s", rows, references=(rows[0].name,))


def measure_bytes(sets: dict[Case, Examples]) -> Table:
    """Return what is on the disk, all included, for each feature value of the corpus."""
    rows = [
        Row(
            str(case),
            (examples.num_bytes / (examples.num_samples * FEATURE_DIM),),
            Goal(MOST_BYTES_PER_VALUE),
            {"bytes a sample": examples.num_bytes / examples.num_samples},
        )
        for case, examples in sets.items()
    ]
    return Table("size", "bytes a feature value", tuple(rows))


def measure_reading(examples: Examples, size: Size, num_rounds: int) -> Table:
    """Return the milliseconds of a minibatch: its share of reading a block, gathering, training."""
    config = size.network
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    optimizer = NGSGD(network, lr=LR, fused=True)
    path = examples.block_paths[0]
    block = Block.read(path)
    minibatches = _endless(block)
    minibatch = next(minibatches)

    def gather() -> None:
        nonlocal minibatch
        minibatch = next(minibatches)

    def train() -> None:
        training_step(network, optimizer, minibatch.features, minibatch.labels)()

    share = 1e3 * MINIBATCH / block.num_samples
    methods = {
        "read": per_call(lambda: Block.read(path), scale=share, clock=time.process_time),
        "gather": per_call(gather, scale=1e3, clock=time.process_time),
        "train": per_call(train, scale=1e3, clock=time.process_time),
    }
    values = take_rounds(methods, num_rounds, size.num_warm_up_steps)
    both = zip(values["read"], values["gather"], strict=True)
    values["read + gather"] = tuple(read + gathered for read, gathered in both)
    goals = {
        "gather": Goal(MOST_GATHER_MS),
        "read + gather": Goal(MOST_SHARE_OF_TRAINING, of="train"),
    }
    rows = tuple(
        Row(name, values[name], goals.get(name), {"samples/s": _rate(values[name])})
        for name in ("read", "gather", "read + gather", "train")
    )
    title = (
        f"a minibatch of {MINIBATCH}, from a block of {block.num_samples} samples "
        f"({examples.blocks[0].num_bytes / 1e6:.1f} MB on disk, {block.num_bytes / 1e6:.1f} MB in "
        "memory), one thread"
    )
    return Table(title, "ms of processor time", rows, references=("train",))


def _endless(block: Block) -> Iterator[Minibatch]:
    seed = 0
    while True:
        yield from block.minibatches(MINIBATCH, seed=seed)
        seed += 1


def _rate(milliseconds: Sequence[float]) -> float:
    return MINIBATCH / max(1e-3 * statistics.median(milliseconds), 1e-9)


def measure(options: argparse.Namespace, findings: Findings) -> None:
    torch.set_num_threads(1)
    size = QUICK if options.is_quick else Size()
    workers = options.workers or ([1] if options.is_quick else [1, 2])
    findings.settings |= {"size": asdict(size), "minibatch": MINIBATCH, "dim": FEATURE_DIM}
    dnn = Case(context=8, side_dim=size.network.num_inputs - 17 * FEATURE_DIM)
    cases = (Case(context=4, side_dim=0), dnn)
    for case in cases:
        tell(f"building: {case}")
        findings.add(measure_building(case, size, workers))
    with tempfile.TemporaryDirectory() as directory:
        sets = {
            case: write_case(Path(directory, f"{number}"), case, size, workers[0])
            for number, case in enumerate(cases)
        }
        findings.add(measure_bytes(sets))
        tell("reading, gathering and training")
        findings.add(measure_reading(sets[dnn], size, options.num_rounds))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=whole_above_zero,
        nargs="+",
        metavar="N",
        help="processes that build (1 2)",
    )


BENCHMARK = Benchmark("data", __doc__ or "", measure, num_rounds=40, add_options=add_options)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
