"""What is compared: methods, each with several numbers of jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from natgrad.recipes.reproduce.run_settings import RunSettings
from natgrad.recipes.reproduce.speech_runs import ExampleSettings
from natgrad.recipes.train_config import CombinationConfig, OptimizerConfig

__all__ = ["METHODS", "An4JobCounts", "JobCounts", "System"]

Method = Literal["none", "simple", "online"]
# As the paper's legends name them, by the names of OptimizerConfig.
METHODS: dict[Method, str] = {"none": "SGD", "simple": "simple NG-SGD", "online": "online NG-SGD"}


class System(NamedTuple):
    """A method with so many jobs, from a seed."""

    method: Method
    num_jobs: int
    seed: int

    @property
    def name(self) -> str:
        """Of its measurements."""
        method = "sgd" if self.method == "none" else self.method
        return f"{method}-{self.num_jobs}-seed-{self.seed}"

    @property
    def title(self) -> str:
        """Of its lines and rows."""
        return f"{METHODS[self.method]}, {self.num_jobs} job{'s' if self.num_jobs > 1 else ''}"


@dataclass(frozen=True)
class JobCounts(RunSettings):
    """What the runs depend on.

    sgd_jobs, simple_jobs, online_jobs: numbers of jobs
    seed: of all runs
    more_seeds: of the runs of `repeated_jobs` with the online method, which tell how much is chance
    timing_rounds: how often each time is measured; medians count
    """

    sgd_jobs: tuple[int, ...] = (1, 2, 4)
    simple_jobs: tuple[int, ...] = (1,)
    online_jobs: tuple[int, ...] = (1, 2, 4, 8, 16)
    seed: int = 1
    more_seeds: tuple[int, ...] = (2, 3)
    repeated_jobs: tuple[int, ...] = (16,)
    hidden: tuple[tuple[int, int], ...] = ((400, 80),) * 3
    num_epochs: float = 1.6
    timing_rounds: int = 7

    def __post_init__(self) -> None:
        needed = {1, *self.sgd_jobs, *self.repeated_jobs} - set(self.online_jobs)
        if needed or not self.sgd_jobs:
            raise ValueError(
                f"online_jobs is {list(self.online_jobs)}; expected 1 among them, with which all "
                f"others are compared, and each of sgd_jobs, {list(self.sgd_jobs)}, of which there "
                f"must be one, and of repeated_jobs, {list(self.repeated_jobs)}"
            )

    @property
    def max_jobs(self) -> int:
        """The greatest number of jobs."""
        return max(self.num_jobs)

    @property
    def num_jobs(self) -> list[int]:
        """All numbers of jobs."""
        return sorted({*self.sgd_jobs, *self.simple_jobs, *self.online_jobs})

    @property
    def systems(self) -> list[System]:
        """All systems of the first seed; that which others are compared with comes first."""
        counts: dict[Method, tuple[int, ...]] = {
            "none": self.sgd_jobs,
            "simple": self.simple_jobs,
            "online": self.online_jobs,
        }
        listed = [System(method, n, self.seed) for method in counts for n in counts[method]]
        return sorted(listed, key=lambda system: system != self.reference)

    @property
    def reference(self) -> System:
        """Online NG-SGD with one job."""
        return System("online", 1, self.seed)

    @property
    def repetitions(self) -> list[System]:
        """Systems from other seeds."""
        return [System("online", n, s) for n in self.repeated_jobs for s in self.more_seeds]

    def optimizer(self, method: Method) -> OptimizerConfig:
        """Return the optimizer: the paper's options."""
        return OptimizerConfig(method=method)

    def combination(self) -> CombinationConfig:
        """Return what becomes of the last models, before words are recognised."""
        return CombinationConfig(num_models=10)


@dataclass(frozen=True)
class An4JobCounts(JobCounts):
    """The same on an eighth of the speech: shorter iterations, more epochs."""

    num_epochs: float = 6.0
    examples: ExampleSettings = field(
        default_factory=lambda: ExampleSettings(
            samples_per_job=4_000, validation_samples=10_000, train_subset_samples=10_000
        )
    )
