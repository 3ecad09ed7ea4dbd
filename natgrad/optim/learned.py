"""What is learned of one weight matrix while it trains: its Fisher factors, and two counts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from natgrad.optim.online import OnlineFisher


@dataclass
class Learned:
    """What is known of one weight matrix from its minibatches; several threads may share it."""

    fisher_in: OnlineFisher | None = None
    fisher_out: OnlineFisher | None = None
    num_minibatches: int = 0
    num_limited: int = 0  # minibatches in which the max-change limit was active
    lock: threading.Lock = field(default_factory=threading.Lock)  # held for moments

    def count(self, is_limited: bool) -> None:
        """Count a minibatch."""
        with self.lock:
            self.num_minibatches += 1
            self.num_limited += is_limited

    def become(self, other: Learned) -> None:
        """Take over what another has; threads that share this one see it, too."""
        with self.lock:
            self.fisher_in, self.fisher_out = other.fisher_in, other.fisher_out
            self.num_minibatches, self.num_limited = other.num_minibatches, other.num_limited

    def snapshot(self) -> tuple[Any, ...]:
        """Return what `restore` goes back to."""
        fishers = (self.fisher_in, self.fisher_out)
        states = [(f, None if f is None else f.snapshot()) for f in fishers]
        return *states, self.num_minibatches, self.num_limited

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """Forget all minibatches since `snapshot`, those of other threads too."""
        with self.lock:
            fisher_in, fisher_out, self.num_minibatches, self.num_limited = snapshot
            self.fisher_in, self.fisher_out = fisher_in[0], fisher_out[0]
        for fisher, state in (fisher_in, fisher_out):
            if fisher is not None:
                fisher.restore(state)
