"""What all experiments with training runs on speech can be told: network, length and rates."""

from __future__ import annotations

from dataclasses import dataclass, field

from natgrad.recipes.reproduce.speech_runs import ExampleSettings
from natgrad.recipes.train_config import NetworkShape, TrainingConfig

__all__ = ["RunSettings"]


@dataclass(frozen=True)
class RunSettings:
    """What the runs of an experiment have in common.

    hidden: p-norm layers, units and groups
    initial_effective_lr, final_effective_lr: the same for all
    """

    hidden: tuple[tuple[int, int], ...] = ((200, 40),) * 3
    num_epochs: float = 1.0
    initial_effective_lr: float = 0.01
    final_effective_lr: float = 0.001
    minibatch_size: int = 128
    examples: ExampleSettings = field(default_factory=ExampleSettings)

    def network(self, initial_num_hidden: int | None = None) -> NetworkShape:
        """Return the network: by default all layers at once, so that all systems grow it alike."""
        return NetworkShape(hidden=self.hidden, initial_num_hidden=initial_num_hidden)

    def training(self, num_jobs: int, initial_num_jobs: int | None = None) -> TrainingConfig:
        """Return how long, at which rates, and with how many jobs, of which some at first."""
        return TrainingConfig(
            num_epochs=self.num_epochs,
            num_jobs=num_jobs,
            initial_num_jobs=initial_num_jobs,
            initial_effective_lr=self.initial_effective_lr,
            final_effective_lr=self.final_effective_lr,
            minibatch_size=self.minibatch_size,
        )

    @property
    def layers(self) -> str:
        """The layers, in words."""
        return ", ".join(f"{units} -> {groups}" for units, groups in self.hidden)
