"""What examples on disk cost: bytes, building, reading, and gathering against a training step.

    python -m benchmarks.examples [--json FILE]

Utterances of 150 to 450 frames of 40 features, with labels that change every three frames, as those
of tied states do. Two cases: a context of 4 frames on each side; and 8, with a side vector of 20,
which makes the 700 inputs of the paper's DNN2. A block of the latter is read, and its minibatches
of 512 are gathered in turn with training steps of DNN2 (NGSGD, online, fused), all on one thread.

Building is timed by the clock, its start of processes included; the rest by the processor time that
it takes, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.step import LR, NETWORKS, NUM_WARM_UP_STEPS, training_step
from natgrad import NGSGD
from natgrad.data import Block, Examples, Segment, build
from natgrad.nn import NetworkConfig
from natgrad.nn import build as build_network

FEATURE_DIM = 40
MINIBATCH = 512
NUM_SOURCES = 4
FRAMES_PER_LABEL = 3


@dataclass(frozen=True)
class Size:
    """Of the corpus, of its blocks, and of the network that is trained on them."""

    num_samples: int = 2_000_000
    samples_per_job: int = 400_000
    num_steps: int = 40
    network: NetworkConfig = NETWORKS["dnn2"]


@dataclass(frozen=True)
class Case:
    """Frames of context on each side, and the dimension of the side vector."""

    context: int
    side_dim: int


@dataclass(frozen=True)
class Built:
    """What building one set took."""

    context: int
    side_dim: int
    num_workers: int
    bytes_per_value: float
    frames_per_second: float


@dataclass(frozen=True)
class Trained:
    """Milliseconds per minibatch; reading is of a block, from the page cache, with its checksum."""

    block_samples: int
    block_megabytes: float
    memory_megabytes: float
    read_ms: float
    gather_ms: float
    gather_ms_quartiles: tuple[float, float]
    step_ms: float

    @property
    def share_of_training(self) -> float:
        """(Reading + gathering) / the step, per minibatch."""
        read_ms = self.read_ms * MINIBATCH / self.block_samples
        return (read_ms + self.gather_ms) / self.step_ms


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


def build_case(directory: Path, case: Case, size: Size, num_workers: int) -> tuple[Built, Examples]:
    num_classes = size.network.num_outputs
    num_frames = size.num_samples // NUM_SOURCES
    sources = [
        partial(utterances, number, num_frames, num_classes, case.side_dim)
        for number in range(NUM_SOURCES)
    ]
    begin = time.perf_counter()
    examples = build(
        directory,
        sources,
        num_classes=num_classes,
        left_context=case.context,
        right_context=case.context,
        samples_per_job=size.samples_per_job,
        num_workers=num_workers,
    )
    seconds = time.perf_counter() - begin
    values = examples.num_samples * FEATURE_DIM
    row = Built(
        case.context,
        case.side_dim,
        num_workers,
        examples.num_bytes / values,
        examples.num_samples / seconds,
    )
    return row, examples


def train(examples: Examples, size: Size) -> Trained:
    config = size.network
    network = build_network(config.num_inputs, config.num_outputs, config.hidden)
    optimizer = NGSGD(network, lr=LR, fused=True)
    read_seconds, gather_seconds, step_seconds = [], [], []
    for _ in range(5):
        begin = time.process_time()
        block = Block.read(examples.block_paths[0])
        read_seconds.append(time.process_time() - begin)
    minibatches = block.minibatches(MINIBATCH, seed=0)
    next(minibatches)  # draws the order, too
    for number in range(NUM_WARM_UP_STEPS + size.num_steps):
        begin = time.process_time()
        minibatch = next(minibatches)
        gathered = time.process_time()
        training_step(network, optimizer, minibatch.features, minibatch.labels)()
        if number >= NUM_WARM_UP_STEPS:
            gather_seconds.append(gathered - begin)
            step_seconds.append(time.process_time() - gathered)
    lower, _, upper = statistics.quantiles(gather_seconds, n=4)
    return Trained(
        block.num_samples,
        examples.blocks[0].num_bytes / 1e6,
        block.num_bytes / 1e6,
        1e3 * statistics.median(read_seconds),
        1e3 * statistics.median(gather_seconds),
        (1e3 * lower, 1e3 * upper),
        1e3 * statistics.median(step_seconds),
    )


def print_tables(built: list[Built], trained: Trained) -> None:
    print(f"{'context':>8} {'side':>5} {'workers':>8} {'bytes/value':>12} {'frames/s':>10}")
    for row in built:
        print(
            f"{f'+-{row.context}':>8} {row.side_dim:5} {row.num_workers:8} "
            f"{row.bytes_per_value:12.3f} {row.frames_per_second:10.0f}"
        )
    lower, upper = trained.gather_ms_quartiles
    print(
        f"\nblock: {trained.block_samples} samples, {trained.block_megabytes:.1f} MB on disk, "
        f"{trained.memory_megabytes:.1f} MB in memory, read in {trained.read_ms:.0f} ms\n"
        f"minibatch of {MINIBATCH}: gathered in {trained.gather_ms:.2f} ms "
        f"({lower:.2f}-{upper:.2f}), trained on in {trained.step_ms:.1f} ms\n"
        f"reading and gathering / training: {100 * trained.share_of_training:.2f} %"
    )


def main(arguments: list[str] | None = None, size: Size | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", help="write the figures there too")
    options = parser.parse_args(arguments)
    size = size or Size()
    torch.set_num_threads(1)
    dnn = Case(context=8, side_dim=size.network.num_inputs - 17 * FEATURE_DIM)
    built = []
    with tempfile.TemporaryDirectory() as directory:
        for case in (Case(context=4, side_dim=0), dnn):
            for num_workers in options.workers:
                place = Path(directory, f"{case.context}-{num_workers}")
                row, examples = build_case(place, case, size, num_workers)
                built.append(row)
        trained = train(examples, size)
    print_tables(built, trained)
    if options.json:
        facts = {"torch": torch.__version__, "numpy": np.__version__}
        facts["machine"] = platform.processor()
        figures = asdict(trained) | {"share_of_training": trained.share_of_training}
        with open(options.json, "w") as file:
            rows = [asdict(row) for row in built]
            json.dump({"facts": facts, "built": rows, "trained": figures}, file, indent=1)


if __name__ == "__main__":
    main()
