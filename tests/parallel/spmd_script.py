"""What test_spmd.py starts under torchrun: every scenario in turn, on each rank.

    torchrun --nproc-per-node 2 spmd_script.py DIRECTORY

Each rank writes what became of its model, and what was warned or raised, for the test to judge.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from natgrad import NGSGD
from natgrad.parallel import spmd
from natgrad.parallel.spmd import ParameterAveraging

Outcome = tuple[nn.Module, dict[str, Any]]


class Numbers(nn.Module):
    """One parameter, which `train` changes in a way that is easily repeated."""

    def __init__(self, size: int = 7) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.linspace(-1.0, 1.0, size))

    @torch.no_grad()
    def train_on(self, rank: int, step: int) -> None:
        self.values.mul_(1.01).add_(math.sin(rank + 1.7 * step))


def num_samples_of(rank: int, step: int) -> int:
    return 10 + 3 * rank + step % 2


def num_steps_of(rank: int) -> int:
    return 5 + 7 * rank


def train_with_ngsgd(rank: int, model: nn.Module) -> int:
    """Train on the rank's own samples, and return their number; minibatches differ in size."""
    generator = torch.Generator().manual_seed(rank)
    optimizer = NGSGD(model, lr=0.01)
    total = 0
    for step in range(8 + rank):
        size = 16 + 5 * rank + step
        x, y = torch.randn(size, 6, generator=generator), torch.arange(size) % 3
        optimizer.zero_grad()
        F.cross_entropy(model(x), y, reduction="sum").backward()
        optimizer.step()
        total += size
    optimizer.release()
    return total


def classifier(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))


def ngsgd(rank: int) -> Outcome:
    """One average after all of the training; ranks come with their own models and get rank 0's."""
    model = classifier(seed=rank)
    averaging = ParameterAveraging(model, samples_per_average=math.inf)
    total = train_with_ngsgd(rank, model)
    averaging.step(total)
    averaging.finish()
    return model, {"total": total}


def uneven(rank: int) -> Outcome:
    model = Numbers()
    counts = []
    with ParameterAveraging(model, samples_per_average=30) as averaging:
        for step in range(num_steps_of(rank)):
            model.train_on(rank, step)
            if averaging.step(num_samples_of(rank, step)):
                assert averaging.last_round is not None
                counts.append(averaging.last_round.num_samples)
    return model, {"rounds_met": counts, "num_averages": averaging.num_averages}


def skipped(rank: int) -> Outcome:
    """With a collective of the loop's own in every step; rank 1 skips some steps."""
    model, averaged_at, total = Numbers(), [], torch.zeros(1)
    averaging = ParameterAveraging(model, steps_per_average=3)
    for step in range(8):
        is_skipped = rank == 1 and step in (1, 2, 4)
        if not is_skipped:
            model.train_on(rank, step)
        total += 1.0
        dist.all_reduce(total)
        if averaging.step(0 if is_skipped else 10):
            averaged_at.append(step)
    last = averaging.finish()
    return model, {
        "averaged_at": averaged_at,
        "num_steps": averaging.num_steps,
        "last": last.num_samples,
        "total": float(total),
    }


def batch_norm(rank: int) -> Outcome:
    """Buffers: floating ones are averaged, the counter of batches becomes the greatest."""
    torch.manual_seed(rank)
    model = nn.BatchNorm1d(4)
    averaging = ParameterAveraging(model, steps_per_average=100)
    for _ in range(2 + rank):
        model(torch.randn(8, 4) + rank)
        assert model.running_var is not None
        model.running_var = model.running_var.clone()  # as models do that compute a buffer anew
        averaging.step(8)
    before = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    averaging.finish()
    return model, {"before": before}


def not_finite(rank: int) -> Outcome:
    """The last rank diverges, is left out, and gets the others' mean; then all go on."""
    model = Numbers()
    averaging = ParameterAveraging(model, steps_per_average=1)
    model.train_on(rank, 0)
    if rank == averaging.num_ranks - 1:
        with torch.no_grad():
            model.values[2] = math.nan
    averaging.step(10 + rank)
    assert averaging.last_round is not None
    left_out = averaging.last_round.left_out
    after = model.values.tolist()
    model.train_on(rank, 1)
    last = averaging.finish()
    return model, {"left_out": left_out, "after": after, "left_out_at_the_end": last.left_out}


def none_finite(rank: int) -> Outcome:
    model = Numbers()
    averaging = ParameterAveraging(model, steps_per_average=1)
    with torch.no_grad():
        model.values[rank] = math.inf
    averaging.step(10)
    return model, {}


def nobody_trained(rank: int) -> Outcome:
    """Thirds of a float64 number do not add up to it: bits must be kept, not averaged."""
    model = Numbers().double()
    averaging = ParameterAveraging(model, steps_per_average=1)
    averaging.step(0)
    averaging.average_now()
    return model, {}


def different_models(rank: int) -> Outcome:
    model = Numbers(size=7 if rank == 0 else 8)
    ParameterAveraging(model, steps_per_average=1)
    return model, {}


def many_types(rank: int) -> Outcome:
    """Several types, layouts and sizes, in buckets so small that there are several."""
    spmd.BUCKET_ELEMENTS = 10
    generator = torch.Generator().manual_seed(0)
    model = nn.Module()
    model.register_buffer("mask", torch.tensor([rank == 0, False]))
    model.register_buffer("small", torch.tensor([rank, 1], dtype=torch.int16))
    model.register_buffer("empty", torch.empty(0))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for size in (1, 5, 8):
            tensor = torch.randn(size, 3, generator=generator).t().to(dtype)
            model.register_parameter(f"{dtype}-{size}".replace(".", "_"), nn.Parameter(tensor))
    averaging = ParameterAveraging(model, steps_per_average=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.0 + 0.3 * rank)
    model.get_buffer("small")[0] = rank
    before = {name: tensor.tolist() for name, tensor in model.named_parameters()}
    averaging.step(3 + rank)
    spmd.BUCKET_ELEMENTS = 1 << 22
    return model, {"before": before}


SCENARIOS: list[Callable[[int], Outcome]] = [
    ngsgd,
    uneven,
    skipped,
    batch_norm,
    not_finite,
    none_finite,
    nobody_trained,
    different_models,
    many_types,
]


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for scenario in SCENARIOS:
        notes: dict[str, Any] = {}
        tensors: dict[str, Tensor] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                model, notes = scenario(rank)
                tensors = {name: t.contiguous() for name, t in model.state_dict().items()}
            except (RuntimeError, ValueError) as error:
                notes = {"error": f"{type(error).__name__}: {error}"}
        notes["warnings"] = [str(w.message) for w in caught if w.category is RuntimeWarning]
        name = f"{scenario.__name__}.{rank}"
        save_file(tensors, directory / f"{name}.safetensors")
        (directory / f"{name}.json").write_text(json.dumps(notes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
