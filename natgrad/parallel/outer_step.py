"""What is made of the mean of the jobs: the step of an outer optimizer (past the paper).

The jobs of an outer iteration begin with theta and end at the mean A (section 3.1). Their common
step, A - theta, is to an outer optimizer what a gradient is to SGD:

    delta  = A - theta
    v'     = mu v + delta                                     v: the momentum, zero to begin with
    theta' = theta + eta v'                                   classical
    theta' = theta + eta (delta + mu v')                      Nesterov's

theta' is what the next jobs begin with. mu = 0 and eta = 1 is theta' = A, the paper's averaging.

Nesterov's form is that of DiLoCo (outer SGD with momentum on -delta). It is that of BMUF too, which
keeps Delta = eta v and tells the global model W from the one that jobs begin with:

    Delta' = mu Delta + eta delta,    W' = W + Delta',    theta' = W' (+ mu Delta', Nesterov's)

With Nesterov's form theta = W + mu Delta, so that W' = theta + eta delta, and theta' is as above;
W' is A if eta is 1. That is why A, and not theta', is what an iteration's model file holds, what is
evaluated, and what is combined at the end: A is where jobs have descended to, and theta' is an
extrapolation, which is only as good as the jobs that correct it (docs/averaging.md has figures).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.parallel.average import check_same_tensors, weighted_sum

__all__ = ["OuterOptimizer", "Stepped", "outer_step"]


@dataclass(frozen=True)
class OuterOptimizer:
    """momentum: mu; learning_rate: eta; nesterov: which of the two forms."""

    momentum: float = 0.0
    learning_rate: float = 1.0
    nesterov: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(
                f"momentum is {self.momentum}, but must be at least 0 and below 1: from 1 on, "
                "steps would grow for ever"
            )
        if not 0.0 < self.learning_rate <= 10.0:
            raise ValueError(
                f"the outer learning_rate is {self.learning_rate}, but must be positive and at "
                "most 10: it multiplies the jobs' mean step, and is 1 for plain averaging"
            )

    @property
    def is_plain(self) -> bool:
        """Whether theta' is A itself."""
        return self.momentum == 0.0 and self.learning_rate == 1.0


class Stepped(NamedTuple):
    """start: what the next jobs begin with, theta'; momentum: v' of what was moved."""

    start: dict[str, Tensor]
    momentum: dict[str, Tensor]


@torch.no_grad()
def outer_step(
    start: Mapping[str, Tensor],
    mean: Mapping[str, Tensor],
    momentum: Mapping[str, Tensor],
    optimizer: OuterOptimizer,
    moved: Collection[str],
) -> Stepped:
    """Return theta' and v' from theta, A and v; nothing of these is changed.

    Only the tensors in `moved`, the parameters, take the step. All others (fixed transforms, prior
    scales, counts) are as they are in the mean. A tensor without momentum has zero.

    Both results are sums of theta, A and v with fixed factors, in float64 and rounded once. With
    mu = 0 and eta = 1, theta' has the bits of A. Cost: two passes over three models.

    >>> optimizer = OuterOptimizer(momentum=0.5, learning_rate=1.0)
    >>> one, two = {"w": torch.tensor([1.0])}, {"w": torch.tensor([2.0])}
    >>> outer_step(one, two, {}, optimizer, moved={"w"})
    Stepped(start={'w': tensor([2.5000])}, momentum={'w': tensor([1.])})
    """
    check_same_tensors([start, mean], ["the model that jobs began with", "their mean"])
    mu, eta = optimizer.momentum, optimizer.learning_rate
    of_delta, of_v = (eta * (1.0 + mu), eta * mu * mu) if optimizer.nesterov else (eta, eta * mu)
    stepped = Stepped(dict(mean), {})
    for name in mean:
        if name in moved:
            theta, A, v = start[name], mean[name], momentum.get(name)
            stepped.start[name] = _sum((A, of_delta), (theta, 1.0 - of_delta), (v, of_v))
            stepped.momentum[name] = _sum((A, 1.0), (theta, -1.0), (v, mu))
    return stepped


def _sum(*terms: tuple[Tensor | None, float]) -> Tensor:
    """Return the sum of tensors times factors; a factor of zero leaves not even a sign."""
    tensors = [tensor for tensor, factor in terms if tensor is not None and factor != 0.0]
    factors = [factor for tensor, factor in terms if tensor is not None and factor != 0.0]
    return weighted_sum(tensors, factors)
