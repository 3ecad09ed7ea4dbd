"""The strip of jobs, as SVG: a lane per job, time to the right, a bar where a job was at work."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.markup import Markup, element, join
from natgrad.report.scale import Scale, format_duration, format_value, time_unit
from natgrad.report.timing import Bar, IterationTiming, Loss

__all__ = ["shown_timings", "strip_chart"]

WIDTH = 1300.0
LEFT, TOP = 56.0, 20.0
MAX_ITERATIONS, MAX_BARS = 120, 2400


def shown_timings(timings: Sequence[IterationTiming]) -> list[IterationTiming]:
    """Return the last iterations, as many as can be told apart on a strip."""
    shown: list[IterationTiming] = []
    num_bars = 0
    for timing in reversed(timings[-MAX_ITERATIONS:]):
        num_bars += len(timing.bars)
        if shown and num_bars > MAX_BARS:
            break
        shown.insert(0, timing)
    return shown


def strip_chart(title: str, timings: Sequence[IterationTiming]) -> Markup:
    """Return the strip: what is not covered by a bar, in an iteration's lane, was waiting."""
    num_lanes = 1 + max(bar.job for timing in timings for bar in timing.bars)
    lane = 18.0 if num_lanes <= 8 else 11.0 if num_lanes <= 20 else 6.0
    end = max(max([timing.end or 0.0, *(bar.end for bar in timing.bars)]) for timing in timings)
    unit, length = time_unit(end)
    x = Scale(timings[0].begin / length, end / length, LEFT, WIDTH - 10)
    bottom = TOP + lane * num_lanes
    parts = [_iteration(timing, x, length, lane, end) for timing in timings]
    parts += [_iteration_name(timing, x, length) for timing in _named(timings, x, length)]
    for value in x.ticks(10):
        text = format_value(value, 4)
        parts.append(element("text", text, x=x(value), y=bottom + 16, class_="tick middle"))
    parts.append(_lane_names(num_lanes, lane))
    middle = (x.start + x.end) / 2
    label = f"{unit} of running; numbers above: iterations"
    parts.append(element("text", label, x=middle, y=bottom + 34, class_="name middle"))
    return element(
        "svg",
        element("title", title),
        *parts,
        viewBox=f"0 0 {WIDTH:g} {bottom + 40:g}",
        role="img",
        class_="plot wide",
    )


def _iteration(timing: IterationTiming, x: Scale, unit: float, lane: float, last: float) -> Markup:
    """Draw the places of an iteration's jobs, the jobs on them, and the averaging after."""
    begin, end = x(timing.begin / unit), x((last if timing.end is None else timing.end) / unit)
    height = lane * len(timing.bars)
    parts = [
        element("rect", x=begin, y=TOP, width=max(0.3, end - begin), height=height, class_="place"),
        element("line", x1=begin, x2=begin, y1=TOP - 4, y2=TOP + height, class_="boundary"),
    ]
    if timing.end is not None and timing.average_seconds:
        start = x((timing.end - timing.average_seconds) / unit)
        hover = element("title", f"averaging: {format_duration(timing.average_seconds)}")
        parts.append(
            element(
                "rect", hover, x=start, y=TOP, width=end - start, height=height, class_="average"
            )
        )
    parts += [_bar(bar, x, unit, lane) for bar in timing.bars]
    parts += [_loss(loss, x, unit, lane) for loss in timing.losses]
    return join(*parts)


def _bar(bar: Bar, x: Scale, unit: float, lane: float) -> Markup:
    begin, end = x(bar.begin / unit), x(bar.end / unit)
    gap = 1.0 if lane < 10 else 2.0
    top = TOP + lane * bar.job + gap
    rect = element(
        "rect",
        element("title", bar.hover),
        x=begin,
        y=top,
        width=max(0.6, end - begin - 0.5),
        height=lane - 2 * gap,
        rx=1.5 if end - begin > 6 else 0.0,
        class_=f"bar {bar.kind}" + (" again" if bar.attempt > 1 else ""),
    )
    if bar.kind != "left-out":
        return rect
    reach = min(4.0, lane / 2 - gap, (end - begin) / 2)
    cx, cy = (begin + end) / 2, top + lane / 2 - gap
    cross = f"M{cx - reach:.1f} {cy - reach:.1f}l{2 * reach:.1f} {2 * reach:.1f}"
    cross += f"m0 {-2 * reach:.1f}l{-2 * reach:.1f} {2 * reach:.1f}"
    return join(rect, element("path", d=cross, class_="cross"))


def _loss(loss: Loss, x: Scale, unit: float, lane: float) -> Markup:
    at, top = x(loss.time / unit), TOP + lane * loss.job
    half = min(5.0, lane / 2 - 1)
    shape = f"M{at:.1f} {top + 1:.1f}l{half:.1f} {half:.1f}l{-half:.1f} {half:.1f}"
    shape += f"l{-half:.1f} {-half:.1f}z"
    return element("path", element("title", loss.hover), d=shape, class_="lost")


def _named(timings: Sequence[IterationTiming], x: Scale, unit: float) -> list[IterationTiming]:
    """Choose iterations whose numbers do not touch one another."""
    named: list[IterationTiming] = []
    for timing in timings:
        if not named or x(timing.begin / unit) - x(named[-1].begin / unit) > 26:
            named.append(timing)
    return named


def _iteration_name(timing: IterationTiming, x: Scale, unit: float) -> Markup:
    at = x(timing.begin / unit)
    return element("text", str(timing.iteration), x=at + 2, y=TOP - 6, class_="tick")


def _lane_names(num_lanes: int, lane: float) -> Markup:
    every = 1 if lane >= 14 else 4
    return join(
        *(
            element(
                "text",
                f"job {job}",
                x=LEFT - 8,
                y=TOP + lane * (job + 0.5) + 4,
                class_="tick end",
            )
            for job in range(0, num_lanes, every)
        )
    )
