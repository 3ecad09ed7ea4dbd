"""A plot as an SVG file that needs nothing else: for documents."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.line_plot import LinePlot, Mark, Series
from natgrad.report.markup import Markup, element

__all__ = ["figure_color", "figure_file"]

# Those of the page (page.css), on white. A document's dark mode does not reach into an image.
COLORS = (
    "#0072b2", "#d55e00", "#00866a", "#b8609a", "#a86f00", "#3a93c9", "#565d68", "#7a4fbf",
)  # fmt: skip
PADDING = 8.0
STYLE = """
text { fill: #5c6470; font-size: 12px; }
text { font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
.label { fill: var(--c); font-weight: 600; }
.leader { stroke: var(--c); stroke-dasharray: 1 4; stroke-linecap: round; }
.grid { stroke: #eceef1; } .axis { stroke: #d9dce1; }
.mark { stroke: #5c6470; stroke-dasharray: 1 4; stroke-linecap: round; }
.line { fill: none; stroke: var(--c); stroke-width: 1.6; }
.line { stroke-linejoin: round; stroke-linecap: round; }
.line.strong { stroke-width: 2.4; } .line.thin { stroke-width: 1; opacity: .6; }
.line.dashed { stroke-dasharray: 5 4; } .dot { fill: var(--c); }
.range-bar { stroke: var(--c); stroke-width: 1.2; } .range-band { fill: var(--c); opacity: .15; }
"""


def figure_color(index: int) -> str:
    """Return one of eight colours that colour-blind people can tell apart."""
    return COLORS[index % len(COLORS)]


def figure_file(plot: LinePlot, series: Sequence[Series], marks: Sequence[Mark] = ()) -> str:
    """Return the plot as the text of an SVG file, on white.

    >>> line = Series("run", [(0.0, 1.0), (1.0, 2.0)], figure_color(0))
    >>> figure_file(LinePlot("Growth", "time", hover=False), [line]).startswith("<svg xmlns=")
    True
    """
    width, height = plot.width + 2 * PADDING, plot.height + 2 * PADDING
    background = element("rect", width=width, height=height, fill="#ffffff")
    placed = element(
        "svg", plot.draw(series, marks), x=PADDING, y=PADDING, width=plot.width, height=plot.height
    )
    file = element(
        "svg",
        element("style", Markup(STYLE)),
        background,
        placed,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
    )
    return f"{file}\n"
