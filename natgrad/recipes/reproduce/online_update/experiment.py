"""What is measured of the online update.

With infinite minibatches, from a random factor and from a wrong fixed point; with finite ones,
from the best factor (how noisy the steady state is) and from the first minibatch (how soon it is
reached). All in float64, by the update that NGSGD itself makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.recipes.reproduce.online_update.finite import finite, from_start
from natgrad.recipes.reproduce.online_update.infinite import infinite, wrong_start
from natgrad.recipes.reproduce.online_update.report import report

__all__ = ["ONLINE_UPDATE", "SPECTRA", "OnlineUpdateSettings"]


def gap(dimension: int, rank: int) -> Tensor:
    """Return the top eigenvalues from 20 to 10, and all others 1."""
    top = torch.linspace(20.0, 10.0, rank, dtype=torch.float64)
    return torch.cat([top, torch.ones(dimension - rank, dtype=torch.float64)])


def decaying(dimension: int, rank: int) -> Tensor:
    """Return 10 / i: the last of the top and the first of the rest are close."""
    return 10.0 / torch.arange(1, dimension + 1, dtype=torch.float64)


def tie(dimension: int, rank: int) -> Tensor:
    """Return `gap` with four equal eigenvalues at the cut: two of the top, two of the rest."""
    values = gap(dimension, rank)
    values[rank - 2 : rank + 2] = 5.0
    return values


def steep(dimension: int, rank: int) -> Tensor:
    """Return powers of 10: what is left beyond the top is below the floor of rho."""
    return 10.0 ** (-torch.arange(1, dimension + 1, dtype=torch.float64) / 2)


def flat(dimension: int, rank: int) -> Tensor:
    """Return ones: there is no top."""
    return torch.ones(dimension, dtype=torch.float64)


SPECTRA: dict[str, Callable[[int, int], Tensor]] = {
    "gap": gap,
    "decaying": decaying,
    "tie": tie,
    "steep": steep,
    "flat": flat,
}
NOISY = ("gap", "decaying", "flat")  # with finite minibatches, too


@dataclass(frozen=True)
class OnlineUpdateSettings:
    """What the experiment depends on.

    seeds: of random starts and of minibatches
    dimension, rank: D and R
    alpha: of the smoothed inverse whose error is told
    etas: weights of an infinite minibatch
    num_updates: by infinite minibatches
    batch_sizes, histories: N and S of finite ones
    start_samples: for how many samples a start is followed
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    dimension: int = 64
    rank: int = 8
    alpha: float = 4.0
    etas: tuple[float, ...] = (0.06, 0.5)
    num_updates: int = 4000
    batch_sizes: tuple[int, ...] = (32, 128, 512)
    histories: tuple[float, ...] = (500.0, 2000.0, 8000.0)
    start_samples: int = 100_000

    def __post_init__(self) -> None:
        if not 2 <= self.rank <= self.dimension // 2:
            raise ValueError(
                f"rank is {self.rank} and dimension {self.dimension}; expected a rank from 2 to "
                "half of the dimension"
            )
        if not all(0.0 < eta < 1.0 for eta in self.etas):
            raise ValueError(f"etas are {list(self.etas)}; expected numbers between 0 and 1")
        if min((*self.batch_sizes, *self.histories, *self.seeds, self.num_updates)) < 1:
            raise ValueError("seeds, batch_sizes, histories and num_updates must be at least 1")
        if not (self.seeds and self.etas and self.batch_sizes and self.histories):
            raise ValueError("expected some seeds, etas, batch_sizes and histories")


def measurements(settings: OnlineUpdateSettings, data: Path | None) -> list[Measurement]:
    """Return one per spectrum and eta, or spectrum and seed."""
    shape = {"dimension": settings.dimension, "rank": settings.rank, "alpha": settings.alpha}
    listed = []

    def add(name: str, run: Callable[..., Found], **own: Any) -> None:
        own = {**shape, **own}
        listed.append(Measurement(name, own, partial(_with_settings, run, own)))

    many = {"num_updates": settings.num_updates, "seeds": list(settings.seeds)}
    for spectrum in SPECTRA:
        for eta in settings.etas:
            add(f"infinite-{spectrum}-{eta:g}", infinite, spectrum=spectrum, eta=eta, **many)
    add("wrong-gap", wrong_start, spectrum="gap", eta=settings.etas[0], **many)
    for seed in settings.seeds:
        for spectrum in NOISY:
            add(
                f"finite-{spectrum}-seed-{seed}",
                finite,
                spectrum=spectrum,
                seed=seed,
                batch_sizes=list(settings.batch_sizes),
                histories=list(settings.histories),
            )
            add(
                f"start-{spectrum}-seed-{seed}",
                from_start,
                spectrum=spectrum,
                seed=seed,
                batch_size=settings.batch_sizes[len(settings.batch_sizes) // 2],
                histories=list(settings.histories),
                num_samples=settings.start_samples,
            )
    return listed


def _with_settings(run: Callable[..., Found], own: dict[str, Any], bench: Bench) -> Found:
    given = {key: value for key, value in own.items() if key not in ("spectrum", "dimension")}
    return run(SPECTRA[own["spectrum"]](own["dimension"], own["rank"]), **given)


ONLINE_UPDATE = Experiment(
    name="online-update",
    asks="Does the online update converge to the best low-rank-plus-identity approximation of the "
    "covariance in the steady state, with infinite and with finite minibatches (section 5.3)?",
    settings=OnlineUpdateSettings,
    measurements=measurements,
    report=report,
)
