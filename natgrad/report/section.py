"""What all sections of the page share: a heading, how to read it, figures side by side."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.report.history import RunHistory
from natgrad.report.markup import Markup, element

__all__ = ["colored_name", "figure", "figures", "line_key", "run_color", "section"]

NUM_COLORS = 8


def run_color(index: int) -> str:
    """Return the colour of a run, as CSS: the page's palette has light and dark variants."""
    return f"var(--run-{index % NUM_COLORS})"


def section(anchor: str, heading: str, lede: str, *content: str | None) -> Markup:
    """Return a section; the lede is one or two sentences on how to read what follows."""
    return element(
        "section",
        element("h2", heading),
        element("p", lede, class_="lede") if lede else None,
        *content,
        id=anchor,
    )


def figures(*items: Markup | None, columns: int = 2) -> Markup:
    """Return figures side by side where the page is wide enough."""
    return element("div", *items, class_=f"figures columns-{columns}")


def figure(caption: str | None, plot: Markup) -> Markup:
    """Return a plot under its caption."""
    return element("figure", element("figcaption", caption) if caption else None, plot)


def colored_name(runs: Sequence[RunHistory], index: int) -> Markup:
    """Return a run's name with a spot of its colour."""
    spot = element("span", class_="spot", style=f"background:{run_color(index)}")
    return element("span", spot, runs[index].name, class_="run-name")


def line_key(*entries: tuple[str, str]) -> Markup:
    """Return what the styles of lines mean: (style, meaning)."""
    items = [
        element(
            "span",
            element(
                "svg",
                element("line", x1=0, x2=26, y1=5, y2=5, class_=f"line {style}"),
                viewBox="0 0 26 10",
                class_="sample",
                aria_hidden="true",
            ),
            meaning,
        )
        for style, meaning in entries
    ]
    return element("p", *items, class_="key")
