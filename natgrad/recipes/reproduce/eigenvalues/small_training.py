"""A small p-norm network that learns phones by online NG-SGD, in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from natgrad.nn import ClassStatistics, Network, build, input_transform
from natgrad.optim import NGSGD

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.eigenvalues.phone_frames import PhoneFrames

__all__ = ["SmallTraining", "trained"]


@dataclass(frozen=True)
class SmallTraining:
    """The network, what it learns from, and how.

    num_frames, num_classes, context: as `speak_frames` takes them
    hidden: (units, groups) per hidden layer
    rank_in, rank_out, alpha, num_samples_history, update_period: as `NGSGD` takes them; ranks are
        in about the same relation to the layers' widths as the paper's
    """

    num_frames: int = 60_000
    num_classes: int = 25
    context: int = 1
    hidden: tuple[tuple[int, ...], ...] = ((26, 13), (26, 13), (26, 13))
    num_minibatches: int = 3000
    minibatch_size: int = 128
    initial_lr: float = 0.02
    final_lr: float = 0.002
    rank_in: int = 5
    rank_out: int = 5
    alpha: float = 4.0
    num_samples_history: float = 2000.0
    update_period: int = 4

    def __post_init__(self) -> None:
        least = min(self.num_minibatches, self.minibatch_size, self.rank_in, self.rank_out)
        if least < 1 or self.num_classes < 2 or self.context < 0:
            raise ValueError(
                "num_minibatches, minibatch_size and ranks must be at least 1, num_classes at "
                "least 2, and context not negative"
            )
        if not 0.0 < self.final_lr <= self.initial_lr:
            raise ValueError(
                f"final_lr is {self.final_lr} and initial_lr {self.initial_lr}: expected both "
                "positive, and the final one not above the initial one"
            )


def trained(
    training: SmallTraining,
    frames: PhoneFrames,
    seed: int,
    num_minibatches: int,
    progress: Callable[[int], object],
) -> tuple[Network, NGSGD]:
    """Return the network and its optimizer after so many of the training's minibatches."""
    statistics = ClassStatistics(frames.features.shape[1], training.num_classes)
    statistics.accumulate(frames.features, frames.labels)
    generator = torch.Generator().manual_seed(seed)
    network = build(
        frames.features.shape[1],
        training.num_classes,
        training.hidden,
        input_transform=input_transform(statistics.mean, statistics.within, statistics.between),
        generator=generator,
    )
    optimizer = NGSGD(
        network,
        rank_in=training.rank_in,
        rank_out=training.rank_out,
        alpha=training.alpha,
        num_samples_history=training.num_samples_history,
        update_period=training.update_period,
    )
    decay = training.final_lr / training.initial_lr
    for t in range(num_minibatches):
        chosen = torch.randint(len(frames), (training.minibatch_size,), generator=generator)
        for group in optimizer.param_groups:
            group["lr"] = training.initial_lr * decay ** (t / training.num_minibatches)
        outputs = network(frames.features[chosen])
        loss = torch.nn.functional.cross_entropy(outputs, frames.labels[chosen], reduction="sum")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress(1)
    return network, optimizer
