"""Which job trains on which block, and at which learning rate: fixed before a run begins.

A run's blocks stand in a row, epoch after epoch, and each outer iteration takes as many from its
front as it has jobs. So a plan is a pure function of a run's options, and resuming is going on in
it. The number of jobs may go up during a run: the first iterations then average fewer models,
whose learning rates are lower.

The mean of N jobs divides by N what each has learned. So that a sample counts by the effective
learning rate, whatever the number of jobs, a job's learning rate is N times that (section 3.1).
Where an outer optimizer makes up for it (outer_step.py), it may be less: N^power times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Iteration", "make_plan"]


@dataclass(frozen=True)
class Iteration:
    """One outer iteration.

    number: from 1
    blocks: the block of each job
    epoch: epochs done when it is over
    effective_learning_rate: that of all jobs together, by which a sample counts (section 3.1)
    learning_rate: of each job: the effective one times a power of the number of jobs, mostly the
        first
    remodel: how the model's structure changes before it; what that means, only the recipe knows
    is_fresh: whether parameters are random when it begins, so that one job's model is picked
        rather than the mean of all (appendix C.7)
    """

    number: int
    blocks: tuple[int, ...]
    epoch: float
    effective_learning_rate: float
    learning_rate: float
    remodel: Mapping[str, Any] | None = None
    is_fresh: bool = False

    @property
    def num_jobs(self) -> int:
        """How many jobs run at the same time."""
        return len(self.blocks)


def make_plan(
    num_blocks: int,
    num_epochs: float,
    initial_num_jobs: int,
    final_num_jobs: int,
    effective_learning_rate: Callable[[float], float],
    job_lr_power: float = 1.0,
) -> list[Iteration]:
    """Return all outer iterations of a run; the function gives the rate at a progress from 0 to 1.

    A job's learning rate is the effective one times N^job_lr_power.

    >>> for iteration in make_plan(4, 2, 1, 3, lambda progress: 0.01 * 0.1**progress):
    ...     print(iteration.blocks, iteration.epoch, round(iteration.learning_rate, 5))
    (0,) 0.25 0.01
    (1,) 0.5 0.0075
    (2, 3) 1.0 0.01125
    (0, 1) 1.5 0.00632
    (2, 3) 2.0 0.00356
    """
    num_total = max(1, round(num_blocks * num_epochs))
    plan: list[Iteration] = []
    num_done = 0
    while num_done < num_total:
        progress = num_done / num_total
        num_jobs = round(initial_num_jobs + (final_num_jobs - initial_num_jobs) * progress)
        num_jobs = min(num_jobs, num_total - num_done)
        rate = effective_learning_rate(progress)
        blocks = tuple((num_done + job) % num_blocks for job in range(num_jobs))
        num_done += num_jobs
        job_rate = rate * num_jobs**job_lr_power
        plan.append(Iteration(len(plan) + 1, blocks, num_done / num_blocks, rate, job_rate))
    return plan
