"""What was found of the changes: differences to the baseline, and which of them may be chance."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from natgrad.recipes.reproduce.ablations.settings import Ablations
from natgrad.recipes.reproduce.ablations.variants import BASELINE, Variant, all_variants
from natgrad.recipes.reproduce.across_seeds import AcrossSeeds, across
from natgrad.recipes.reproduce.experiment import Found

__all__ = ["AblationResults", "Difference", "chance_of_passing"]

When = Literal["final", "last"]
NUM_DRAWS = 20_000


@dataclass(frozen=True)
class Difference:
    """A change's number less the baseline's, by seed: of those seeds that did not diverge.

    chance: the range of the baseline over all seeds
    num_diverged: of the seeds that are left out
    """

    values: Sequence[float]
    chance: float
    num_diverged: int = 0

    @property
    def across(self) -> AcrossSeeds | None:
        """Mean and range, if there is any."""
        return across(self.values) if self.values else None

    @property
    def sign(self) -> int:
        """1 or -1 if the difference is greater than chance makes it, else 0.

        Its mean must be further from zero than the seeds' differences are from one another (so
        that all of them have its sign), and than the baseline's seeds are from one another.
        """
        found = self.across
        if found is None or self.num_diverged:
            return 0
        if abs(found.mean) <= max(self.chance, found.high - found.low):
            return 0
        return 1 if found.mean > 0 else -1


@dataclass(frozen=True)
class AblationResults:
    """Settings, and what all measurements found."""

    settings: Ablations
    found: Mapping[str, Found]

    @property
    def variants(self) -> list[Variant]:
        """All changes, in the order of the table."""
        return all_variants(self.settings)

    @property
    def floor(self) -> float:
        """The objective of a network that has learned nothing: below it, a run has diverged."""
        return -math.log(self.found["examples"]["classes"])

    def baseline(self, when: When, key: str) -> AcrossSeeds:
        """Return what was reached without a change."""
        return across(self._of_baseline(when, key, seed) for seed in self.settings.seeds)

    def _of_baseline(self, when: When, key: str, seed: int) -> float:
        return float(self.found[f"{BASELINE}-seed-{seed}"][when][key])

    def difference(self, variant: Variant, when: When, key: str) -> Difference:
        """Return how far a change has moved a number, seed by seed."""
        own = self.baseline(when, key)
        values = []
        for seed in self.settings.seeds:
            reached = self._reached(variant, seed)
            if reached is not None:
                values.append(reached[when][key] - self._of_baseline(when, key, seed))
        num_diverged = len(self.settings.seeds) - len(values)
        return Difference(values, own.high - own.low, num_diverged)

    def diverged(self, variant: Variant) -> int:
        """Return from how many seeds a change has diverged."""
        return sum(self._reached(variant, seed) is None for seed in self.settings.seeds)

    def left_out(self, variant: Variant | None) -> int:
        """Return how many jobs' models were of no use, in the runs from all seeds."""
        name = BASELINE if variant is None or not variant.table else variant.name
        return sum(self.found[f"{name}-seed-{s}"]["num_left_out"] for s in self.settings.seeds)

    def mean_lengths(self) -> list[int]:
        """Return of how many models the best mean of the last was, by seed."""
        return [
            self.found[f"combinations-seed-{s}"]["mean"]["num_models"] for s in self.settings.seeds
        ]

    def _reached(self, variant: Variant, seed: int) -> Mapping[When, Mapping[str, Any]] | None:
        """Return what the last and the final model reached, or None if the run has diverged."""
        if not variant.table:
            return self._combined(variant, seed)
        found = self.found[f"{variant.name}-seed-{seed}"]
        if found["diverged"] is not None or found["last"]["train_objective"] < self.floor:
            return None
        return {"last": found["last"], "final": found["final"]}

    def _combined(self, variant: Variant, seed: int) -> Mapping[When, Mapping[str, Any]]:
        last = self.found[f"{BASELINE}-seed-{seed}"]["last"]
        way = variant.name.removeprefix("combination-")
        final = last if way == "last" else self.found[f"combinations-seed-{seed}"][way]
        return {"last": last, "final": final}


@cache
def chance_of_passing(num_seeds: int) -> float:
    """Return how often a change that changes nothing would be told to be more than chance.

    By drawing the numbers of both, which are taken to be normal and independent; as runs from the
    same seed begin alike, it is rather less.
    """
    draw = random.Random(0)
    passed = 0
    for _ in range(NUM_DRAWS):
        own = [draw.gauss(0, 1) for _ in range(num_seeds)]
        values = [draw.gauss(0, 1) - value for value in own]
        passed += Difference(values, max(own) - min(own)).sign != 0
    return passed / NUM_DRAWS
