"""How fast NGSGD learns, against the optimizers that PyTorch users know, each at its own best lr.

    python -m benchmarks.convergence

The task is `benchmarks.speech_like`, the contenders are `benchmarks.optimizers`. All see the same
minibatches and start from the same network, and all learning rates fall exponentially, tenfold in
all. A contender's learning rate is the one of a grid (in factors of two) with the least loss on
held-out data at the end of training, with a seed of its own; a grid whose best is at its edge is
extended. Then follow rounds with other seeds (of the network and of the order of samples), in which
the contenders take turns, some minibatches each, so that a noisy machine disturbs all alike.
Seconds are CPU seconds of one thread, without evaluation. All curves and grids are kept:
`benchmarks.convergence_report` prints and plots them.
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from statistics import median

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from benchmarks.convergence_report import GOALS, Comparison, Point, Run, cost_to_reach
from benchmarks.harness import Benchmark, Findings, run_benchmark, tell
from benchmarks.optimizers import CONTENDERS, Contender
from benchmarks.speech_like import (
    QUICK,
    Size,
    Task,
    initial_network,
    make_task,
    mean_direction_shares,
)
from benchmarks.table import Row, Table
from natgrad import NonFiniteError
from natgrad.nn import Network

MINIBATCH_SIZE = 128
NUM_EVALUATIONS = 20
TUNING_SEED = 0  # rounds have the seeds from 1 on
# Of the first grid, in powers of two around the contender's lr.
EXPONENTS = (-2, -1, 0, 1, 2)
SGD, OURS = "SGD", "NGSGD online"


def train(
    contender: Contender, task: Task, lr: float, seed: int, num_evaluations: int
) -> Iterator[Point]:
    """Pass once over the training data, yielding a point at its start, its end, and every so often.

    A run that diverges ends early, with a point whose loss is infinite.
    """
    network = initial_network(task, seed)
    optimizers = contender.make(network, lr)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(task.train_indices), generator=generator)
    minibatches = task.train_indices[order].view(-1, MINIBATCH_SIZE).unbind()
    decay = 0.1 ** (1.0 / len(minibatches))
    schedules = [ExponentialLR(optimizer, gamma=decay) for optimizer in optimizers]
    period = max(1, len(minibatches) // num_evaluations)
    seconds, num_samples = 0.0, 0
    yield Point(num_samples, seconds, *evaluate(network, task))
    for number, indices in enumerate(minibatches, start=1):
        x, y = task.minibatch(indices)
        begin = time.process_time()
        is_finite = step(network, optimizers, x, y, contender.reduction)
        for schedule in schedules:
            schedule.step()
        seconds += time.process_time() - begin
        if not is_finite:
            yield Point(num_samples, seconds, math.inf, 0.0)
            return
        num_samples += len(y)
        if number % period == 0 or number == len(minibatches):
            yield Point(num_samples, seconds, *evaluate(network, task))


def step(
    network: Network, optimizers: Sequence[Optimizer], x: Tensor, y: Tensor, reduction: str
) -> bool:
    """Take one training step, and return whether all is still finite."""
    loss = F.cross_entropy(network(x), y, reduction=reduction)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    try:
        for optimizer in optimizers:
            optimizer.step()
    except NonFiniteError:
        return False
    return math.isfinite(loss.item())


@torch.no_grad()
def evaluate(network: Network, task: Task) -> tuple[float, float]:
    """Return mean loss and accuracy on the held-out data."""
    logits = network(task.held_out_x)
    loss = F.cross_entropy(logits, task.held_out_y).item()
    accuracy = (logits.argmax(dim=1) == task.held_out_y).float().mean().item()
    return (loss, accuracy) if math.isfinite(loss) else (math.inf, 0.0)


def tune(contender: Contender, task: Task, exponents: Sequence[int]) -> dict[float, float]:
    """Return the final loss for each lr of the grid, in order of lr; the least is inside it.

    A grid of one value is left at that.
    """

    def final_loss(exponent: int) -> float:
        lr = contender.lr * 2.0**exponent
        *_, last = train(contender, task, lr, TUNING_SEED, num_evaluations=1)
        tell(f"  {contender.name}: lr {lr:g} gives {last.loss:.3f}")
        return last.loss

    losses = {exponent: final_loss(exponent) for exponent in exponents}
    while len(losses) > 1:
        best = min(losses, key=losses.__getitem__)
        if best not in (min(losses), max(losses)):
            break
        beyond = best - 1 if best == min(losses) else best + 1
        losses[beyond] = final_loss(beyond)
    return {contender.lr * 2.0**exponent: losses[exponent] for exponent in sorted(losses)}


def compare(task: Task, lrs: Mapping[str, float], seed: int) -> list[Run]:
    """Train all contenders at once, in turns that are as long as the way from point to point."""
    runs = {
        contender: train(contender, task, lrs[contender.name], seed, NUM_EVALUATIONS)
        for contender in CONTENDERS
    }
    points: dict[Contender, list[Point]] = {contender: [] for contender in CONTENDERS}
    while runs:
        for contender in list(runs):
            point = next(runs[contender], None)
            if point is None:
                del runs[contender]
            else:
                points[contender].append(point)
    return [Run(c.name, lrs[c.name], seed, tuple(points[c])) for c in CONTENDERS]


def tune_and_compare(size: Size, exponents: Sequence[int], seeds: Sequence[int]) -> Comparison:
    """Tune every contender, then compare them at their best, once per seed."""
    task = make_task(size)
    tuning = {contender.name: tune(contender, task, exponents) for contender in CONTENDERS}
    lrs = {name: min(losses, key=losses.__getitem__) for name, losses in tuning.items()}
    runs = []
    for seed in seeds:
        tell(f"  comparing, seed {seed}")
        runs += compare(task, lrs, seed)
    facts = {
        "torch": torch.__version__,
        "pytorch_optimizer": version("pytorch_optimizer"),
        "machine": platform.machine(),
        "minibatch": MINIBATCH_SIZE,
        "input_condition": task.input_condition,
        "transformed_condition": task.transformed_condition,
        "mean_direction_shares": mean_direction_shares(task, initial_network(task, TUNING_SEED)),
        **asdict(size),
    }
    notes = {contender.name: contender.note for contender in CONTENDERS}
    return Comparison(facts, notes, tuning, tuple(runs))


# -- tables ------------------------------------------------------------------------------------


def tables_of(comparison: Comparison) -> list[Table]:
    """Return where the contenders ended, what a minibatch cost them, and what some losses did."""
    names = list(comparison.tuning)
    return [
        Table(
            "at the end, each at its best lr",
            "held-out loss",
            tuple(_final_loss(name, comparison.of(name)) for name in names),
            references=(SGD,),
        ),
        Table(
            f"a minibatch of {comparison.facts['minibatch']}, one thread",
            "CPU ms",
            tuple(
                Row(name, tuple(_milliseconds(run, comparison) for run in comparison.of(name)))
                for name in names
            ),
            references=(SGD,),
        ),
        *(
            Table(
                f"until the held-out loss was first {goal:g}",
                "CPU seconds",
                tuple(_cost(name, comparison.of(name), goal) for name in names),
                references=(OURS,),
            )
            for goal in GOALS
        ),
    ]


def _final_loss(name: str, runs: Sequence[Run]) -> Row:
    ends = [run.points[-1] for run in runs]
    also = {"lr": runs[0].lr, "accuracy": median(end.accuracy for end in ends)}
    return Row(name, tuple(end.loss for end in ends), also=also)


def _milliseconds(run: Run, comparison: Comparison) -> float:
    end = run.points[-1]
    num_minibatches = end.num_samples / comparison.facts["minibatch"]
    return 1e3 * end.seconds / num_minibatches if num_minibatches else math.inf


def _cost(name: str, runs: Sequence[Run], goal: float) -> Row:
    costs = [cost_to_reach(run, goal) for run in runs]
    seconds = tuple(math.inf if cost is None else cost[1] for cost in costs)
    samples = [cost[0] for cost in costs if cost is not None]
    is_reached = len(samples) == len(runs)
    return Row(name, seconds, also={"samples": round(median(samples))} if is_reached else {})


def measure(options: argparse.Namespace, findings: Findings) -> None:
    torch.set_num_threads(1)
    size, exponents = (QUICK, (0,)) if options.is_quick else (Size(), EXPONENTS)
    seeds = range(TUNING_SEED + 1, TUNING_SEED + 1 + options.num_rounds)
    comparison = tune_and_compare(size, exponents, seeds)
    findings.settings |= {"size": asdict(size), "lr_exponents": list(exponents)}
    findings.details |= comparison.to_fields()
    for table in tables_of(comparison):
        findings.add(table)


BENCHMARK = Benchmark("convergence", __doc__ or "", measure, num_rounds=3)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
