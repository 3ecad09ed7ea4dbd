"""Line plots, as SVG: lines with their names beside them, and the values for a hovering pointer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from natgrad.report.markup import Markup, element, join
from natgrad.report.scale import Scale, format_value

__all__ = ["LinePlot", "Mark", "Series", "shortened"]

MAX_POINTS = 500
LETTER_WIDTH = 7.0  # of the page's font at 12 px, about
BOLD_LETTER_WIDTH = 8.0  # of the widest of its fonts, in which lines are named
LABEL_HEIGHT = 14.0
MAX_LABEL_LETTERS = 24
LETTERS_IN_COMMON = 6  # that are kept before a difference
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Series:
    """One line. A point without a value, or not finite, is a gap.

    style: "strong", "plain", "thin", "dashed", or "dots" for points that nothing joins
    label: what is written at the line's end
    ranges: (x, low, high), drawn as a band about the line, or as bars through dots
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    color: str
    style: str = "plain"
    label: str | None = None
    ranges: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class Mark:
    """A value to be marked by a straight line, across or (`vertical`) up the plot."""

    value: float
    text: str
    vertical: bool = False


@dataclass(frozen=True)
class LinePlot:
    """How a plot looks; `draw` puts lines into it.

    log, log_x: whether the vertical, or the horizontal, scale is logarithmic
    clip_low: leave room for all but the lowest values, which run out of the plot: for objectives
    that start far below where anything is to be seen
    whole_x: whether the horizontal values are numbers of something, with nothing between two
    hover: whether to carry the values that the page's script shows at the pointer
    """

    title: str
    x_label: str
    y_label: str = ""
    width: float = 640.0
    height: float = 300.0
    log: bool = False
    log_x: bool = False
    whole_x: bool = False
    clip_low: bool = False
    hover: bool = True
    include: tuple[float, ...] = ()
    x_format: Callable[[float], str] = format_value
    y_format: Callable[[float], str] = format_value

    def draw(self, series: Sequence[Series], marks: Sequence[Mark] = ()) -> Markup:
        """Return the plot as an SVG element."""
        labels = _short_labels(series)
        right = max([10.0, *(16.0 + BOLD_LETTER_WIDTH * len(text) for text in labels.values())])
        left, top, bottom = 56.0, 24.0 if self.y_label else 10.0, 40.0 if self.x_label else 22.0
        xs = [x for line in series for x, y in line.points if y is not None]
        margin = 0.02 if any(line.style == "dots" for line in series) else 0.0
        x = Scale.around(xs, left, self.width - right, log=self.log_x, margin=margin)
        y = self._vertical_scale(series, self.height - bottom, top)
        lines = [*(_drawn_ranges(line, x, y) for line in series),
                 *(_drawn(line, x, y) for line in series)]  # fmt: skip
        return element(
            "svg",
            element("title", self.title),
            self._axes(x, y),
            *_drawn_marks(marks, x, y),
            _clipped(lines, left - 3, top - 3, x.end - left + 6, y.start - top + 6),
            _end_labels(series, labels, x, y),
            viewBox=f"0 0 {self.width:g} {self.height:g}",
            role="img",
            class_="plot",
            data_lines=self._hover_data(series, x, y) if self.hover else None,
            data_frame=json.dumps([round(v, 1) for v in (left, top, x.end, y.start)])
            if self.hover
            else None,
        )

    def _vertical_scale(self, series: Sequence[Series], start: float, end: float) -> Scale:
        points = [y for line in series for _, y in line.points if y is not None]
        ends = [end for line in series for _, *both in line.ranges for end in both]
        values = sorted(y for y in [*points, *ends] if math.isfinite(y))
        if self.clip_low and len(values) >= 20:
            low, middle, high = values[0], values[len(values) // 4], values[-1]
            floor = middle - 1.5 * (high - middle)
            values = [v for v in values if v >= floor] if low < floor else values
        return Scale.around(values, start, end, log=self.log, include=self.include)

    def _axes(self, x: Scale, y: Scale) -> Markup:
        parts = []
        for value in y.ticks(max(2, int((y.start - y.end) / 45))):
            at = y(value)
            parts.append(element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
            text = self.y_format(value)
            parts.append(element("text", text, x=x.start - 8, y=at + 4, class_="tick end"))
        num_ticks = max(4, int((x.end - x.start) / 75))
        for value in x.ticks(num_ticks):
            if self.whole_x and value != int(value):
                continue
            text = self.x_format(value)
            parts.append(
                element("line", x1=x(value), x2=x(value), y1=y.start, y2=y.start + 4, class_="axis")
            )
            parts.append(element("text", text, x=x(value), y=y.start + 17, class_="tick middle"))
        parts.append(element("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis"))
        if self.x_label:
            middle = (x.start + x.end) / 2
            parts.append(
                element("text", self.x_label, x=middle, y=y.start + 34, class_="name middle")
            )
        if self.y_label:
            parts.append(element("text", self.y_label, x=4.0, y=12.0, class_="name"))
        return join(*parts)

    def _hover_data(self, series: Sequence[Series], x: Scale, y: Scale) -> str:
        data = []
        for line in series:
            points = [
                [round(x(px), 1), round(y(py), 1), self.x_format(px), self.y_format(py)]
                for px, py in _thinned(line.points)
                if py is not None and x.shows(px) and y.shows(py)
            ]
            data.append({"name": line.name, "color": line.color, "points": points})
        return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


def _clipped(
    lines: list[Markup | None], left: float, top: float, width: float, height: float
) -> Markup:
    """Cut off what is outside: an inner svg does so, and unlike a clipPath needs no id."""
    return element(
        "svg",
        *lines,
        x=left,
        y=top,
        width=width,
        height=height,
        viewBox=f"{left:g} {top:g} {width:g} {height:g}",
    )


def _drawn(line: Series, x: Scale, y: Scale) -> Markup:
    pieces: list[list[str]] = [[]]
    for px, py in _thinned(line.points):
        if py is None or not x.shows(px) or not y.shows(py):
            pieces.append([])
        else:
            pieces[-1].append(f"{x(px):.1f},{y(py):.1f}")
            if line.style == "dots":
                pieces.append([])
    drawn = [
        element("polyline", points=" ".join(piece), class_=f"line {line.style}")
        if len(piece) > 1
        else _dot(piece[0])
        for piece in pieces
        if piece
    ]
    return element("g", element("title", line.name), *drawn, style=f"--c:{line.color}")


def _drawn_ranges(line: Series, x: Scale, y: Scale) -> Markup | None:
    """Draw what reaches from low to high: bars through dots, else a band."""
    ranges = [r for r in line.ranges if x.shows(r[0]) and y.shows(r[1]) and y.shows(r[2])]
    if not ranges:
        return None
    if line.style == "dots":
        bars = [
            element("line", x1=x(px), x2=x(px), y1=y(low), y2=y(high), class_="range-bar")
            for px, low, high in ranges
        ]
        return element("g", *bars, style=f"--c:{line.color}")
    there = [f"{x(px):.1f},{y(high):.1f}" for px, _, high in ranges]
    back = [f"{x(px):.1f},{y(low):.1f}" for px, low, _ in reversed(ranges)]
    band = element("polygon", points=" ".join([*there, *back]), class_="range-band")
    return element("g", band, style=f"--c:{line.color}")


def _dot(place: str) -> Markup:
    x, y = place.split(",")
    return element("circle", cx=x, cy=y, r=2.5, class_="dot")


def _thinned(
    points: Sequence[tuple[float, float | None]],
) -> Sequence[tuple[float, float | None]]:
    """Keep the least and the greatest of every few points, if there are more than can be seen."""
    if len(points) <= MAX_POINTS:
        return points
    size = math.ceil(2 * len(points) / MAX_POINTS)
    kept: list[tuple[float, float | None]] = []
    for begin in range(0, len(points), size):
        few = [p for p in points[begin : begin + size] if p[1] is not None]
        extremes = {id(p): p for p in (min(few, key=_height), max(few, key=_height))} if few else {}
        kept += sorted(extremes.values()) if few else [(points[begin][0], None)]
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _height(point: tuple[float, float | None]) -> float:
    return point[1] if point[1] is not None else math.nan


def _drawn_marks(marks: Sequence[Mark], x: Scale, y: Scale) -> list[Markup]:
    drawn, free_from = [], x.start
    for mark in sorted(marks, key=lambda mark: mark.value):
        if mark.vertical:
            at = x(mark.value)
            line = element("line", x1=at, x2=at, y1=y.start, y2=y.end, class_="mark")
            name = None
            if at >= free_from:  # names that would lie over one another are left to the pointer
                name = element("text", mark.text, x=at + 3, y=y.end + 9, class_="mark-name")
                free_from = at + 8 + LETTER_WIDTH * len(mark.text)
            drawn.append(element("g", element("title", mark.text), line, name))
        elif y.low <= mark.value <= y.high:
            at = y(mark.value)
            line = element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="mark")
            drawn.append(element("g", element("title", mark.text), line))
    return drawn


def _end_labels(series: Sequence[Series], written: Mapping[str, str], x: Scale, y: Scale) -> Markup:
    """Write names at the ends of lines, moved apart where they would overlap."""
    ends = []
    for line in series:
        seen = [(px, v) for px, v in line.points if v is not None and x.shows(px) and y.shows(v)]
        if line.label and seen:
            ends.append((x(seen[-1][0]), min(max(y(seen[-1][1]), y.end), y.start), line))
    heights = spread([height for _, height, _ in ends], LABEL_HEIGHT, y.end, y.start)
    labels = []
    for to, (at, height, line) in zip(heights, ends, strict=True):
        text = element(
            "text",
            written[line.label or ""],
            element("title", line.label),
            x=x.end + 10,
            y=to + 4,
            class_="label",
        )
        leader = None
        if x.end - at > 8 or abs(to - height) > 4:  # the name is not where the line ends
            leader = element("line", x1=at, x2=x.end + 8, y1=height, y2=to, class_="leader")
        labels.append(element("g", leader, text, style=f"--c:{line.color}"))
    return join(*labels)


def _short_labels(series: Sequence[Series]) -> dict[str, str]:
    """Return how each label is written: whole or its end, or from where it differs from others."""
    labels = list(dict.fromkeys(line.label for line in series if line.label))
    short = {label: shortened(label, MAX_LABEL_LETTERS) for label in labels}
    if len(set(short.values())) < len(labels):
        long = [label for label in labels if len(label) > MAX_LABEL_LETTERS]
        same = takewhile(lambda letters: len(set(letters)) == 1, zip(*long, strict=False))
        begin = max(0, len(list(same)) - LETTERS_IN_COMMON)
        for label in long:
            part = label[begin : begin + MAX_LABEL_LETTERS - 2]
            short[label] = f"{ELLIPSIS}{part}{ELLIPSIS}"
    return short


def shortened(text: str, num_letters: int) -> str:
    """Return a text, or if it has more letters than that, its end.

    >>> shortened("output", 6), shortened("hidden.0.linear", 9)
    ('output', '\N{HORIZONTAL ELLIPSIS}0.linear')
    """
    return text if len(text) <= num_letters else ELLIPSIS + text[1 - num_letters :]


def spread(wanted: Iterable[float], distance: float, low: float, high: float) -> list[float]:
    """Return positions near the wanted ones, in their order, that are a distance apart.

    Those that would be too close form a block around their mean; blocks are pushed inside
    [low, high], which only fails to be kept where there are too many.

    >>> spread([50.0, 52.0, 90.0], 10.0, 0.0, 100.0)
    [46.0, 56.0, 90.0]
    """
    wanted = list(wanted)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[float, list[int]]] = []  # the mean wanted position, and whose
    for i in order:
        blocks.append((wanted[i], [i]))
        while len(blocks) > 1:
            (above, first), (below, second) = blocks[-2:]
            if below - above >= distance * (len(first) + len(second)) / 2:
                break
            members = first + second
            half = distance * (len(members) - 1) / 2
            mean = sum(wanted[m] for m in members) / len(members)
            blocks[-2:] = [(max(low + half, min(high - half, mean)), members)]
    places = [0.0] * len(wanted)
    for middle, members in blocks:
        for rank, member in enumerate(members):
            places[member] = middle + distance * (rank - (len(members) - 1) / 2)
    return places
