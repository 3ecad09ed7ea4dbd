"""Whole outer iterations on local processes, against bare training loops, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch

from benchmarks.data import FEATURE_DIM, utterances
from benchmarks.harness import take_rounds
from benchmarks.step import training_step
from benchmarks.table import Goal, Row, Table
from benchmarks.turns import RunInTurns
from natgrad import NGSGD
from natgrad.data import Block, Examples, build, open_examples
from natgrad.freed_memory import keep_freed_memory
from natgrad.nn import NetworkConfig
from natgrad.nn import build as build_network
from natgrad.parallel.engines import open_engine
from natgrad.recipes.train import (
    CombinationConfig,
    DataConfig,
    NetworkShape,
    RunConfig,
    TrainConfig,
    TrainingConfig,
    train,
)

__all__ = ["MINIBATCH", "measure_iterations"]

MINIBATCH = 512
CONTEXT = 8
LR = 1e-5
NUM_WARM_UP = 1  # in which workers start
LEAST_OF_BARE = 0.92
LEAST_OF_TWICE = 0.95
JOBS = {1: "1 job", 2: "2 jobs"}


def measure_iterations(
    network: NetworkConfig, samples_per_job: int, num_rounds: int, directory: Path
) -> list[Table]:
    """Time whole iterations and bare loops, of one job and of two, all in the same rounds."""
    examples = dnn_examples(network, samples_per_job, directory / "examples")
    num_iterations = NUM_WARM_UP + num_rounds
    methods: dict[str, Callable[[], float]] = {}
    with ExitStack() as open_ones:
        engine = open_ones.enter_context(open_engine("local", max(JOBS)))
        for num_jobs, name in JOBS.items():
            config = whole_run(network, directory, examples, num_jobs, num_iterations)
            whole = open_ones.enter_context(RunInTurns(partial(train, config)))
            methods[f"whole, {name}"] = whole.samples_per_second
            methods[f"bare, {name}"] = partial(bare_loops, engine, examples, network, num_jobs)
        values = take_rounds(methods, num_rounds, NUM_WARM_UP)
    return [
        *(_whole_against_bare(values, name) for name in JOBS.values()),
        *(_two_against_one(values, kind) for kind in ("whole", "bare")),
    ]


def dnn_examples(network: NetworkConfig, samples_per_job: int, directory: Path) -> Examples:
    side_dim = network.num_inputs - (2 * CONTEXT + 1) * FEATURE_DIM
    source = partial(utterances, 0, 2 * samples_per_job, network.num_outputs, side_dim)
    return build(
        directory,
        [source],
        num_classes=network.num_outputs,
        left_context=CONTEXT,
        right_context=CONTEXT,
        num_jobs=2,
        samples_per_job=samples_per_job,
    )


def whole_run(
    network: NetworkConfig, directory: Path, examples: Examples, num_jobs: int, num_iterations: int
) -> TrainConfig:
    return TrainConfig(
        run=RunConfig(str(directory / f"run-{num_jobs}")),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(
            hidden=tuple(network.hidden_widths),
            initial_num_hidden=None,
            output="plain",
            normalize_input=False,
        ),
        training=TrainingConfig(
            num_epochs=num_iterations * num_jobs / examples.num_blocks,
            num_jobs=num_jobs,
            initial_effective_lr=LR,
            final_effective_lr=LR,
            minibatch_size=MINIBATCH,
        ),
        combination=CombinationConfig(method="last"),
    )


def bare_loops(engine: Executor, examples: Examples, network: NetworkConfig, num: int) -> float:
    """Run bare loops on several blocks at a time, and return the sum of their rates."""
    loops = [
        engine.submit(bare_loop, str(examples.directory), block, network) for block in range(num)
    ]
    return sum(loop.result() for loop in loops)


def bare_loop(examples: str, block: int, network: NetworkConfig) -> float:
    """Train on a block that is in memory as minibatches, and return samples per second."""
    torch.set_num_threads(1)
    keep_freed_memory()  # as jobs do
    minibatches = list(
        Block.read(open_examples(examples).block_paths[block]).minibatches(MINIBATCH, seed=0)
    )
    model = build_network(network.num_inputs, network.num_outputs, network.hidden)
    optimizer = NGSGD(model, lr=LR, fused=True)
    begin = time.perf_counter()
    for minibatch in minibatches:
        training_step(model, optimizer, minibatch.features, minibatch.labels)()
    return sum(map(len, minibatches)) / (time.perf_counter() - begin)


# -- tables ------------------------------------------------------------------------------------


def _whole_against_bare(values: Mapping[str, tuple[float, ...]], jobs: str) -> Table:
    rows = (
        Row("bare", values[f"bare, {jobs}"]),
        Row("whole", values[f"whole, {jobs}"], Goal(LEAST_OF_BARE, of="bare", at_least=True)),
    )
    title = f"whole iterations and bare training loops, {jobs}"
    return Table(title, "samples/s", rows, references=("bare",))


def _two_against_one(values: Mapping[str, tuple[float, ...]], kind: str) -> Table:
    one, two = JOBS.values()
    goal = Goal(2 * LEAST_OF_TWICE, of=one, at_least=True) if kind == "whole" else None
    rows = (Row(one, values[f"{kind}, {one}"]), Row(two, values[f"{kind}, {two}"], goal))
    what = "whole iterations" if kind == "whole" else "bare training loops"
    return Table(f"two jobs at a time, {what}", "samples/s", rows, references=(one,))
