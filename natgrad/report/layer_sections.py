"""What happens in each layer: how far it moves, how often it is held back, what is removed."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.heat_map import heat_map
from natgrad.report.history import RunHistory
from natgrad.report.layers import limited_shares, relative_changes, spectra
from natgrad.report.line_plot import LinePlot, Mark, Series
from natgrad.report.markup import Markup, element
from natgrad.report.scale import format_value
from natgrad.report.section import colored_name, figure, figures, line_key, run_color, section

__all__ = ["change_section", "spectra_section"]

SIDES = {"removed_in": ("inputs", "rank_in"), "removed_out": ("output derivatives", "rank_out")}
HIGH, LOW = 0.2, 0.05  # as in NGSGD.layer_statistics
FAR_ABOVE_HIGH = 0.3


def change_section(runs: Sequence[RunHistory]) -> Markup | None:
    """Return max-change activity and relative change per layer, one row of plots per run."""
    changes = [relative_changes(run) for run in runs]
    all_changes = [v for run in changes for values in run.values() for v in values.values()]
    rows: list[Markup] = []
    for index, run in enumerate(runs):
        shares = limited_shares(run)
        if not shares and not changes[index]:
            continue
        if len(runs) > 1:
            rows.append(element("h3", colored_name(runs, index)))
        rows.append(
            figures(_max_change(run, shares), _relative_change(run, changes[index], all_changes))
        )
    if not rows:
        return None
    return section(
        "layers",
        "Change per layer",
        "Limited: the share of minibatches whose change of a layer was cut down by max-change, "
        "the last one written beside. Relative change: how far an iteration moves a layer.",
        *rows,
    )


def _max_change(run: RunHistory, shares: dict[str, dict[int, float]]) -> Markup | None:
    if not shares:
        return None
    iterations = sorted({i for values in shares.values() for i in values})
    rows = [(name, [values.get(i) for i in iterations]) for name, values in shares.items()]
    last = [_percent(values[max(values)]) for values in shares.values()]
    title = f"{run.name}: share of minibatches limited by max-change"
    return figure(
        "Limited by max-change",
        heat_map(title, rows, iterations, "iteration", value_format=_percent, beside=last),
    )


def _relative_change(
    run: RunHistory, changes: dict[str, dict[int, float]], all_changes: list[float]
) -> Markup | None:
    if not changes:
        return None
    lines = []
    for depth, (name, values) in enumerate(changes.items()):
        points = [(float(i), value) for i, value in sorted(values.items())]
        lines.append(Series(name, points, layer_color(depth, len(changes)), "plain", name))
    positive = [value for value in all_changes if value > 0]
    limits = (min(positive), max(positive)) if positive else ()
    plot = LinePlot(
        f"{run.name}: relative change per layer",
        "iteration",
        height=220,
        log=True,
        whole_x=True,
        include=limits,
    )
    return figure("Relative change, |new \N{MINUS SIGN} old| / |old|", plot.draw(lines))


def layer_color(depth: int, num_layers: int) -> str:
    """Return a colour on the way from that of the first layer to that of the last, as CSS."""
    share = 100 * depth / max(1, num_layers - 1)
    return f"color-mix(in oklch, var(--layer-last) {share:.0f}%, var(--layer-first))"


def spectra_section(runs: Sequence[RunHistory]) -> Markup | None:
    """Return the spectra of the Fisher factors, a row per layer, all runs in each panel."""
    found = {side: [spectra(run, side) for run in runs] for side in SIDES}
    names: dict[str, None] = {}
    for index in range(len(runs)):
        for side in SIDES:
            names.update(dict.fromkeys(found[side][index]))
    if not names:
        return None
    rows = []
    for name in names:
        panels: list[Markup] = []
        advice: list[str] = []
        for side in SIDES:
            layer = [run_spectra.get(name, {}) for run_spectra in found[side]]
            panels += _panels(runs, name, side, layer)
            advice += _advice(runs, side, layer)
        heading = element("h3", name, element("small", "; ".join(advice)) if advice else None)
        rows.append(element("div", heading, figures(*panels, columns=4), class_="layer"))
    return section(
        "spectra",
        "Fisher factors",
        "By which part inputs and output derivatives are shortened in each direction that a factor "
        "tracks, as jobs report it: after the last iteration, and the greatest and least over the "
        f"run. A least value far above {HIGH:g} asks for a higher rank; many values below {LOW:g} "
        "for a lower one.",
        line_key(("plain", "greatest"), ("dashed", "least")),
        *rows,
    )


def _panels(
    runs: Sequence[RunHistory], layer: str, side: str, found: list[dict[int, list[float]]]
) -> list[Markup]:
    what = SIDES[side][0]
    by_direction, over_run = [], []
    for index, (run, by_iteration) in enumerate(zip(runs, found, strict=True)):
        if not by_iteration:
            continue
        color, last = run_color(index), by_iteration[max(by_iteration)]
        points = [(float(k), value) for k, value in enumerate(last, start=1)]
        by_direction.append(Series(f"{run.name}, {what}", points, color))
        for which, at, style in (("greatest", 0, "plain"), ("least", -1, "dashed")):
            course = [(float(i), values[at]) for i, values in sorted(by_iteration.items())]
            over_run.append(Series(f"{run.name}, {which}", course, color, style))
    return [
        _panel(f"{layer}: {what}, last iteration", f"{what}, by direction", by_direction),
        _panel(f"{layer}: {what}, over the run", f"{what}, by iteration", over_run),
    ]


def _panel(title: str, label: str, lines: list[Series]) -> Markup:
    plot = LinePlot(title, "", label, width=310, height=150, whole_x=True, include=(0.0, 1.0))
    return element("figure", plot.draw(lines, [Mark(HIGH, f"{HIGH:g}"), Mark(LOW, f"{LOW:g}")]))


def _advice(
    runs: Sequence[RunHistory], side: str, found: list[dict[int, list[float]]]
) -> list[str]:
    advice = []
    for run, by_iteration in zip(runs, found, strict=True):
        if not by_iteration:
            continue
        last = by_iteration[max(by_iteration)]
        whose = f"{run.name}: " if len(runs) > 1 else ""
        num_low = sum(value < LOW for value in last)
        if last[-1] > FAR_ABOVE_HIGH:
            advice.append(
                f"{whose}{SIDES[side][0]} end at {format_value(last[-1], 2)}: a higher "
                f"{SIDES[side][1]} than {len(last)} may help"
            )
        elif 2 * num_low > len(last):
            advice.append(
                f"{whose}{num_low} of {len(last)} {SIDES[side][0]} are below {LOW:g}: a lower "
                f"{SIDES[side][1]} will do"
            )
    return advice


def _percent(value: float) -> str:
    return f"{100 * value:.0f}%" if value == 0 or value >= 0.01 else "<1%"
