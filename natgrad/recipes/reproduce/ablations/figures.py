"""Figures: differences by change, and over alpha."""

from __future__ import annotations

from natgrad.recipes.reproduce.ablations.results import AblationResults
from natgrad.recipes.reproduce.experiment import Figure, Line

__all__ = ["alpha_figure", "differences_figure"]

TITLES = {"train_objective": "training", "valid_objective": "held out"}
FAR = ("method",)  # options whose changes are so large that nothing else could be seen


def differences_figure(results: AblationResults) -> Figure:
    """Return the differences of the training objective, a dot for each row of the table."""
    lines: dict[str, Line] = {}
    chance = results.baseline("final", "train_objective")
    for number, variant in enumerate(results.variants, start=1):
        found = results.difference(variant, "final", "train_objective").across
        if found is None or variant.option in FAR:
            continue
        line = lines.get(variant.option, Line(variant.option, [], "dots", len(lines) % 8))
        lines[variant.option] = Line(
            line.name,
            [*line.points, (number, found.mean)],
            "dots",
            line.color,
            [*line.ranges, (number, found.low, found.high)],
        )
    wide = chance.high - chance.low
    return Figure(
        "differences",
        "Training objective of the final model less that of the baseline from the same seed, by "
        "the rows of the table (without the other methods): means, and bars from the least to the "
        "greatest of the seeds. Dotted: the range of the baseline's own seeds, which a mean "
        "must exceed",
        "row of the table",
        "difference, log-probability per frame",
        list(lines.values()),
        marks=[(-wide, "the baseline's range, below"), (wide, "the baseline's range, above")],
    )


def alpha_figure(results: AblationResults) -> Figure:
    """Return the differences over alpha, where the baseline is zero."""
    usual = results.settings.tables()["optimizer"].alpha
    lines = []
    for key, title in TITLES.items():
        points, ranges = [(usual, 0.0)], [(usual, 0.0, 0.0)]
        for variant in results.variants:
            found = results.difference(variant, "final", key).across
            if variant.option == "alpha" and found is not None:
                alpha = variant.changed["alpha"]
                points.append((alpha, found.mean))
                ranges.append((alpha, found.low, found.high))
        lines.append(Line(title, sorted(points), ranges=sorted(ranges)))
    return Figure(
        "alpha",
        f"Objectives of the final model over alpha, less those with alpha = {usual:g}: means, and "
        "bands from the least to the greatest of the seeds",
        "alpha",
        "difference, log-probability per frame",
        lines,
        log_x=True,
    )
