"""What was found of the online update, in the forms in which it is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from natgrad.recipes.reproduce.across_seeds import AcrossSeeds, across
from natgrad.recipes.reproduce.experiment import Found

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.online_update.experiment import OnlineUpdateSettings

__all__ = ["SPECTRUM_TITLES", "TIED", "OnlineUpdateResults"]

SPECTRUM_TITLES = {
    "gap": "a gap: 20 to 10, then 1",
    "decaying": "10 / i",
    "tie": "a tie at the cut",
    "steep": "10^(-i/2), at the floor",
    "flat": "all 1",
}
TIED = ("tie", "flat")  # of which there are several limits


class OnlineUpdateResults:
    """What was found, by spectrum, N, S and seed."""

    def __init__(self, settings: OnlineUpdateSettings, found: Mapping[str, Found]) -> None:
        self.settings = settings
        self.found = found

    def infinite(self, spectrum: str, eta: float) -> Found:
        """Return what was found with infinite minibatches."""
        return self.found[f"infinite-{spectrum}-{eta:g}"]

    def at_end(self, spectrum: str, eta: float, key: str) -> float:
        """Return the greatest of the seeds' errors after all updates."""
        curves = self.infinite(spectrum, eta)["curves"]
        return max(abs(float(curve[-1][key])) for curve in curves)

    def cells(
        self, spectrum: str, batch_size: int, history: float, method: str = "online"
    ) -> list[dict[str, Any]]:
        """Return a cell of the steady state, once per seed."""
        return [
            cell
            for seed in self.settings.seeds
            for cell in self.found[f"finite-{spectrum}-seed-{seed}"]["cells"]
            if (cell["batch_size"], cell["history"], cell["method"])
            == (batch_size, history, method)
        ]

    def mean(
        self, spectrum: str, batch_size: int, history: float, key: str, method: str = "online"
    ) -> AcrossSeeds:
        """Return an error's mean over the time of the steady state."""
        cells = self.cells(spectrum, batch_size, history, method)
        return across(cell["means"][key] for cell in cells)

    def rms(self, spectrum: str, batch_size: int, history: float) -> AcrossSeeds:
        """Return the root mean square error of F in the steady state."""
        return across(c["factor_rms"] for c in self.cells(spectrum, batch_size, history))

    @property
    def middle(self) -> tuple[int, float]:
        """The N and S for which everything is told."""
        sizes, histories = self.settings.batch_sizes, self.settings.histories
        return sizes[len(sizes) // 2], histories[len(histories) // 2]

    def ratios(self, key: str) -> AcrossSeeds:
        """Return measured over expected, over all spectra that have a gap, N and S."""
        ratios = []
        for spectrum in ("gap", "decaying"):
            for batch_size in self.settings.batch_sizes:
                for history in self.settings.histories:
                    cells = self.cells(spectrum, batch_size, history)
                    measured = across(
                        c["factor_rms"] if key == "factor" else c["means"]["space"] for c in cells
                    ).mean
                    name = "expected_factor_rms" if key == "factor" else "expected_space"
                    ratios.append(measured / cells[0][name])
        return across(ratios)
