"""Generalised model averaging (C.4): weights per layer and model, found by L-BFGS on a subset.

The parameters of layer l become sum_p w_lp theta_l^p, of the P last models theta^p. With g the
gradient of the objective f (mean log-probability per sample) with respect to the parameters,

    df / dw_lp = <g_l, theta_l^p>

so one evaluation with its gradient serves all L P weights. What is maximised is f - 1e-10 |w|^2:
where f does not depend on the scale of a layer, its weights could go to infinity.

The last models are nearly equal, so f is steep where a layer's weights change their sum and almost
flat where they do not. L-BFGS works in another space therefore, w = w_0 + C^-T u, with

    C C^T = J^T (F + Lambda) J,     J the derivative of the parameters with respect to w

F is the second moment of the gradients of parts of the subset: a Fisher matrix, of low rank.
Lambda smooths it with the identity, per layer and in proportion to the mean diagonal element of F,
as the natural gradient does. J^T F J takes the derivatives df_k / dw alone, and J^T J the inner
products of models.

Cost: P + 1 evaluations to choose the start, one of all parts, and those of L-BFGS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.parallel.average import check_same_tensors
from natgrad.parallel.layer_weights import LayerWeights
from natgrad.parallel.lbfgs import maximize

__all__ = ["Combination", "CombinationError", "Objective", "combine"]

# Tensors by name -> mean log-probability per sample, and its gradient by parameter.
Objective = Callable[[dict[str, Tensor]], tuple[float, dict[str, Tensor]]]

SMOOTHING = 1.0  # of F, with its mean diagonal element in each layer
RIDGE = 1e-10  # of C C^T, with its mean diagonal element: models may be equal


class CombinationError(RuntimeError):
    """The objective is finite for none of the models, so none can be preferred."""


@dataclass(frozen=True)
class Combination:
    """What `combine` found.

    tensors: the final model
    weights: of each layer, one per model
    objective: that of `tensors`; never less than the greatest of `objectives`
    objectives: those of the models
    mean_objective: that of the plain mean
    start: the model that the search began with, or None for the mean
    chosen: what `tensors` are: "combination", or if nothing better was found "mean" or "model 3"
    left_out: models whose objective is not finite: they have weight zero
    num_evaluations: of the objective, all in all
    """

    tensors: dict[str, Tensor]
    weights: dict[str, list[float]]
    objective: float
    objectives: list[float]
    mean_objective: float
    start: int | None
    chosen: str
    left_out: list[int]
    num_evaluations: int


@dataclass(frozen=True)
class _Candidate:
    objective: float
    weights: Tensor
    tensors: dict[str, Tensor]
    name: str


def combine(
    models: Sequence[Mapping[str, Tensor]],
    objective: Objective,
    layers: Mapping[str, Sequence[str]],
    *,
    value: Callable[[dict[str, Tensor]], float] | None = None,
    parts: Sequence[Objective] = (),
    precondition: bool = True,
    regularizer: float = 1e-10,
    max_evaluations: int = 50,
    tolerance: float = 1e-6,
) -> Combination:
    """Return the best combination that L-BFGS finds, or the best model if none is better.

    Each candidate is evaluated in the type in which it would be stored, so what is returned has
    exactly the objective that is stated.

    Args:
        models: with the same tensors; the newest is the last.
        objective: on the whole of the subset.
        layers: of each layer, the names of its parameters. Tensors that belong to none must be
            equal in all models.
        value: the objective without its gradient, if that is cheaper: it chooses the start.
        parts: the objective on parts of the subset, for the preconditioner; else it is the whole.
        precondition: False searches in the space of the weights themselves.
        regularizer: times |w|^2, is taken off the objective that L-BFGS sees.
        max_evaluations: of the objective by L-BFGS.
        tolerance: L-BFGS ends when an iteration gains less than this part of 1 + |objective|.

    Raises:
        CombinationError: if the objective is finite for none of the models.
        ValueError: if the models do not match one another, or the layers do not match the models.
    """
    if not models:
        raise ValueError("there is no model to combine")
    check_same_tensors(models, [f"model {i}" for i in range(len(models))])
    models = [{name: tensor.detach() for name, tensor in model.items()} for model in models]
    value = value or (lambda tensors: objective(tensors)[0])
    objectives = [float(value(dict(model))) for model in models]
    usable = [i for i, f in enumerate(objectives) if math.isfinite(f)]
    if not usable:
        raise CombinationError(
            f"the objective is finite for none of the {len(models)} models: {objectives}. Look for "
            "bad values in the models and in the subset that they are combined on"
        )
    space = LayerWeights([models[i] for i in usable], layers)
    first = max(usable, key=lambda i: objectives[i])
    start = _candidate_of_model(space, usable.index(first), first, objectives[first])
    mean = _candidate_of_mean(space, value)
    start = mean if mean.objective > start.objective else start
    metric = _metric(space, start.tensors, parts or [objective]) if precondition else None
    best, num_evaluations = _search(
        space, objective, start, metric, regularizer, max_evaluations, tolerance
    )
    weights = torch.zeros(len(layers), len(models), dtype=torch.float64)
    weights[:, usable] = best.weights
    return Combination(
        tensors=best.tensors,
        weights=dict(zip(layers, weights.tolist(), strict=True)),
        objective=best.objective,
        objectives=objectives,
        mean_objective=mean.objective,
        start=None if start is mean else first,
        chosen=best.name,
        left_out=[i for i in range(len(models)) if i not in usable],
        num_evaluations=len(models) + 1 + precondition + num_evaluations,
    )


def _candidate_of_model(
    space: LayerWeights, position: int, number: int, objective: float
) -> _Candidate:
    weights = torch.zeros(space.shape, dtype=torch.float64)
    weights[:, position] = 1.0
    return _Candidate(objective, weights, dict(space.models[position]), f"model {number}")


def _candidate_of_mean(
    space: LayerWeights, value: Callable[[dict[str, Tensor]], float]
) -> _Candidate:
    weights = torch.full(space.shape, 1.0 / space.shape[1], dtype=torch.float64)
    tensors = space.combined(weights)
    return _Candidate(float(value(tensors)), weights, tensors, "mean")


def _search(
    space: LayerWeights,
    objective: Objective,
    start: _Candidate,
    metric: Tensor | None,
    regularizer: float,
    max_evaluations: int,
    tolerance: float,
) -> tuple[_Candidate, int]:
    """Return the best candidate that L-BFGS met, and how many evaluations that took."""
    best = start
    to_weights = torch.eye(start.weights.numel(), dtype=torch.float64)
    if metric is not None:
        C = torch.linalg.cholesky(metric)
        to_weights = torch.linalg.solve_triangular(C.t(), to_weights, upper=True)  # C^-T

    def function(u: Tensor) -> tuple[float, Tensor]:
        nonlocal best
        weights = start.weights + (to_weights @ u).view(space.shape)
        tensors = space.combined(weights)
        f, gradient = objective(tensors)
        if f > best.objective:
            best = _Candidate(float(f), weights, tensors, "combination")
        slope = space.derivative(gradient) - 2.0 * regularizer * weights
        penalty = regularizer * float(weights.square().sum())
        return float(f) - penalty, to_weights.t() @ slope.view(-1)

    origin = torch.zeros(start.weights.numel(), dtype=torch.float64)
    found = maximize(function, origin, max_evaluations=max_evaluations, tolerance=tolerance)
    return best, found.num_evaluations


def _metric(space: LayerWeights, tensors: dict[str, Tensor], parts: Sequence[Objective]) -> Tensor:
    """Return J^T (F + Lambda) J at a model, with a ridge that makes it positive definite."""
    num_weights = space.shape[0] * space.shape[1]
    fisher = torch.zeros(num_weights, num_weights, dtype=torch.float64)
    trace = torch.zeros(space.shape[0], dtype=torch.float64)  # of F, per layer
    for number, part in enumerate(parts):
        f, gradient = part(tensors)
        slope = space.derivative(gradient).view(-1)
        if not math.isfinite(f) or not bool(slope.isfinite().all()):
            raise ValueError(
                f"part {number} of the subset has the objective {f} at the start, where that of "
                "the whole is finite: do the parts make up the subset?"
            )
        fisher += torch.outer(slope, slope) / len(parts)
        trace += space.squared_norms(gradient) / len(parts)
    smoothing = SMOOTHING * trace / space.num_parameters()
    metric: Tensor = fisher + torch.block_diag(*(smoothing[:, None, None] * space.gram()))
    mean = float(metric.diagonal().mean())
    # Where all gradients are zero any metric will do: the search ends at once.
    ridge = torch.full_like(metric[0], RIDGE * mean if mean > 0.0 else 1.0)
    return metric + ridge.diag()
