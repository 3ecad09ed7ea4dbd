"""How the last models were combined into the final one."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.heat_map import heat_map
from natgrad.report.history import Event, RunHistory
from natgrad.report.line_plot import LinePlot, Series
from natgrad.report.markup import Markup, element
from natgrad.report.scale import format_duration, format_objective
from natgrad.report.section import colored_name, figure, figures, run_color, section

__all__ = ["combination_section"]


def combination_section(runs: Sequence[RunHistory]) -> Markup | None:
    """Return the weights of the combined models per layer, for the runs that have got so far."""
    parts: list[Markup] = []
    for index, run in enumerate(runs):
        if run.combine is not None:
            if len(runs) > 1:
                parts.append(element("h3", colored_name(runs, index)))
            parts.append(element("p", _facts(run.combine), class_="facts"))
            parts.append(
                figures(
                    _weights(run, run.combine),
                    _objectives(run, run.combine, run_color(index)),
                )
            )
    if not parts:
        return None
    return section(
        "combination",
        "Combination",
        "The final model is, layer by layer, a weighted sum of the last models. Objectives are on "
        "the subset to which the weights were fitted: they say nothing about new data.",
        *parts,
    )


def _facts(event: Event) -> str:
    known = [value for value in event.get("objectives") or [] if value is not None]
    facts = [f"{len(event.get('inputs') or [])} models, method \u201c{event.get('method')}\u201d"]
    if known:
        facts.append(f"best of them {format_objective(max(known))}")
    facts.append(f"their mean {format_objective(event.get('mean_objective'))}")
    facts.append(f"combined {format_objective(event.get('objective'))}")
    facts.append(f"took {format_duration(event.get('seconds'))}")
    return ", ".join(facts) + "."


def _weights(run: RunHistory, event: Event) -> Markup | None:
    told = event.get("weights") or {}
    weights = {layer: values for layer, values in told.items() if None not in values}
    inputs = _input_names(event)
    if not weights or not inputs:
        return None
    greatest = max((abs(w) for values in weights.values() for w in values), default=1.0) or 1.0
    chart = heat_map(
        f"{run.name}: weights of the combined models per layer",
        list(weights.items()),
        inputs,
        "models of iterations",
        greatest=greatest,
        value_format=_two_digits,
        written=len(inputs) <= 12,
        beside=[f"sum {_two_digits(sum(values))}" for values in weights.values()],
    )
    return figure(f"Weights (full colour: \N{PLUS-MINUS SIGN}{_two_digits(greatest)})", chart)


def _input_names(event: Event) -> list[str]:
    """Name each input by its iteration, or the first and last of those it is the mean of."""
    names = []
    for of_input in event.get("inputs") or []:
        iterations = of_input if isinstance(of_input, list) else [of_input]
        ends = dict.fromkeys((iterations[0], iterations[-1])) if iterations else ()
        names.append("\N{EN DASH}".join(map(str, ends)))
    return names


def _objectives(run: RunHistory, event: Event, color: str) -> Markup | None:
    """Draw the objectives of the inputs, from the first to the last, beside that of the result."""
    objectives = event.get("objectives") or []
    if not objectives:
        return None
    ends = (1.0, float(len(objectives)))
    each = [(float(i), value) for i, value in enumerate(objectives, start=1)]
    lines = [Series("each of them", each, color, "plain", "each")]
    for name, style in (("mean_objective", "dashed"), ("objective", "strong")):
        label = "mean" if name == "mean_objective" else "combined"
        points = [(x, event.get(name)) for x in ends]
        lines.append(Series(label, points, color, style, label))
    plot = LinePlot(
        f"{run.name}: objectives of the combined models", "model", height=220, whole_x=True
    )
    return figure("Objectives", plot.draw(lines))


def _two_digits(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")
