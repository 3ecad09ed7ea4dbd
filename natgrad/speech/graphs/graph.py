"""A decoding graph as arrays: what the decoder and the aligner walk through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Graph"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A weighted transducer from labels of HMM states to words; state `start` is where it begins.

    The arcs that leave state s are first_arc[s] to before first_arc[s + 1]. A label is the number
    of an HMM state + 1, and takes one frame, or 0, and takes none; a word is 0 where there is none.
    Weights are costs: negative logarithms of probabilities.
    """

    start: int
    first_arc: NDArray[np.int64]  # (S + 1,)
    label: NDArray[np.int32]  # (A,)
    word: NDArray[np.int32]  # (A,)
    weight: NDArray[np.float32]  # (A,)
    target: NDArray[np.int32]  # (A,)
    final: NDArray[np.float32]  # (S,) the cost of ending there; infinite where one cannot

    @property
    def num_states(self) -> int:
        """The number of states."""
        return len(self.final)

    @property
    def num_arcs(self) -> int:
        """The number of arcs."""
        return len(self.label)
