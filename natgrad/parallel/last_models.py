"""The models at the end of a run, averaged before they are combined or instead of that (C.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from natgrad.parallel.average import NonFiniteModelError, average
from natgrad.parallel.combine import CombinationError

__all__ = ["MeanOfLast", "iteration_groups", "mean_of_last"]


@dataclass(frozen=True)
class MeanOfLast:
    """The mean of the last `num_models`; `objectives[n - 1]` is that of the mean of the last n."""

    tensors: dict[str, Tensor]
    num_models: int
    objective: float
    objectives: list[float]


def mean_of_last(
    models: Sequence[Mapping[str, Tensor]], value: Callable[[dict[str, Tensor]], float]
) -> MeanOfLast:
    """Return the mean of the last n models, with the n (the least of equals) of greatest `value`.

    It is never worse than the last model, but may be worse than an earlier one. Means with a model
    that is not finite have the objective NaN.

    >>> import torch
    >>> models = [{"w": torch.tensor(w)} for w in (9.0, 3.0, 1.0)]
    >>> best = mean_of_last(models, lambda tensors: -abs(float(tensors["w"]) - 2.5))
    >>> best.tensors, best.num_models
    ({'w': tensor(2.)}, 2)

    Raises:
        CombinationError: if the objective is finite for no n.
    """
    best: tuple[dict[str, Tensor], int] | None = None
    objectives: list[float] = []
    for num_models in range(1, len(models) + 1):
        last = models[-num_models:]
        try:
            mean = average(last, [1.0] * num_models)
        except NonFiniteModelError:
            objectives.append(math.nan)
            continue
        objectives.append(float(value(mean)))
        if math.isfinite(objectives[-1]) and (
            best is None or objectives[-1] > objectives[best[1] - 1]
        ):
            best = mean, num_models
    if best is None:
        raise CombinationError(
            f"the objective is finite for none of the means of the last 1 to {len(models)} models: "
            f"{objectives}. Look for bad values in the models and in the subset"
        )
    tensors, num_models = best
    return MeanOfLast(tensors, num_models, objectives[num_models - 1], objectives)


def iteration_groups(
    num_iterations: int,
    iterations_per_epoch: float,
    max_models: int = 20,
    first_iteration: int = 1,
) -> list[list[int]]:
    """Return the iterations whose models are averaged to give each of the models to combine.

    These are the last `max_models` iterations, each by itself; where they are less than an epoch,
    the last epoch in `max_models` groups of about the same number of iterations. Iterations before
    `first_iteration`, the first one with the final structure, are never among them: then there are
    fewer iterations to a group, or fewer groups.

    >>> iteration_groups(10, iterations_per_epoch=3, max_models=4)
    [[7], [8], [9], [10]]
    >>> iteration_groups(10, iterations_per_epoch=8, max_models=3)
    [[3, 4, 5], [6, 7], [8, 9, 10]]
    >>> iteration_groups(10, iterations_per_epoch=8, max_models=3, first_iteration=9)
    [[9], [10]]
    """
    if not 1 <= first_iteration <= num_iterations:
        raise ValueError(
            f"first_iteration={first_iteration} of {num_iterations} iterations: there is none "
            "that could be combined"
        )
    if max_models < 1 or not 0.0 < iterations_per_epoch < math.inf:
        raise ValueError(
            f"max_models={max_models} and iterations_per_epoch={iterations_per_epoch}: expected at "
            "least one model, and a positive number of iterations"
        )
    span = max(max_models, math.ceil(iterations_per_epoch))
    span = min(span, num_iterations - first_iteration + 1)
    num_groups = min(max_models, span)
    ends = [num_iterations - span + round(i * span / num_groups) for i in range(num_groups + 1)]
    return [list(range(begin + 1, end + 1)) for begin, end in pairwise(ends)]
