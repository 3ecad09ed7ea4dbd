"""What NG-SGD has learned of the Fisher matrix, as named tensors, for another job to go on with.

For each weight matrix and each side of it, with the letters of `natgrad.optim.factor`:

    output.weight.fisher_in.R      (rank, D)   D is one more than the layer's inputs, for the bias
    output.weight.fisher_in.d      (rank,)
    output.weight.fisher_in.rho    float64
    output.weight.fisher_in.t      minibatches seen, on which the schedule of updates depends

and the same of fisher_out. A side that has met nothing but zeros has t alone. What the optimizer
has counted is not among them: each job reports of its own minibatches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from natgrad.optim import NGSGD
from natgrad.optim.factor import FisherFactor
from natgrad.optim.factor_average import average_factors

__all__ = ["average_states", "load_state", "state_of"]

SIDES = ("fisher_in", "fisher_out")


def state_of(optimizer: NGSGD, network: nn.Module) -> dict[str, Tensor]:
    """Return the Fisher factors of all layers that have any."""
    tensors: dict[str, Tensor] = {}
    states = optimizer.state_dict()["state"]
    for index, (name, _) in enumerate(network.named_parameters()):
        for side in SIDES:
            for letter, value in states.get(index, {}).get(side, {}).items():
                tensors[f"{name}.{side}.{letter}"] = _as_tensor(value)
    return tensors


def _as_tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def load_state(
    optimizer: NGSGD,
    network: nn.Module,
    tensors: Mapping[str, Tensor],
    renewed: Collection[str] = (),
) -> None:
    """Give an optimizer what `state_of` returned; then its next step has the same bits.

    Layers of which a tensor is among `renewed`, and those that the state does not know, learn anew.
    """
    new_layers = {_layer(name) for name in renewed}
    by_side = _by_side(tensors)
    states: dict[int, dict[str, Any]] = {}
    for index, (name, _) in enumerate(network.named_parameters()):
        sides = {side: by_side[f"{name}.{side}"] for side in SIDES if f"{name}.{side}" in by_side}
        if sides and _layer(name) not in new_layers:
            states[index] = {side: _as_numbers(letters) for side, letters in sides.items()}
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _by_side(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    by_side: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        side, _, letter = name.rpartition(".")
        by_side.setdefault(side, {})[letter] = tensor
    return by_side


def _as_numbers(letters: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: value.item() if value.dim() == 0 else value for name, value in letters.items()}


def average_states(
    states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> dict[str, Tensor]:
    """Return the mean of several jobs' states, side by side of each layer.

    Jobs that have met nothing but zeros on a side have no vote there. t becomes the least of all.
    """
    jobs = [_by_side(state) for state in states]
    mean: dict[str, Tensor] = {}
    for side in dict.fromkeys(name for job in jobs for name in job):
        known = [
            (job[side], weight) for job, weight in zip(jobs, weights, strict=True) if side in job
        ]
        mean[f"{side}.t"] = torch.stack([letters["t"] for letters, _ in known]).min()
        voting = [(letters, weight) for letters, weight in known if "R" in letters]
        if voting:
            factor = average_factors(
                [FisherFactor(x["R"], x["d"], float(x["rho"])) for x, _ in voting],
                [weight for _, weight in voting],
            )
            mean[f"{side}.R"], mean[f"{side}.d"] = factor.R, factor.d
            mean[f"{side}.rho"] = torch.tensor(factor.rho, dtype=torch.float64)
    return mean
