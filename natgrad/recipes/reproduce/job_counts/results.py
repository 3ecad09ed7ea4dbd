"""What was found of the numbers of jobs, by system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from natgrad.recipes.reproduce.experiment import Found
from natgrad.recipes.reproduce.job_counts.settings import METHODS, JobCounts, System

__all__ = ["JobCountResults"]


@dataclass(frozen=True)
class JobCountResults:
    """Settings, and what all measurements found."""

    settings: JobCounts
    found: Mapping[str, Found]

    def in_order(self) -> list[System]:
        """Return all systems of the first seed, by method and number of jobs."""
        methods = list(METHODS)
        return sorted(self.settings.systems, key=lambda s: (methods.index(s.method), s.num_jobs))

    def last(self, system: System, key: str) -> float:
        """Return what the last iteration's model reached."""
        return float(self.found[system.name]["last"][key])

    def curve(self, system: System, key: str) -> list[tuple[int, float, float]]:
        """Return (iteration, epochs, value) of each model that was evaluated."""
        return [
            (point["iteration"], point["epoch"], point[key])
            for point in self.found[system.name]["curve"]
        ]

    @property
    def seeds(self) -> list[int]:
        """All seeds."""
        return [self.settings.seed, *self.settings.more_seeds]

    def of_all_seeds(self, num_jobs: int, key: str) -> list[float]:
        """Return what online NG-SGD reached from each seed."""
        first = System("online", num_jobs, self.settings.seed)
        return [self.last(first._replace(seed=seed), key) for seed in self.seeds]

    def words(self, system: System) -> Mapping[str, Any]:
        """Return a system's errors."""
        return self.found[f"words-{system.name}"]

    @property
    def costs(self) -> Mapping[str, Any]:
        """What was timed."""
        return self.found["timing"]

    def is_measured(self, system: System) -> bool:
        """Return whether the clock told how long the run took."""
        return system.name in self.found["clock"]["seconds"]

    def minutes(self, system: System, iteration: int) -> float:
        """Return how long so many iterations took by the clock, or else in simulation."""
        if not self.is_measured(system):
            return self.simulated_minutes(system, iteration)
        seconds = {0: 0.0, **dict(self.found["clock"]["seconds"][system.name])}
        return float(seconds[iteration] / 60)

    def simulated_minutes(self, system: System, iteration: int) -> float:
        """Return how long so many iterations would take with a core for each job."""
        job = self.costs["job"][system.method]["median"]
        averaging = self.costs["averaging"][str(system.num_jobs)]["median"]
        return float(iteration * (job + averaging) / 60)
