"""Figures 1 and 2: objectives over epochs, and over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from natgrad.recipes.reproduce.experiment import Figure, Line
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import System
from natgrad.recipes.reproduce.job_counts.time_report import tell_clocks

__all__ = ["figures"]

STYLES: dict[str, Literal["dashed", "thin", "plain"]] = {
    "none": "dashed",
    "simple": "thin",
    "online": "plain",
}
FROM_EPOCH = 0.2  # what is before would leave no room for the rest


def figures(results: JobCountResults) -> tuple[Figure, Figure, Figure]:
    """Return the objective over epochs, over time, and of held-out frames over epochs."""

    def epochs(system: System, iteration: int, epoch: float) -> float:
        return epoch

    def minutes(system: System, iteration: int, epoch: float) -> float:
        return results.minutes(system, iteration)

    styles = "SGD dashed, simple NG-SGD thin, online NG-SGD solid"
    start = f"from {FROM_EPOCH:g} epochs on"
    return (
        Figure(
            "epochs",
            f"Training objective against epochs, {start}: {styles}; numbers of jobs by colour",
            "epochs",
            "log-probability per frame",
            _lines(results, "train_objective", epochs),
        ),
        Figure(
            "time",
            f"Training objective against time, {tell_clocks(results)}; {start}: {styles}; "
            "circles mark the end of training",
            "minutes",
            "log-probability per frame",
            _lines(results, "train_objective", minutes),
            log_x=True,
        ),
        Figure(
            "held-out",
            f"Objective of held-out utterances against epochs, {start}: {styles}",
            "epochs",
            "log-probability per frame",
            _lines(results, "valid_objective", epochs),
        ),
    )


def _lines(
    results: JobCountResults, key: str, place: Callable[[System, int, float], float]
) -> list[Line]:
    lines = []
    for system in results.in_order():
        points = [
            (place(system, iteration, epoch), value)
            for iteration, epoch, value in results.curve(system, key)
            if epoch >= FROM_EPOCH
        ]
        color = results.settings.num_jobs.index(system.num_jobs)
        lines.append(Line(system.title, points, STYLES[system.method], color))
        lines.append(Line(f"{system.title}, end", points[-1:], "dots", color, is_named=False))
    return lines
