"""Where the time went: the strip of jobs, stragglers and throughput."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.history import RunHistory
from natgrad.report.line_plot import LinePlot, Series
from natgrad.report.markup import Markup, element
from natgrad.report.scale import format_count, time_unit
from natgrad.report.section import colored_name, figure, figures, run_color, section
from natgrad.report.strip_chart import shown_timings, strip_chart
from natgrad.report.timing import iteration_timings, waiting_share

__all__ = ["job_section"]

KEY = (
    ("usual", "at work"),
    ("slow", "straggler"),
    ("again", "run again"),
    ("left-out", "left out"),
    ("average", "averaging"),
    ("place", "waiting"),
)


def job_section(runs: Sequence[RunHistory]) -> Markup | None:
    """Return a strip of jobs per run, then throughput and job times of all runs."""
    strips: list[Markup] = []
    for index, run in enumerate(runs):
        timings = iteration_timings(run)
        if not timings:
            continue
        shown = shown_timings(timings)
        if len(runs) > 1:
            strips.append(element("h3", colored_name(runs, index)))
        strips.append(element("p", _facts(run, len(timings), len(shown)), class_="facts"))
        chart = strip_chart(f"{run.name}: jobs over time", shown)
        strips.append(element("div", chart, class_="scroll", tabindex=0))
    if not strips:
        return None
    return section(
        "jobs",
        "Jobs",
        "A lane per job, a bar while it was at work. A job is a straggler if it took more than 1.5 "
        "times its iteration's median; a diamond is an attempt that was lost. Between iterations, "
        "without a lane, the network was changed, or work was lost with a stop.",
        _bar_key(),
        *strips,
        figures(figure("Throughput", _throughput(runs)), figure("Time of jobs", _job_times(runs))),
    )


def _facts(run: RunHistory, num_iterations: int, num_shown: int) -> str:
    waiting = waiting_share(run)
    bars = [bar for timing in iteration_timings(run) for bar in timing.bars]
    num_slow = sum(bar.kind == "slow" for bar in bars)
    num_retries = sum(map(len, run.retries.values()))
    num_left_out = sum(bar.kind == "left-out" for bar in bars)
    facts = [
        f"{len(bars)} jobs in {num_iterations} iterations",
        f"{num_slow} straggler{'' if num_slow == 1 else 's'}",
        f"{num_retries} lost and run again",
        f"{num_left_out} left out",
    ]
    if waiting is not None:
        facts.append(f"{100 * waiting:.0f}% of the places' time was waiting or averaging")
    if num_shown < num_iterations:
        facts.append(f"the last {num_shown} iterations are shown")
    return ", ".join(facts) + "."


def _bar_key() -> Markup:
    items = [
        element(
            "span",
            element(
                "svg",
                element("rect", x=0, y=0, width=18, height=12, rx=1.5, class_=_key_class(kind)),
                viewBox="0 0 18 12",
                class_="sample",
                aria_hidden="true",
            ),
            meaning,
        )
        for kind, meaning in KEY
    ]
    return element("p", *items, class_="key")


def _key_class(kind: str) -> str:
    if kind in ("average", "place"):
        return kind
    return "bar usual again" if kind == "again" else f"bar {kind}"


def _throughput(runs: Sequence[RunHistory]) -> Markup:
    lines = []
    for index, run in enumerate(runs):
        points = [(float(i), e.get("samples_per_second")) for i, e in run.iterations.items()]
        label = run.name if len(runs) > 1 else None
        lines.append(Series(f"{run.name}, samples/s", points, run_color(index), "plain", label))
    plot = LinePlot(
        "Throughput by iteration",
        "iteration",
        "samples per second",
        height=220,
        whole_x=True,
        include=(0.0,),
        y_format=format_count,
    )
    return plot.draw(lines)


def _job_times(runs: Sequence[RunHistory]) -> Markup:
    longest = max(t.slowest_seconds for run in runs for t in iteration_timings(run))
    unit, length = time_unit(longest)
    lines = []
    for index, run in enumerate(runs):
        timings = iteration_timings(run)
        slowest = [(float(t.iteration), t.slowest_seconds / length) for t in timings]
        median = [(float(t.iteration), t.median_seconds / length) for t in timings]
        alone = len(runs) == 1
        color = run_color(index)
        lines.append(
            Series(f"{run.name}, slowest", slowest, color, "thin", "slowest" if alone else None)
        )
        label = "median" if alone else run.name
        lines.append(Series(f"{run.name}, median", median, color, "strong", label))
    plot = LinePlot(
        "Median and slowest job by iteration",
        "iteration",
        unit + ("" if len(runs) == 1 else ": the median job, and thin the slowest"),
        height=220,
        whole_x=True,
        include=(0.0,),
    )
    return plot.draw(lines)
