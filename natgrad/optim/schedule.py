"""Learning rates over a run (section 3.2, "Learning rate schedule")."""

from __future__ import annotations

import math

__all__ = ["exponential"]


def exponential(initial: float, final: float, progress: float) -> float:
    """Return the rate that goes from `initial` to `final` by equal factors in equal times.

    `progress` is the part of the training that is done, 0 to 1. The paper's choice is a factor of
    ten over all of it:

    >>> [round(exponential(0.01, 0.001, progress), 5) for progress in (0.0, 0.5, 1.0)]
    [0.01, 0.00316, 0.001]
    """
    if not (0.0 < initial < math.inf and 0.0 < final < math.inf):
        raise ValueError(
            "an exponential schedule goes between two positive, finite learning rates, "
            f"but got initial={initial} and final={final}"
        )
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress goes from 0 (begin) to 1 (end of training), but got {progress}")
    # Geometric mean of the two, weighted; exact at both ends.
    return float(initial ** (1.0 - progress) * final**progress)
