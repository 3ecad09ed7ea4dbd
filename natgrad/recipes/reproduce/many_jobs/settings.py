"""The runs with many jobs: what they have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from natgrad.recipes.reproduce.run_settings import RunSettings
from natgrad.recipes.reproduce.speech_runs import ExampleSettings
from natgrad.recipes.train_config import CombinationConfig

__all__ = ["ManyJobs"]


def _short_blocks() -> ExampleSettings:
    # Labels that little data teaches, and blocks so short that an epoch has a hundred iterations.
    # 1 % is little: more samples than elsewhere are to tell it.
    return ExampleSettings(samples_per_job=1_000, labels="sound_state", train_subset_samples=50_000)


@dataclass(frozen=True)
class ManyJobs(RunSettings):
    """What the runs depend on.

    seeds: of one job, of plain averaging and of what was chosen; all others are from the first
    num_jobs: how many are many
    goal: by what part of its size an objective may be below that of one job
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    num_jobs: int = 16
    goal: float = 0.01
    hidden: tuple[tuple[int, int], ...] = ((200, 40),) * 2
    num_epochs: float = 3.0
    initial_effective_lr: float = 0.02
    final_effective_lr: float = 0.0005
    examples: ExampleSettings = field(default_factory=_short_blocks)

    def __post_init__(self) -> None:
        if not self.seeds:
            raise ValueError("seeds is empty; expected at least one")
        if self.num_jobs < 2:
            raise ValueError(f"num_jobs is {self.num_jobs}; expected more than one")

    def combination(self) -> CombinationConfig:
        """Return what becomes of the last models: their mean, beside the last as it is."""
        return CombinationConfig(method="mean", data="train")
