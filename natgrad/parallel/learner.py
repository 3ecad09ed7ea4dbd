"""What a job needs to know of the model that it trains, and of what it trains it on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor


class Learner(Protocol):
    """A model, its optimizer and its minibatches: the part of a job that recipes supply."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the live parameters and buffers by name: what is trained, averaged and saved."""

    def minibatches(self) -> Iterator[Any]:
        """Yield the job's minibatches, in an order that is drawn from its seed."""

    def learn(self, minibatch: Any) -> tuple[float, float]:
        """Take one step; return the objective summed over the samples, and their summed weight."""

    def replica(self) -> Learner:
        """Return another learner on the same parameters and Fisher factors, for another thread."""

    def state(self) -> Mapping[str, Tensor]:
        """Return what the optimizer has learned beside the parameters, for a job to go on with."""

    def statistics(self) -> dict[str, Any]:
        """Return what there is to report per layer, as JSON can hold it."""
