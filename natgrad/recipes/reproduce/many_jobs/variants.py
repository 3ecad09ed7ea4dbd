"""What is tried with many jobs, against one job and against plain averaging."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from natgrad.recipes.reproduce.many_jobs.settings import ManyJobs
from natgrad.recipes.train_config import OuterConfig

__all__ = ["CHOSEN", "ONE_JOB", "PLAIN", "REPEATED", "VARIANTS", "Variant", "runs"]


@dataclass(frozen=True)
class Variant:
    """A way to train.

    name: of its measurements, without the seed
    title: in tables and figures
    outer: what goes from one iteration to the next
    rates: the effective learning rates, as a multiple of those that are set
    is_alone: whether there is only one job
    is_ramped: whether the number of jobs rises from one to many
    """

    name: str
    title: str
    outer: OuterConfig = field(default_factory=OuterConfig)
    rates: float = 1.0
    is_alone: bool = False
    is_ramped: bool = False

    def num_jobs(self, settings: ManyJobs) -> int:
        """Return how many jobs there are in the end."""
        return 1 if self.is_alone else settings.num_jobs

    def applied(self, settings: ManyJobs) -> ManyJobs:
        """Return the settings with this variant's learning rates."""
        return replace(
            settings,
            initial_effective_lr=settings.initial_effective_lr * self.rates,
            final_effective_lr=settings.final_effective_lr * self.rates,
        )


ONE_JOB = Variant("one", "one job", is_alone=True)
PLAIN = Variant("plain", "plain averaging")
CHOSEN = Variant(
    "chosen",
    "outer momentum",
    OuterConfig(momentum=0.9, job_lr_power=0.375, fisher="kept"),
)
REPEATED = (ONE_JOB, PLAIN, CHOSEN)  # from all seeds


def _but(name: str, title: str, is_ramped: bool = False, **changed: Any) -> Variant:
    return Variant(name, title, replace(CHOSEN.outer, **changed), is_ramped=is_ramped)


# From one seed, one thing at a time.
VARIANTS = (
    Variant("one-kept", "one job, factors kept", OuterConfig(fisher="kept"), is_alone=True),
    Variant("plain-kept", "plain averaging, factors kept", OuterConfig(fisher="kept")),
    replace(PLAIN, name="plain-rates-0.25", rates=0.25),
    _but("reset", "outer momentum, factors reset", fisher="reset"),
    _but("averaged", "outer momentum, factors averaged", fisher="averaged"),
    _but("power-0", "outer momentum, power 0", job_lr_power=0.0),
    _but("power-1", "outer momentum, power 1", job_lr_power=1.0),
    _but("ramp", "outer momentum, jobs ramped", is_ramped=True),
)


def runs(settings: ManyJobs) -> list[tuple[Variant, int]]:
    """Return all that is trained, each with its seed."""
    repeated = [(variant, seed) for seed in settings.seeds for variant in REPEATED]
    return [*repeated, *((variant, settings.seeds[0]) for variant in VARIANTS)]
