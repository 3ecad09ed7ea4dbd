"""Small corpora, and the literal way to the examples that blocks must give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from natgrad.data import Segment

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Corpus:
    """A source: utterances of given lengths, whose frames have all different labels.

    A frame's label is first_label plus its number in the corpus, so an example says by its label
    which frame it claims to be.
    """

    lengths: Sequence[int]
    feature_dim: int
    side_dim: int = 0
    first_label: int = 0
    name: str = "utterance"

    def __call__(self) -> Iterator[Segment]:
        for number, length in enumerate(self.lengths):
            first = self.first_label + sum(self.lengths[:number])
            yield Segment(
                f"{self.name}-{number}",
                self.features(number),
                np.arange(first, first + length),
                side=self.side(number) if self.side_dim else None,
            )

    @property
    def num_frames(self) -> int:
        return sum(self.lengths)

    def features(self, number: int) -> Floats:
        """Of different scales and offsets, with an outlier now and then."""
        random = np.random.default_rng([self.first_label, number])
        shape = (self.lengths[number], self.feature_dim)
        values = random.standard_t(2, shape) * 10.0 ** np.arange(self.feature_dim) + 3.0
        return values.astype(np.float32)

    def side(self, number: int) -> Floats:
        return np.arange(self.side_dim, dtype=np.float32) + number / 4  # exact in float16

    def find(self, label: int) -> tuple[int, int]:
        """The utterance and the frame that has a label."""
        ends = np.cumsum(self.lengths)
        number = int(np.searchsorted(ends, label - self.first_label, side="right"))
        return number, label - self.first_label - int(ends[number]) + self.lengths[number]


def literal_example(features: Floats, frame: int, left: int, right: int) -> NDArray[np.float64]:
    """(left + 1 + right, D): the frame and its neighbours, the ends of the utterance repeated."""
    last = len(features) - 1
    rows = [features[min(max(frame + i, 0), last)] for i in range(-left, right + 1)]
    return np.array(rows, dtype=np.float64)
