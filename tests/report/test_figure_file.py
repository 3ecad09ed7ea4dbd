"""Plots as files: logarithmic axes, ranges, dots, and nothing that needs a page."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET

import pytest

from natgrad.report.figure_file import figure_color, figure_file
from natgrad.report.line_plot import LinePlot, Mark, Series

SVG = "{http://www.w3.org/2000/svg}"


def elements(svg: str, tag: str, class_: str) -> list[ET.Element]:
    found = ET.fromstring(svg).iter()
    return [e for e in found if e.tag.removeprefix(SVG) == tag and class_ in classes(e)]


def classes(e: ET.Element) -> list[str]:
    return (e.get("class") or "").split()


def places(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_file_carries_its_style_and_no_values_for_a_page() -> None:
    line = Series("run", [(0.0, 1.0), (1.0, 2.0)], figure_color(0), label="run")
    svg = figure_file(LinePlot("t", "x", "y", hover=False), [line], [Mark(1.5, "half")])
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}style") is not None
    assert "data-lines" not in svg
    assert "var(--run" not in svg
    assert elements(svg, "text", "label")[0].text == "run"
    hovering = LinePlot("t", "x").draw([line])
    assert len(json.loads(ET.fromstring(hovering).get("data-lines") or "")) == 1


@pytest.mark.parametrize("log_x", [False, True])
def test_horizontal_scale_is_even_in_what_it_says(log_x: bool) -> None:
    xs = [1.0, 10.0, 100.0, 1000.0]
    line = Series("run", [(x, 1.0 + i) for i, x in enumerate(xs)], "red")
    svg = LinePlot("t", "x", log_x=log_x).draw([line])
    ((points,),) = [[places(e.get("points") or "") for e in elements(svg, "polyline", "line")]]
    found = [x for x, _ in points]
    inside = [math.log(x) if log_x else x for x in xs]
    share = [(x - found[0]) / (found[-1] - found[0]) for x in found]
    expected = [(x - inside[0]) / (inside[-1] - inside[0]) for x in inside]
    assert share == pytest.approx(expected, abs=2e-3)


def test_points_without_a_place_on_a_logarithmic_axis_are_gaps() -> None:
    points = [(0.0, 1.0), (1.0, 1.0), (10.0, 0.0), (100.0, 2.0), (1000.0, 3.0)]
    svg = LinePlot("t", "x", log=True, log_x=True).draw([Series("run", points, "red", label="r")])
    assert len(elements(svg, "circle", "dot")) == 1
    assert [len(places(e.get("points") or "")) for e in elements(svg, "polyline", "line")] == [2]


def test_dots_are_not_joined_and_have_bars() -> None:
    line = Series("run", [(1.0, 2.0), (2.0, 3.0)], "red", "dots", ranges=[(1.0, 1.5, 2.5)])
    svg = LinePlot("t", "x").draw([line])
    assert len(elements(svg, "circle", "dot")) == 2
    assert not elements(svg, "polyline", "line")
    (bar,) = elements(svg, "line", "range-bar")
    dot = elements(svg, "circle", "dot")[0]
    top, bottom = sorted(float(bar.get(key) or 0) for key in ("y1", "y2"))
    assert top < float(dot.get("cy") or 0) < bottom
    assert float(bar.get("x1") or 0) == pytest.approx(float(dot.get("cx") or 0), abs=0.06)


def test_ranges_of_a_line_are_a_band_that_is_within_the_plot() -> None:
    ranges = [(0.0, 0.5, 9.0), (1.0, 1.0, 4.0)]
    svg = LinePlot("t", "x").draw([Series("run", [(0.0, 2.0), (1.0, 2.0)], "red", ranges=ranges)])
    (band,) = elements(svg, "polygon", "range-band")
    corners = places(band.get("points") or "")
    assert len(corners) == 4
    heights = [y for _, y in corners]
    assert min(heights) > 0
    assert max(heights) < 300
    assert heights.index(min(heights)) == 0  # 9.0, the greatest, is highest


def test_ranges_without_a_place_are_left_out() -> None:
    line = Series("run", [(1.0, 2.0)], "red", ranges=[(1.0, 0.0, 4.0)])
    assert not elements(LinePlot("t", "x", log=True).draw([line]), "polygon", "range-band")
