"""How well the runs learn: objective, accuracy, and the learning rates and jobs behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from natgrad.report.history import RunHistory
from natgrad.report.layer_sections import layer_color
from natgrad.report.line_plot import LinePlot, Mark, Series
from natgrad.report.markup import Markup
from natgrad.report.scale import format_value, time_unit
from natgrad.report.section import figure, figures, line_key, run_color, section

__all__ = ["learning_rate_section", "objective_section"]

KINDS = {"valid": ("strong", "validation"), "train": ("dashed", "training subset")}
JOBS = ("thin", "jobs, on what they train on")
Place = Callable[[RunHistory, int], float | None]


def objective_section(runs: Sequence[RunHistory]) -> Markup:
    """Return objectives against epochs and against time, and accuracies, of all runs."""
    longest = max(run.running_seconds(run.last_time) for run in runs)
    unit, length = time_unit(longest)

    def hours(run: RunHistory, iteration: int) -> float | None:
        seconds = _seconds_at(run, iteration)
        return None if seconds is None else seconds / length

    by_epoch = LinePlot("Objective against epochs", "epochs", "objective", clip_low=True).draw(
        _objective_lines(runs, _epoch_at), _remodel_marks(runs, _epoch_at)
    )
    by_time = LinePlot(
        "Objective against time", f"{unit} of running", "objective", clip_low=True
    ).draw(_objective_lines(runs, hours), _remodel_marks(runs, hours))
    return section(
        "objective",
        "Objective",
        "Mean log-probability of the right class; 0 is perfect. Very low early values "
        "are cut off. Time is that of running: pauses between a stop and a resumption not counted.",
        None if len(runs) == 1 else line_key(*KINDS.values(), JOBS),
        figures(
            figure("Objective against epochs", by_epoch),
            figure("Objective against time", by_time),
            *_accuracy(runs, hours, unit),
        ),
    )


def _accuracy(runs: Sequence[RunHistory], hours: Place, unit: str) -> list[Markup]:
    plots = []
    for place, label, caption in (
        (_epoch_at, "epochs", "Accuracy against epochs"),
        (hours, f"{unit} of running", "Accuracy against time"),
    ):
        lines = [
            line
            for index, run in enumerate(runs)
            for line in _diagnostic_lines(runs, index, "accuracy", place, _is_labelled(run))
        ]
        if not any(line.points for line in lines):
            return []
        plot = LinePlot(caption, label, "accuracy", y_format=_percent)
        plots.append(figure(caption, plot.draw(lines)))
    return plots


def learning_rate_section(runs: Sequence[RunHistory]) -> Markup | None:
    """Return the learning rate of each job and of all together, and how much the jobs agree."""
    if not any(run.iterations for run in runs):
        return None
    plots = []
    for field, caption in (
        ("learning_rate", "Of each job"),
        ("effective_learning_rate", "Effective: of all jobs together"),
    ):
        lines = [
            Series(
                f"{run.name}, {caption.lower()}",
                _points(run, _epoch_at, {i: e.get(field) for i, e in run.iterations.items()}),
                run_color(index),
                "strong",
                run.name if len(runs) > 1 else None,
            )
            for index, run in enumerate(runs)
        ]
        plot = LinePlot(
            f"Learning rate: {caption}", "epochs", "learning rate", log=True, height=220
        )
        plots.append(figure(caption, plot.draw(lines)))
    return section(
        "learning-rate",
        "Learning rate",
        "Per sample. Averaging over N jobs divides by N what each has learned, so jobs learn N "
        "times as fast, unless outer.job_lr_power says otherwise. Where there are several jobs, "
        "the cosine between the steps of two of them, in the mean: 1 if all do the same, 0 if "
        "they have nothing in common, and averaging leaves little of their steps.",
        figures(*plots, *_agreement(runs)),
    )


def _agreement(runs: Sequence[RunHistory]) -> list[Markup]:
    """Return the mean cosines of the jobs' steps, of a single run those of each layer too."""
    lines = [
        Series(
            f"{run.name}, mean cosine",
            _points(run, _epoch_at, run.cosines()),
            run_color(index),
            "strong",
            run.name if len(runs) > 1 else None,
        )
        for index, run in enumerate(runs)
    ]
    if not any(line.points for line in lines):
        return []
    plots = [_cosine_figure("Agreement of the jobs: mean cosine of their steps", lines)]
    by_layer = runs[0].layer_cosines() if len(runs) == 1 else {}
    if by_layer:
        of_layers = [
            Series(
                name,
                _points(runs[0], _epoch_at, values),
                layer_color(depth, len(by_layer)),
                "plain",
                name,
            )
            for depth, (name, values) in enumerate(by_layer.items())
        ]
        plots.append(_cosine_figure("Agreement of the jobs, layer by layer", of_layers))
    return plots


