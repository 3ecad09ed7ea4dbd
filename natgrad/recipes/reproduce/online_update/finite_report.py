"""What is told of the online update with finite minibatches."""

from __future__ import annotations

import math
from typing import Literal

from natgrad.recipes.reproduce.across_seeds import across, markdown_table, significant
from natgrad.recipes.reproduce.experiment import Figure, Line
from natgrad.recipes.reproduce.online_update.finite import WARM_UP, WINDOW
from natgrad.recipes.reproduce.online_update.results import SPECTRUM_TITLES, OnlineUpdateResults

__all__ = ["finite_figure", "finite_table", "finite_text", "start_figure", "start_text"]


def finite_text(results: OnlineUpdateResults) -> str:
    """Return what the table and the figure are of, and what else was found."""
    batch_size, history = results.middle
    by_method = {
        spectrum: [
            results.mean(spectrum, batch_size, history, "space", method).text()
            for method in ("online", "eigenvectors")
        ]
        for spectrum in ("gap", "decaying")
    }
    halves = [
        cell["divergence_halves"]
        for spectrum in ("gap", "decaying", "flat")
        for cell in results.cells(spectrum, batch_size, history)
    ]
    drift = across(later / earlier for earlier, later in halves)
    return f"""\
Rows are Gaussian and independent, with a covariance that stays the same; a minibatch of N has the
weight eta = 1 - exp(-N/S). All is averaged over {WINDOW:g} / eta updates, after {WARM_UP:g} / eta.
*error of F* is the root mean square of the relative distance from the best factor; *squared sines*
are of the angles between R's space and the top one, summed; *divergence* is that of the Gaussian of
F from the true one beyond that of the best, in nats, with the 5 and 95 % quantiles over time;
*error of inverse* is of the smoothed inverse, alpha = {results.settings.alpha:g}.

The distribution is stationary: the mean divergence of the second half of the time is {drift.text()}
times that of the first, over spectra and seeds at N = {batch_size}, S = {history:g}.

That an update is but one step of the power method adds no noise. With the top eigenvectors of T
taken exactly instead, at N = {batch_size}, S = {history:g}, the squared sines are
{by_method["gap"][1]} where the online update has {by_method["gap"][0]} (gap), and
{by_method["decaying"][1]} where it has {by_method["decaying"][0]} (10 / i)."""


def finite_table(results: OnlineUpdateResults) -> str:
    """Return the errors of the steady state, per spectrum, S and N."""
    rows = []
    for spectrum in ("gap", "decaying", "flat"):
        for history in results.settings.histories:
            for batch_size in results.settings.batch_sizes:
                rows.append(_finite_row(results, spectrum, batch_size, history))
    head = ["eigenvalues", "S", "N", "error of F", "expected", "squared sines", "expected"]
    return markdown_table([*head, "divergence (5 to 95 %)", "error of inverse"], rows)


def _finite_row(
    results: OnlineUpdateResults, spectrum: str, batch_size: int, history: float
) -> list[str]:
    cells = results.cells(spectrum, batch_size, history)
    expected = [cells[0]["expected_factor_rms"], cells[0]["expected_space"]]
    told = ["-" if value is None else significant(value) for value in expected]
    low = min(cell["divergence_5_95"][0] for cell in cells)
    high = max(cell["divergence_5_95"][1] for cell in cells)
    divergence = results.mean(spectrum, batch_size, history, "divergence").mean
    space = results.mean(spectrum, batch_size, history, "space").text()
    return [
        SPECTRUM_TITLES[spectrum],
        f"{history:g}",
        str(batch_size),
        results.rms(spectrum, batch_size, history).text(),
        told[0],
        space if expected[1] is not None else "-",
        told[1],
        f"{significant(divergence)} ({significant(low)} to {significant(high)})",
        results.mean(spectrum, batch_size, history, "inverse").text(),
    ]


def finite_figure(results: OnlineUpdateResults) -> Figure:
    """Return the steady state's error, measured and expected."""
    lines = []
    for color, spectrum in enumerate(("gap", "decaying")):
        size = results.middle[0]
        expected = [
            (history, results.cells(spectrum, size, history)[0]["expected_factor_rms"])
            for history in results.settings.histories
        ]
        lines.append(Line(f"{SPECTRUM_TITLES[spectrum]}", expected, "dashed", color))
        for number, batch_size in enumerate(results.settings.batch_sizes):
            shift = 1.0 + 0.06 * (number - 1)  # or the points would lie over one another
            points, ranges = [], []
            for history in results.settings.histories:
                value = results.rms(spectrum, batch_size, history)
                points.append((history * shift, value.mean))
                ranges.append((history * shift, value.low, value.high))
            name = f"{SPECTRUM_TITLES[spectrum]}, N = {batch_size}"
            lines.append(Line(name, points, "dots", color, ranges, is_named=False))
    sizes = ", ".join(str(size) for size in results.settings.batch_sizes)
    return Figure(
        "finite",
        f"The steady state's error of F against S: measured for N = {sizes} (dots side by side, "
        "with the range of the seeds) and expected (dashed)",
        "S, samples",
        "relative distance of F from the best factor",
        lines,
        log_x=True,
        log_y=True,
    )


def start_text(results: OnlineUpdateResults) -> str:
    """Return what the figure of the start is of."""
    return f"""\
The first minibatch, of {results.middle[0]}, starts the factor. A larger S is slower and in the end
better. Each line is the geometric mean of {len(results.settings.seeds)} seeds."""


def start_figure(results: OnlineUpdateResults) -> Figure:
    """Return how the errors fall from the first minibatch on."""
    lines = []
    styles: tuple[Literal["plain", "dashed"], ...] = ("plain", "dashed")
    for style, spectrum in zip(styles, ("gap", "decaying"), strict=True):
        runs = [
            results.found[f"start-{spectrum}-seed-{seed}"]["curves"]
            for seed in results.settings.seeds
        ]
        for color, history in enumerate(results.settings.histories):
            columns = zip(*(run[f"{history:g}"] for run in runs), strict=True)
            points = []
            for column in columns:
                value = across((one["factor"] for one in column), geometric=True).mean
                points.append((float(column[0]["samples"]), value if value > 0 else math.nan))
            lines.append(Line(f"{spectrum}, S = {history:g}", points, style, color))
    return Figure(
        "start",
        "The error of F from the first minibatch on",
        "samples",
        "relative distance of F from the best factor",
        lines,
        log_x=True,
        log_y=True,
    )
