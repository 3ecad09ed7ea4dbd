"""Which pieces go where: to one of the blocks, to validation, and copies to the training subset.

All of it follows from the pieces' random keys, one run's table at a time:
- the segments with the smallest segment keys are for validation, until they have enough samples;
- the other pieces are for training: each block has a range of keys, of about as many samples;
- the training pieces with the smallest keys after scrambling are in the training subset, too. (The
  scrambling makes it a sample of all blocks.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.data.spill import open_table

# Blocks are cut between ranges of keys, not between any two of them, so that counting samples needs
# the same little memory for all corpora. Up to some 10000 blocks are then equal to a few percent.
RANGE_BITS = 20
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Scattering:
    """Where pieces go, by their keys.

    validation_limit: pieces with segment keys below it are for validation
    subset_limit: training pieces with scrambled keys below it are in the training subset
    block_ranges: block b has the training pieces in key ranges block_ranges[b : b + 1]
    """

    validation_limit: int
    subset_limit: int
    block_ranges: tuple[int, ...]

    def is_validation(self, table: NDArray[np.void]) -> NDArray[np.bool_]:
        """(P,) whether the pieces are held out."""
        return _is_below(table["segment_key"], self.validation_limit)

    def is_subset(self, table: NDArray[np.void]) -> NDArray[np.bool_]:
        """(P,) whether the pieces are in the training subset."""
        below = _is_below(_scrambled(table["key"]), self.subset_limit)
        return below & ~self.is_validation(table)

    def pieces_of_block(self, table: NDArray[np.void], block: int) -> NDArray[np.int64]:
        """The places of a training block's pieces in a table that is sorted by key."""
        keys = table["key"]
        begin, end = (
            bisect_left(range(len(keys)), limit, key=lambda place: int(keys[place]))
            for limit in (r << (64 - RANGE_BITS) for r in self.block_ranges[block : block + 2])
        )
        return begin + np.flatnonzero(~self.is_validation(table[begin:end]))


class SmallestKeys:
    """Finds, of all keys that are shown to it, the smallest that have a given size together."""

    def __init__(self, wanted_size: int) -> None:
        self._wanted_size = wanted_size
        self._keys = np.zeros(0, dtype=np.uint64)
        self._sizes = np.zeros(0, dtype=np.int64)

    def show(self, keys: Keys, sizes: NDArray[np.int64]) -> None:
        """Look at some more keys."""
        keys = np.concatenate([self._keys, keys])
        sizes = np.concatenate([self._sizes, sizes])
        order = np.argsort(keys, kind="stable")
        size_before = np.cumsum(sizes[order]) - sizes[order]
        order = order[size_before < self._wanted_size]
        self._keys, self._sizes = keys[order], sizes[order]

    @property
    def limit(self) -> int:
        """The chosen keys are below this."""
        return int(self._keys[-1]) + 1 if len(self._keys) else 0


def choose(
    runs: Sequence[Path],
    num_jobs: int,
    samples_per_job: int,
    validation_samples: int,
    train_subset_samples: int,
) -> Scattering:
    """Look through the tables of all runs, and say where pieces go."""
    validation = SmallestKeys(validation_samples)
    for run in runs:
        validation.show(*_samples_of_segments(open_table(run)))
    without_blocks = Scattering(validation.limit, 0, ())
    subset = SmallestKeys(train_subset_samples)
    samples_of_ranges = np.zeros(2**RANGE_BITS, dtype=np.int64)
    for run in runs:
        table = open_table(run)
        table = table[~without_blocks.is_validation(table)]
        subset.show(_scrambled(table["key"]), table["num_samples"].astype(np.int64))
        np.add.at(samples_of_ranges, _ranges_of(table["key"]), table["num_samples"])
    num_samples = int(samples_of_ranges.sum())
    num_blocks = num_jobs * max(1, round(num_samples / (num_jobs * samples_per_job)))
    block_ranges = cut_ranges(samples_of_ranges, num_blocks)
    return Scattering(validation.limit, subset.limit, block_ranges)


def cut_ranges(samples_of_ranges: NDArray[np.int64], num_blocks: int) -> tuple[int, ...]:
    """Where to cut a row of ranges so that blocks have about as many samples, and none is empty.

    >>> cut_ranges(np.array([5, 0, 5, 5, 0, 5]), 2)
    (0, 3, 6)
    """
    filled = np.flatnonzero(samples_of_ranges)
    if len(filled) < num_blocks:
        raise ValueError(
            f"There are {samples_of_ranges.sum()} training samples in {len(filled)} pieces, too "
            f"few for {num_blocks} blocks of at least one piece each; expected more data (did "
            "validation_samples leave any?), or fewer num_jobs, more samples_per_job, or a smaller "
            "piece_frames."
        )
    totals = np.cumsum(samples_of_ranges[filled])
    ideal = totals[-1] * np.arange(1, num_blocks) / num_blocks
    cuts = np.searchsorted(totals - samples_of_ranges[filled] / 2, ideal)
    # Each block takes at least one filled range, and leaves one to each that comes after it.
    places = np.arange(1, num_blocks)
    cuts = np.maximum.accumulate(np.maximum(cuts, places) - places) + places
    cuts = np.minimum(cuts, len(filled) - num_blocks + places)
    return (0, *(int(place) for place in filled[cuts]), len(samples_of_ranges))


def _samples_of_segments(table: NDArray[np.void]) -> tuple[Keys, NDArray[np.int64]]:
    keys, index = np.unique(table["segment_key"], return_inverse=True)
    return keys, np.bincount(index, table["num_samples"], len(keys)).astype(np.int64)


def _is_below(keys: Keys, limit: int) -> NDArray[np.bool_]:
    # The limit may be 2^64, which is no uint64.
    below: NDArray[np.bool_] = keys <= np.uint64(limit - 1) if limit else np.zeros(len(keys), bool)
    return below


def _ranges_of(keys: Keys) -> NDArray[np.int64]:
    return (keys >> np.uint64(64 - RANGE_BITS)).astype(np.int64)


def _scrambled(keys: Keys) -> Keys:
    """A bijection of the 64-bit numbers that leaves no visible order."""
    folded = keys ^ (keys >> np.uint64(32))
    product = folded * np.uint64(0x9E3779B97F4A7C15)  # odd, its bits without pattern
    scrambled: Keys = product ^ (product >> np.uint64(29))
    return scrambled