def _cosine_figure(caption: str, lines: Sequence[Series]) -> Markup:
    plot = LinePlot(caption, "epochs", "mean cosine", height=220, include=(0.0,))
    return figure(caption, plot.draw(lines))


def _objective_lines(runs: Sequence[RunHistory], place: Place) -> list[Series]:
    lines = []
    for index, run in enumerate(runs):
        values = {i: event.get("objective") for i, event in run.iterations.items()}
        label = "jobs" if len(runs) == 1 else None if _is_labelled(run) else run.name
        name = f"{run.name}, {JOBS[1].split(',')[0]}"
        points = _points(run, place, values)
        lines.append(Series(name, points, run_color(index), JOBS[0], label))
        lines += _diagnostic_lines(runs, index, "objective", place, _is_labelled(run))
    return lines


def _diagnostic_lines(
    runs: Sequence[RunHistory], index: int, what: str, place: Place, labelled: bool
) -> list[Series]:
    run, lines = runs[index], []
    for kind, (style, meaning) in reversed(KINDS.items()):
        values = {i: (e.get(kind) or {}).get(what) for i, e in run.diagnostics.items()}
        own = run.name if kind == "valid" and labelled else None
        label = meaning if len(runs) == 1 else own
        points = _points(run, place, values)
        lines.append(Series(f"{run.name}, {meaning}", points, run_color(index), style, label))
    return lines


def _is_labelled(run: RunHistory) -> bool:
    """Whether the run has a validation line that can bear its name."""
    return any((event.get("valid") or {}) for event in run.diagnostics.values())


def _points(
    run: RunHistory, place: Place, values: Mapping[int, float | None]
) -> list[tuple[float, float | None]]:
    placed = [(place(run, iteration), value) for iteration, value in sorted(values.items())]
    return [(x, value) for x, value in placed if x is not None]


def _epoch_at(run: RunHistory, iteration: int) -> float | None:
    if iteration == 0:
        return 0.0
    event = run.iterations.get(iteration)
    return None if event is None else event["epoch"]


def _seconds_at(run: RunHistory, iteration: int) -> float | None:
    """When an iteration was complete; diagnostics come later, but tell of that moment."""
    if iteration == 0:
        return 0.0
    event = run.iterations.get(iteration)
    return None if event is None else run.running_seconds(event["time"])


def _remodel_marks(runs: Sequence[RunHistory], place: Place) -> list[Mark]:
    """Mark where the network changed, if all runs agree on it; marks of several are a thicket."""
    if len({tuple((r["iteration"], r.get("change")) for r in run.remodels) for run in runs}) != 1:
        return []
    marks = []
    for event in runs[0].remodels:
        at = place(runs[0], event["iteration"] - 1)
        if at is not None:
            marks.append(Mark(at, str(event.get("change")).replace("_", " "), vertical=True))
    return marks if len(runs) == 1 or place is _epoch_at else []


def _percent(value: float) -> str:
    return f"{format_value(100 * value)}%"


def newest_diagnostics(run: RunHistory) -> tuple[int, dict[str, dict[str, float]]] | None:
    """Return the last iteration whose model was evaluated, and what was found."""
    if not run.diagnostics:
        return None
    iteration = max(run.diagnostics)
    event = run.diagnostics[iteration]
    return iteration, {kind: event.get(kind) or {} for kind in KINDS}
