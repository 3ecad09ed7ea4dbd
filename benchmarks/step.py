"""What a training step costs: NGSGD against torch.optim.SGD and the bare matrix products.

    python -m benchmarks.step [--networks dnn2 small] [--minibatches 128 512] [--threads 1 2]

All contenders train copies of one p-norm network on the same data, in turn, round by round, and the
ratios are taken within a round, so that a noisy machine disturbs all alike. Printed are the medians
over the rounds, and the quartiles of the ratios. A round is 4 steps: one update period of the
online method.

`products` is the limit: only the three matrix products of each layer (two for the first, whose
input needs no derivative), into memory that is already there.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from natgrad import NGSGD
from natgrad.nn.network import NetworkConfig, build

NETWORKS = {
    # The paper's DNN2 (section 6), and one that fits a laptop.
    "dnn2": NetworkConfig(num_inputs=700, num_outputs=12000, hidden=((3500, 350),) * 4),
    "small": NetworkConfig(num_inputs=360, num_outputs=1000, hidden=((1000, 200),) * 4),
}
NUM_STEPS_PER_ROUND = 4
NUM_WARM_UP_STEPS = 12  # past the first 10 minibatches, on which the online method updates always
LR = 1e-4

Step = Callable[[], None]


@dataclass(frozen=True)
class Timing:
    """Of one contender on one setting; ratios are to torch.optim.SGD in the same round."""

    network: str
    minibatch: int
    threads: int
    contender: str
    milliseconds: float
    ratio: float
    ratio_quartiles: tuple[float, float]
    ratio_to_products: float


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Step:
    def step() -> None:
        loss = F.cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def bare_products(model: nn.Module, minibatch: int) -> Step:
    """Return the step's matrix products alone: outputs, input derivatives and weight gradients."""
    weights = [layer.weight.detach() for layer in model.modules() if isinstance(layer, nn.Linear)]
    inputs = [torch.randn(minibatch, weight.shape[1]) for weight in weights]
    derivatives = [torch.randn(minibatch, weight.shape[0]) for weight in weights]
    outputs = [torch.empty(minibatch, weight.shape[0]) for weight in weights]
    input_derivatives = [torch.empty_like(y) for y in inputs]
    gradients = [torch.empty_like(weight) for weight in weights]

    def step() -> None:
        for weight, y, output in zip(weights, inputs, outputs, strict=True):
            torch.mm(y, weight.t(), out=output)
        for layer in reversed(range(len(weights))):
            if layer > 0:
                torch.mm(derivatives[layer], weights[layer], out=input_derivatives[layer])
            torch.mm(derivatives[layer].t(), inputs[layer], out=gradients[layer])

    return step


def contenders(network: str, minibatch: int) -> dict[str, Step]:
    config = NETWORKS[network]
    generator = torch.Generator().manual_seed(0)
    original = build(config.num_inputs, config.num_outputs, config.hidden, generator=generator)
    nn.init.normal_(original.output.weight, std=0.05, generator=generator)
    x = torch.randn(minibatch, config.num_inputs, generator=generator)
    y = torch.randint(config.num_outputs, (minibatch,), generator=generator)
    steps: dict[str, Step] = {"products": bare_products(original, minibatch)}
    model: nn.Module = copy.deepcopy(original)
    steps["torch SGD"] = training_step(model, torch.optim.SGD(model.parameters(), lr=LR), x, y)
    for name, method, fused in (
        ("none", "none", True),
        ("online", "online", True),
        ("simple", "simple", True),
        ("online, .grad", "online", False),
    ):
        model = copy.deepcopy(original)
        steps[name] = training_step(model, NGSGD(model, lr=LR, method=method, fused=fused), x, y)
    return steps


def measure(network: str, minibatch: int, threads: int, num_rounds: int) -> list[Timing]:
    torch.set_num_threads(threads)
    steps = contenders(network, minibatch)
    for step in steps.values():
        for _ in range(NUM_WARM_UP_STEPS):
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(num_rounds):
        for name, step in steps.items():
            begin = time.perf_counter()
            for _ in range(NUM_STEPS_PER_ROUND):
                step()
            seconds[name].append((time.perf_counter() - begin) / NUM_STEPS_PER_ROUND)
    timings = []
    for name, own in seconds.items():
        ratios = [a / b for a, b in zip(own, seconds["torch SGD"], strict=True)]
        lower, _, upper = statistics.quantiles(ratios, n=4)
        to_products = [a / b for a, b in zip(own, seconds["products"], strict=True)]
        timings.append(
            Timing(
                network,
                minibatch,
                threads,
                name,
                1e3 * statistics.median(own),
                statistics.median(ratios),
                (lower, upper),
                statistics.median(to_products),
            )
        )
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--minibatches", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write the timings there too")
    options = parser.parse_args()
    timings = []
    header = f"{'ms/step':>9} {'/ torch SGD':>11} {'(quartiles)':>13} {'/ products':>10}"
    for network in options.networks:
        for minibatch in options.minibatches:
            for threads in options.threads:
                print(f"\n{network}, minibatch {minibatch}, {threads} thread(s)\n{'':16}{header}")
                for row in measure(network, minibatch, threads, options.rounds):
                    timings.append(row)
                    lower, upper = row.ratio_quartiles
                    print(
                        f"{row.contender:16}{row.milliseconds:9.2f} {row.ratio:11.3f}"
                        f" ({lower:.3f}-{upper:.3f}) {row.ratio_to_products:10.3f}",
                        flush=True,
                    )
    if options.json:
        facts = {"torch": torch.__version__, "machine": platform.processor(), "lr": LR}
        with open(options.json, "w") as file:
            json.dump({"facts": facts, "timings": [asdict(row) for row in timings]}, file, indent=1)


if __name__ == "__main__":
    main()
