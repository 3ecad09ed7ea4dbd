"""The run that all others are compared with, and how far options are moved away from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from natgrad.recipes.reproduce.run_settings import RunSettings
from natgrad.recipes.reproduce.speech_runs import ExampleSettings
from natgrad.recipes.train_config import (
    CombinationConfig,
    OptimizerConfig,
    OuterConfig,
)

__all__ = ["Ablations"]


def _soon_learned() -> ExampleSettings:
    # Labels that a part of an epoch teaches: of runs that have hardly begun, nothing can be told.
    return ExampleSettings(samples_per_job=4_000, labels="sound_state")


@dataclass(frozen=True)
class Ablations(RunSettings):
    """What the runs depend on.

    seeds: of the baseline and of each change; differences are those of runs from the same seed
    alphas, ranks (of inputs and of derivatives), update_periods, histories (S): other values than
        the paper's, one at a time
    num_models: P, of the models that are combined
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    alphas: tuple[float, ...] = (0.1, 0.5, 1.0, 10.0)
    ranks: tuple[tuple[int, ...], ...] = ((5, 20), (10, 40), (40, 40), (40, 160))
    update_periods: tuple[int, ...] = (1, 16)
    histories: tuple[float, ...] = (500.0, 8000.0)
    num_jobs: int = 4
    num_epochs: float = 0.75
    num_models: int = 10
    examples: ExampleSettings = field(default_factory=_soon_learned)

    def __post_init__(self) -> None:
        if len(set(self.seeds)) < 2:
            raise ValueError(
                f"seeds is {list(self.seeds)}; expected at least two, as their range tells what "
                "chance does"
            )
        usual = OptimizerConfig()
        for rank in self.ranks:
            if len(rank) != 2:
                raise ValueError(f"ranks has {list(rank)}; expected [of inputs, of derivatives]")
        tried: dict[str, tuple[Any, tuple[Any, ...]]] = {
            "alphas": (usual.alpha, self.alphas),
            "ranks": ((usual.rank_in, usual.rank_out), self.ranks),
            "update_periods": (usual.update_period, self.update_periods),
            "histories": (usual.num_samples_history, self.histories),
        }
        for name, (own, others) in tried.items():
            if own in others or len(set(others)) < len(others):
                raise ValueError(
                    f"{name} is {list(others)}; expected each value once, and not {own}, which is "
                    "what they are compared with"
                )

    def tables(self) -> dict[str, Any]:
        """Return the baseline: the tables of `TrainConfig` beside run, data and engine.

        Models are combined on training data alone, so that held-out data say nothing too good of
        any model.
        """
        return {
            "network": self.network(initial_num_hidden=1),  # layers one by one, as in the paper
            "training": self.training(self.num_jobs),
            "optimizer": OptimizerConfig(),
            "combination": CombinationConfig(data="train", num_models=self.num_models),
            "outer": OuterConfig(),
        }
