"""What the weight matrices of one optimizer have in common from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from natgrad.optim.full_precision import full_precision
from natgrad.optim.online import Lesson, learn


@dataclass
class Pass:
    """What all matrices of one optimizer share between two calls of `step`."""

    fused: bool
    tapped: bool = True  # False: layers compute their plain gradients
    accumulating: bool = False  # True: rows are collected, and nothing is computed from them yet
    refused: str | None = None  # what was not finite, and where
    updated: list[str] = field(default_factory=list)  # fused: the layers that have changed already
    lessons: list[Lesson] = field(default_factory=list)  # what factors shall learn, all at once
    # True: other threads learn the same factors, and would have replaced them by the pass's end
    has_replicas: bool = False

    @torch.no_grad()
    def learn(self) -> None:
        """Let the Fisher factors learn what they are still to learn."""
        lessons, self.lessons = self.lessons, []
        if lessons:
            with full_precision(lessons[0].seen.X):
                learn(lessons)


def at_end_of_backward(action: Callable[[], None]) -> None:
    """Let autograd call it when all derivatives of the pass that goes on are there."""
    torch.autograd.Variable._execution_engine.queue_callback(action)
