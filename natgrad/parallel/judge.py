"""Which jobs of an outer iteration take part in the average, and which one is the best (C.7).

Objectives are means over the samples that each job was trained on (log-probabilities: greater is
better). As the jobs' samples differ, so do the objectives of sound jobs; those of jobs that
diverged are worse by nats.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["NoJobLeftError", "Verdict", "best", "judge"]

ABSOLUTE_MARGIN = 1.0  # nats: Kaldi's recipes allow as much below the best
RELATIVE_MARGIN = 0.5  # of the reference's size: for objectives on another scale than nats
SPREAD_MARGIN = 3.0  # of the distance from the best to the reference


class NoJobLeftError(RuntimeError):
    """No job of an outer iteration gave parameters that can be used."""


@dataclass(frozen=True)
class Verdict:
    """The jobs that take part, in order, and for each of the others the reason, in words."""

    accepted: list[int]
    reasons: dict[int, str] = field(default_factory=dict)


def judge(objectives: Sequence[float], failures: Sequence[str | None] = ()) -> Verdict:
    """Leave out the jobs that failed, and those whose objective is far worse than the others'.

    The reference is the median of the remaining objectives (the better one of the two in the middle
    where their number is even), and far worse is by more than the greatest of

    - 1 nat,
    - half the reference's absolute value, for objectives that are not in nats,
    - three times the distance from the best objective to the reference: ordinary spread is about
      as wide on both sides.

    So the better half always stays (of two jobs: the better one; of three: two), one is never left
    out, and a single objective that is suspiciously good does not condemn all others. That needs
    at least half of the jobs to be sound: if most diverge, nothing in their objectives says so
    (short of not being finite), and what has to change is the learning rate.

    Args:
        objectives: of each job.
        failures: of each job, in words why its parameters are of no use (not finite, say), or None.

    >>> judge([-2.1, -2.0, -9.5, math.nan]).reasons[2]
    'its objective, -9.5, is far worse than the median, -2.1: by more than 1.05'

    Raises:
        NoJobLeftError: if none is left; it tells all reasons.
    """
    failures = list(failures) or [None] * len(objectives)
    if len(failures) != len(objectives):
        raise ValueError(f"{len(failures)} failures for {len(objectives)} jobs: one each is needed")
    reasons: dict[int, str] = {}
    for job, (objective, failure) in enumerate(zip(objectives, failures, strict=True)):
        if failure is not None:
            reasons[job] = failure
        elif not math.isfinite(objective):
            reasons[job] = f"its objective is {objective}"
    sound = sorted(
        (objectives[j] for j in range(len(objectives)) if j not in reasons), reverse=True
    )
    if not sound:
        raise NoJobLeftError(
            "no job of this outer iteration gave parameters that can be used: "
            + "; ".join(f"job {job}: {reason}" for job, reason in reasons.items())
            + ". Lower the learning rate or max_change_per_sample, or look for bad values in the "
            "data"
        )
    reference = sound[(len(sound) - 1) // 2]
    margin = max(
        ABSOLUTE_MARGIN,
        RELATIVE_MARGIN * abs(reference),
        SPREAD_MARGIN * (sound[0] - reference),
    )
    for job, objective in enumerate(objectives):
        if job not in reasons and objective < reference - margin:
            reasons[job] = (
                f"its objective, {objective:.4g}, is far worse than the median, {reference:.4g}: "
                f"by more than {margin:.3g}"
            )
    accepted = [job for job in range(len(objectives)) if job not in reasons]
    return Verdict(accepted, dict(sorted(reasons.items())))


def best(objectives: Sequence[float]) -> int:
    """Return the index of the greatest objective, the lowest where several are equal.

    Those that are not finite do not count.

    >>> best([-2.5, -1.0, math.nan, -1.0])
    1
    """
    finite = [index for index, objective in enumerate(objectives) if math.isfinite(objective)]
    if not finite:
        raise NoJobLeftError(f"none of the objectives is finite: {list(objectives)}")
    return max(finite, key=lambda index: (objectives[index], -index))
