"""What is told of the online update with infinite minibatches."""

from __future__ import annotations

from natgrad.recipes.reproduce.across_seeds import across, markdown_table
from natgrad.recipes.reproduce.experiment import Figure, Line
from natgrad.recipes.reproduce.online_update.results import (
    SPECTRUM_TITLES,
    TIED,
    OnlineUpdateResults,
)

__all__ = ["infinite_figure", "infinite_table", "infinite_text", "wrong_figure"]

LEAST = 1e-17  # what a logarithmic plot shows of a zero


def infinite_text(results: OnlineUpdateResults) -> str:
    """Return what the table and the figures are of."""
    settings = results.settings
    return f"""\
D = {settings.dimension}, R = {settings.rank}, float64; {len(settings.seeds)} random starts that
know only the mean eigenvalue. Every update is that of NGSGD itself, with a minibatch whose
covariance is the true one. In the table, the greatest error of the starts after
{settings.num_updates} updates: *from the best*, of F from the best factor, relative to its norm;
*from the limit*, the same with floors (there are several limits where there are ties); *beyond the
limit*, how much farther F is from the covariance than the limit is, relative to the covariance;
*trace*, its relative error, to which only the floors add. *rate* is the factor per update by which
the largest angle between R's space and the top one falls."""


def infinite_table(results: OnlineUpdateResults) -> str:
    """Return the errors after all updates, per spectrum and eta."""
    rows = []
    for spectrum, title in SPECTRUM_TITLES.items():
        for eta in results.settings.etas:
            found = results.infinite(spectrum, eta)
            rates = [rate for rate in found["rates"] if rate is not None]
            is_tied = spectrum in TIED
            errors = [
                "-" if is_tied and key == "from_limit" else f"{results.at_end(*where, key):.0e}"
                for where in [(spectrum, eta)]
                for key in ("factor", "from_limit", "beyond_limit", "trace")
            ]
            told = ["-", "-"]
            if rates and not is_tied:
                told = [across(rates).text(_rate), _rate(found["predicted_rate"])]
            rows.append([title, f"{eta:g}", *errors, *told])
    head = ["eigenvalues", "eta", "from the best", "from the limit", "beyond the limit", "trace"]
    return markdown_table([*head, "rate", "rate, derived"], rows)


def _rate(rate: float) -> str:
    return f"{rate:.5f}"


def infinite_figure(results: OnlineUpdateResults) -> Figure:
    """Return how the errors fall."""
    eta = results.settings.etas[0]
    lines = []
    for spectrum, title in SPECTRUM_TITLES.items():
        key = "beyond_limit" if spectrum in TIED else "from_limit"
        points, ranges = [], []
        for column in zip(*results.infinite(spectrum, eta)["curves"], strict=True):
            t = column[0]["t"] + 1.0
            values = across((max(abs(one[key]), LEAST) for one in column), geometric=True)
            points.append((t, values.mean))
            ranges.append((t, values.low, values.high))
        lines.append(Line(title, points, ranges=ranges))
    return Figure(
        "infinite",
        f"Infinite minibatches, eta = {eta:g}: relative distance of F from its limit, over the "
        "updates; where there are ties, how much farther it is from the covariance than the limit",
        "updates, plus one",
        "distance",
        lines,
        log_x=True,
        log_y=True,
    )


def wrong_figure(results: OnlineUpdateResults) -> Figure:
    """Return the way from a wrong fixed point."""
    found = results.found["wrong-gap"]
    lines = []
    for name, curve in found.items():
        is_exact = name == "exact"
        lines.append(
            Line(
                "exactly there" if is_exact else f"off by 1e-8, {name.replace('-', ' ')}",
                [(point["t"] + 1.0, max(point["from_limit"], LEAST)) for point in curve],
                "dashed" if is_exact else "plain",
            )
        )
    return Figure(
        "wrong",
        f"A wrong fixed point is not stable: from eigenvectors {results.settings.rank + 1} to "
        f"{2 * results.settings.rank}, infinite minibatches, eta = {results.settings.etas[0]:g}",
        "updates, plus one",
        "distance from the limit",
        lines,
        log_x=True,
        log_y=True,
    )
