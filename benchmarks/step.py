"""What a training step costs: NGSGD against torch.optim.SGD and the bare matrix products.

    python -m benchmarks.step [--networks dnn2 small] [--minibatches 128 512] [--threads 1 2]
                              [--no-native]

All contenders train copies of one p-norm network on the same data. A round is 4 steps of each: one
update period of the online method.

`products` are only the three matrix products of each layer (two for the first, whose input needs no
derivative), as fast as we know how to do them; `products, torch` are the same by `torch.mm`.
`products, online` and `products, simple` are `products` with what each method adds to them, and
nothing else (`benchmarks.arithmetic`): they tell what is arithmetic and what is not.
`torch, no update` is torch's forward and backward pass alone: the network before any optimizer.
`online, rank 20` has a rank of 20 at the outputs too, instead of 80: a choice for small layers.
What is called `native` is done with natgrad's compiled kernels in use (`use_native_kernels`), in
turns with the rest, which is done without; they need a C compiler.
Freed memory stays with the process, as in jobs: else chance decides which method has to wait for
the system to map it anew.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.arithmetic import arithmetic_of
from benchmarks.harness import (
    Benchmark,
    Findings,
    per_call,
    run_benchmark,
    take_rounds,
    whole_above_zero,
)
from benchmarks.table import Goal, Row, Table
from natgrad import NGSGD, use_native_kernels
from natgrad.freed_memory import keep_freed_memory
from natgrad.nn.network import NetworkConfig, build
from natgrad.optim.native import KernelsError, load_kernels

NETWORKS = {
    # The paper's DNN2 (section 6), one that fits a laptop, and one to see whether all runs.
    "dnn2": NetworkConfig(num_inputs=700, num_outputs=12000, hidden=((3500, 350),) * 4),
    "small": NetworkConfig(num_inputs=360, num_outputs=1000, hidden=((1000, 200),) * 4),
    "tiny": NetworkConfig(num_inputs=6, num_outputs=5, hidden=((8, 4),) * 2),
}
NUM_STEPS_PER_ROUND = 4
NUM_WARM_UP_ROUNDS = 3  # past the first 10 minibatches, on which the online method updates always
NUM_WARM_UP_STEPS = NUM_WARM_UP_ROUNDS * NUM_STEPS_PER_ROUND
LR = 1e-4
SGD, PRODUCTS, NO_UPDATE, PLAIN = "torch SGD", "products", "torch, no update", "none"
ARITHMETIC = {
    "products, torch": "torch",
    PRODUCTS: "none",
    "products, online": "online",
    "products, simple": "simple",
}
NGSGD_OPTIONS: dict[str, dict[str, Any]] = {
    PLAIN: {"method": "none"},
    "online": {"method": "online"},
    "simple": {"method": "simple"},
    "online, .grad": {"method": "online", "fused": False},
    "online, rank 20": {"method": "online", "rank_out": 20},
}
NATIVE = (PRODUCTS, "products, online", "products, simple", PLAIN, "online", "simple")
GOALS = {PLAIN: Goal(1.10, of=PRODUCTS), "simple": Goal(1.30, of=SGD)}
GOALS_OF_NETWORK = {
    "dnn2": {**GOALS, "online": Goal(1.00, of=SGD)},
    "small": {**GOALS, "online": Goal(1.10, of=SGD)},
}

Step = Callable[[], None]


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Step:
    def step() -> None:
        loss = F.cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def forward_and_backward(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    def step() -> None:
        F.cross_entropy(model(x), y, reduction="sum").backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def natively(name: str) -> str:
    return f"{name}, native"


def with_native_kernels(step: Step) -> Step:
    def native_step() -> None:
        use_native_kernels()
        step()
        use_native_kernels(False)

    return native_step


def contenders(network: str, minibatch: int, is_native: bool) -> dict[str, Step]:
    """Return what is timed; what is native has a network of its own, too."""
    steps = _contenders(network, minibatch)
    if is_native:
        others = _contenders(network, minibatch)
        steps |= {natively(name): with_native_kernels(others[name]) for name in NATIVE}
    return steps


def _contenders(network: str, minibatch: int) -> dict[str, Step]:
    config = NETWORKS[network]
    generator = torch.Generator().manual_seed(0)
    original = build(config.num_inputs, config.num_outputs, config.hidden, generator=generator)
    nn.init.normal_(original.output.weight, std=0.05, generator=generator)
    x = torch.randn(minibatch, config.num_inputs, generator=generator)
    y = torch.randint(config.num_outputs, (minibatch,), generator=generator)
    steps: dict[str, Step] = {
        name: arithmetic_of(original, minibatch, method) for name, method in ARITHMETIC.items()
    }
    model: nn.Module = copy.deepcopy(original)
    steps[NO_UPDATE] = forward_and_backward(model, x, y)
    model = copy.deepcopy(original)
    steps[SGD] = training_step(model, torch.optim.SGD(model.parameters(), lr=LR), x, y)
    for name, options in NGSGD_OPTIONS.items():
        model = copy.deepcopy(original)
        optimizer = NGSGD(model, lr=LR, **{"fused": True, **options})
        steps[name] = training_step(model, optimizer, x, y)
    return steps


def time_steps(
    network: str, minibatch: int, threads: int, num_rounds: int, is_native: bool
) -> Table:
    torch.set_num_threads(threads)
    methods = {
        name: per_call(step, NUM_STEPS_PER_ROUND, scale=1e3)
        for name, step in contenders(network, minibatch, is_native).items()
    }
    values = take_rounds(methods, num_rounds, NUM_WARM_UP_ROUNDS)
    goals = GOALS_OF_NETWORK.get(network, {})
    goals = goals | {natively(name): goal for name, goal in goals.items()}
    rows = tuple(Row(name, values[name], goals.get(name)) for name in methods)
    title = f"{network}, minibatch {minibatch}, {threads} thread{'s' * (threads > 1)}"
    return Table(title, "ms a step", rows, references=(SGD, PLAIN, PRODUCTS))


def check_kernels() -> None:
    """Raise ValueError if there are no native kernels: not after the first rounds."""
    try:
        load_kernels()
    except KernelsError as error:
        raise ValueError(
            f"{error}; or measure without them: python -m benchmarks.step --no-native"
        ) from error


def measure(options: argparse.Namespace, findings: Findings) -> None:
    if options.native:
        check_kernels()
    quick = options.is_quick
    networks = options.networks or (["tiny"] if quick else ["dnn2", "small"])
    minibatches = options.minibatches or ([8] if quick else [128, 512])
    threads = options.threads or ([1] if quick else [1, 2])
    findings.settings |= {
        "lr": LR,
        "steps_per_round": NUM_STEPS_PER_ROUND,
        "keeps_freed_memory": keep_freed_memory(),
    }
    for network in networks:
        for minibatch in minibatches:
            for num_threads in threads:
                table = time_steps(
                    network, minibatch, num_threads, options.num_rounds, options.native
                )
                findings.add(table)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--networks", nargs="+", choices=NETWORKS)
    parser.add_argument("--minibatches", nargs="+", type=whole_above_zero)
    parser.add_argument("--threads", nargs="+", type=whole_above_zero)
    parser.add_argument("--native", action=argparse.BooleanOptionalAction, default=True)


BENCHMARK = Benchmark("step", __doc__ or "", measure, num_rounds=15, add_options=add_options)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
