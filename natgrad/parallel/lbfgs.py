"""L-BFGS: the maximum of a smooth function of a few hundred variables, in few evaluations.

The direction is H g, with g the gradient and H the inverse curvature that the last steps and
changes of gradient imply. The length t along it satisfies the weak Wolfe conditions, and is found
by doubling and bisection: that needs no interpolation, so where the function is not finite it is
simply too far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Maximum", "maximize"]

NUM_PAIRS = 30  # of steps and gradient changes that are remembered: the vectors are short
MIN_GAIN = 1e-4  # of a step, as a part of what the slope promises (Armijo)
MAX_SLOPE_LEFT = 0.9  # after a step, as a part of the slope before it
NUM_TRIALS = 30  # of lengths along one direction

Function = Callable[[Tensor], tuple[float, Tensor]]  # x -> value, gradient; value may be NaN


@dataclass(frozen=True)
class Maximum:
    """Where the search ended, the value there, and how often the function was evaluated."""

    x: Tensor
    value: float
    num_evaluations: int


@dataclass(frozen=True)
class _Point:
    x: Tensor
    value: float
    gradient: Tensor


@dataclass(frozen=True)
class _Line:
    start: _Point
    direction: Tensor
    slope: float
    length: float  # to be tried first


def maximize(
    function: Function,
    start: Tensor,
    *,
    first_gain: float = 0.01,
    max_evaluations: int = 100,
    tolerance: float = 1e-9,
) -> Maximum:
    """Go uphill from `start` until a whole iteration gains less than tolerance * (1 + |value|).

    While nothing is known of the curvature, the step that is tried first is the one that would gain
    `first_gain` if there were none.

    >>> import torch
    >>> peak = torch.tensor([1.0, -2.0], dtype=torch.float64)
    >>> found = maximize(lambda x: (-float((x - peak) @ (x - peak)), 2 * (peak - x)), 0 * peak)
    >>> torch.allclose(found.x, peak)
    True
    """
    num_evaluations = 0

    def evaluate(x: Tensor) -> _Point:
        nonlocal num_evaluations
        num_evaluations += 1
        value, gradient = function(x)
        is_usable = math.isfinite(value) and bool(gradient.isfinite().all())
        return _Point(x, value if is_usable else -math.inf, gradient)

    here = evaluate(start)
    if here.value == -math.inf:
        raise ValueError("the function or its gradient is not finite at the start of L-BFGS")
    pairs: list[tuple[Tensor, Tensor]] = []
    while num_evaluations < max_evaluations:
        direction = _direction(here.gradient, pairs)
        slope = float(here.gradient @ direction)
        if slope <= 0.0:
            break
        negligible = tolerance * (1.0 + abs(here.value))
        line = _Line(here, direction, slope, 1.0 if pairs else first_gain / slope)
        num_trials = min(NUM_TRIALS, max_evaluations - num_evaluations)
        there = _search(evaluate, line, negligible, num_trials)
        gain = there.value - here.value
        # What the function loses in slope: positive, if it is concave along the step.
        step, fall = there.x - here.x, here.gradient - there.gradient
        if float(step @ fall) > 1e-12 * float(step.norm() * fall.norm()):
            pairs = [*pairs, (step, fall)][-NUM_PAIRS:]
        elif gain <= 0.0 and pairs:
            pairs = []  # what was remembered misleads: once more with the gradient itself
            continue
        here = there
        if gain <= negligible:
            break
    return Maximum(here.x, here.value, num_evaluations)


def _direction(gradient: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return H g by the two-loop recursion."""
    direction = gradient.clone()
    shares = []
    for step, fall in reversed(pairs):
        share = float(step @ direction) / float(step @ fall)
        direction -= share * fall
        shares.append(share)
    if pairs:
        step, fall = pairs[-1]
        direction *= float(step @ fall) / float(fall @ fall)
    for (step, fall), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(fall @ direction) / float(step @ fall)) * step
    return direction


def _search(
    evaluate: Callable[[Tensor], _Point], line: _Line, negligible: float, num_trials: int
) -> _Point:
    """Return the best point met: where both conditions hold, unless trials or gains ran out."""
    best, shortest, longest, length = line.start, 0.0, math.inf, line.length
    for _ in range(num_trials):
        there = evaluate(line.start.x + length * line.direction)
        if there.value > best.value:
            best = there
        if there.value < line.start.value + MIN_GAIN * length * line.slope:
            longest = length
        elif float(there.gradient @ line.direction) > MAX_SLOPE_LEFT * line.slope:
            shortest = length
        else:
            return there
        if longest == math.inf:
            length = 2.0 * length
        else:
            length = (shortest + longest) / 2.0 if shortest > 0.0 else longest / 4.0
        if length * line.slope < negligible:  # what is left to gain is below the function's noise
            break
    return best
