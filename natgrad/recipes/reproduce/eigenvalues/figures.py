"""Figures of the eigenvalues of the Fisher matrix."""

from __future__ import annotations

from natgrad.recipes.reproduce.across_seeds import across
from natgrad.recipes.reproduce.eigenvalues.results import VARIANTS, EigenvalueResults
from natgrad.recipes.reproduce.experiment import Figure, Line

__all__ = ["alpha_figure", "quantile_figure", "rank_figure"]


def quantile_figure(results: EigenvalueResults) -> Figure:
    """Return the eigenvalues, from the least to the largest."""
    names = ("before", "as-steps", "online", "exact", "blocks")
    lines = []
    for name in names:
        columns = list(zip(*(one["quantiles"] for one in results.of(name)), strict=True))
        marks = [across(column, geometric=True) for column in columns]
        shares = [100.0 * i / (len(columns) - 1) for i in range(len(columns))]
        lines.append(
            Line(
                VARIANTS[name],
                [(x, mark.mean) for x, mark in zip(shares, marks, strict=True)],
                style="dashed" if name == "before" else "plain",
                ranges=[(x, m.low, m.high) for x, m in zip(shares, marks, strict=True)],
            )
        )
    return Figure(
        "quantiles",
        "Eigenvalues of the Fisher matrix over their mean, from the least to the largest: flat at "
        "1 would be the unit matrix. Bands reach from the least to the greatest of the seeds",
        "per cent of the eigenvalues",
        "eigenvalue / mean",
        lines,
        log_y=True,
    )


def alpha_figure(results: EigenvalueResults) -> Figure:
    """Return what smoothing costs."""
    own = results.settings.training.alpha
    names = {0.0: "{}", own: "{}-alpha"}
    names |= {alpha: f"{{}}-{alpha:g}" for alpha in results.settings.alphas if alpha not in names}
    lines = []
    for name, title in (("online", "online factors"), ("exact", "exact covariances")):
        points, ranges = [], []
        for alpha in sorted(names):
            value = results.value(names[alpha].format(name), "within_wide")
            points.append((alpha, 100 * value.mean))
            ranges.append((alpha, 100 * value.low, 100 * value.high))
        lines.append(Line(title, points, ranges=ranges))
    without = results.value("before", "within_wide")
    ends = (min(names), max(names))
    lines.append(Line("before", [(x, 100 * without.mean) for x in ends], "dashed"))
    return Figure(
        "alpha",
        "Smoothing: the share of eigenvalues within a factor of 10 of their mean, against alpha",
        "alpha",
        "per cent",
        lines,
    )


def rank_figure(results: EigenvalueResults) -> Figure:
    """Return what rank brings."""
    points, ranges = [], []
    for rank in results.settings.ranks:
        value = results.value(f"best-{rank}", "within_wide")
        points.append((float(rank), 100 * value.mean))
        ranges.append((float(rank), 100 * value.low, 100 * value.high))
    ends = (float(min(results.settings.ranks)), float(max(results.settings.ranks)))
    exact, online = (results.value(name, "within_wide") for name in ("exact", "online"))
    training = results.settings.training
    at = float(training.rank_out)
    return Figure(
        "rank",
        "Rank, without smoothing: the same, with the best factors of each rank on both sides, and "
        "with those that the online method has found",
        "rank",
        "per cent",
        [
            Line("best of this rank", points, ranges=ranges),
            Line("online", [(at, 100 * online.mean)], "dots",
                 ranges=[(at, 100 * online.low, 100 * online.high)]),
            Line("exact covariances", [(x, 100 * exact.mean) for x in ends], "dashed"),
        ],
    )  # fmt: skip
