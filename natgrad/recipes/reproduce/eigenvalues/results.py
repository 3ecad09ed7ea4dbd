"""What was found of the Fisher matrix, in the forms in which it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from natgrad.recipes.reproduce.across_seeds import AcrossSeeds, across, percent, significant
from natgrad.recipes.reproduce.experiment import Found

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.eigenvalues.experiment import EigenvalueSettings

__all__ = ["COLUMNS", "VARIANTS", "EigenvalueResults"]

VARIANTS = {
    "before": "before",
    "online": "online factors",
    "exact": "exact covariances",
    "blocks": "exact blocks",
    "online-alpha": "online factors, smoothed",
    "exact-alpha": "exact covariances, smoothed",
    "as-steps": "as NGSGD steps, online",
    "simple": "as NGSGD steps, simple",
}
COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "mean": ("mean", significant),
    "median": ("median", significant),
    "within_wide": ("within 10x of the mean", percent),
    "log10_std": ("s.d. of log10", significant),
    "decades_90_10": ("decades, 10 to 90 %", significant),
    "mean_ratio": ("log10 of arithmetic / geometric mean", significant),
    "largest": ("largest / mean", significant),
    "flatness": ("flatness", significant),
}


class EigenvalueResults:
    """What was found, by seed, moment, kind of Fisher matrix, and what stands for it."""

    def __init__(self, settings: EigenvalueSettings, found: Mapping[str, Found]) -> None:
        self.settings = settings
        self.found = found
        self.last = settings.moments[-1]

    def of(self, name: str, moment: int | None = None, kind: str = "true") -> list[dict[str, Any]]:
        """Return the spectrum of each seed."""
        moment = self.last if moment is None else moment
        return [
            self.found[f"seed-{seed}-after-{moment}"][kind][name] for seed in self.settings.seeds
        ]

    def value(
        self, name: str, key: str, moment: int | None = None, kind: str = "true"
    ) -> AcrossSeeds:
        """Return a number of the spread."""
        return across(one[key] for one in self.of(name, moment, kind))

    def text(self, name: str, key: str, moment: int | None = None, kind: str = "true") -> str:
        """Return it in words."""
        return self.value(name, key, moment, kind).text(COLUMNS[key][1])

    def layers(self, name: str) -> str:
        """Return the shares within a factor of 10 in each layer's block."""
        num_layers = len(self.of(name)[0]["blocks"])
        shares = [
            across(one["blocks"][layer]["within_wide"] for one in self.of(name)).mean
            for layer in range(num_layers)
        ]
        return ", ".join(percent(share).removesuffix(" %") for share in shares) + " %"

    def fact(self, key: str, moment: int | None = None) -> AcrossSeeds:
        """Return what was found of the network."""
        moment = self.last if moment is None else moment
        return across(
            float(self.found[f"seed-{seed}-after-{moment}"][key]) for seed in self.settings.seeds
        )
