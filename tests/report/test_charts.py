"""The charts show the values they were given, and nothing that is not there."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from natgrad.report.heat_map import LETTER_WIDTH, MAX_COLUMNS, heat_map
from natgrad.report.line_plot import MAX_LABEL_LETTERS, MAX_POINTS, LinePlot, Mark, Series
from natgrad.report.markup import Markup, element, join
from natgrad.report.strip_chart import MAX_BARS, shown_timings, strip_chart
from natgrad.report.timing import Bar, IterationTiming, Loss

HOSTILE = '<script>alert("x")</script>&'


def of_class(svg: str, name: str) -> list[ET.Element]:
    return [e for e in ET.fromstring(svg).iter() if name in (e.get("class") or "").split()]


def drawn_points(svg: str) -> list[list[tuple[float, float]]]:
    lines = [e for e in of_class(svg, "line") if e.tag == "polyline"]
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in (e.get("points") or "").split())]
        for e in lines
    ]


def value_at(svg: str, height: float) -> float:
    """Read a value off the vertical axis, by its own ticks."""
    ticks = [
        (float(e.get("y") or 0) - 4, float((e.text or "").replace("\N{MINUS SIGN}", "-")))
        for e in of_class(svg, "end")
        if "tick" in (e.get("class") or "")
    ]
    (y0, v0), (y1, v1) = ticks[0], ticks[-1]
    return v0 + (height - y0) / (y1 - y0) * (v1 - v0)


def test_values_can_be_read_off_the_axis() -> None:
    values = [-3.0, -1.7, -1.25, -1.3]
    line = Series("run", [(float(i), v) for i, v in enumerate(values)], "red")
    svg = LinePlot("t", "x", "y").draw([line])
    (points,) = drawn_points(svg)
    assert [value_at(svg, y) for _, y in points] == pytest.approx(values, abs=0.01)
    steps = [after[0] - before[0] for before, after in pairwise(points)]
    assert max(steps) == pytest.approx(min(steps), abs=0.11)


def test_a_missing_value_is_a_gap_and_a_lone_one_a_dot() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.5), (4.0, float("nan")), (5.0, 1.0)]
    svg = LinePlot("t", "x").draw([Series("run", points, "red")])
    assert [len(piece) for piece in drawn_points(svg)] == [2]
    assert len(of_class(svg, "dot")) == 2


def test_a_plot_of_nothing_is_still_a_plot() -> None:
    for log in (False, True):
        svg = LinePlot("t", "x", log=log).draw([Series("run", [], "red", label="run")])
        assert drawn_points(svg) == []
        assert of_class(svg, "tick")


def test_a_single_point_is_shown() -> None:
    svg = LinePlot("t", "x", log=True).draw([Series("run", [(3.0, 0.1)], "red")])
    assert len(of_class(svg, "dot")) == 1


def test_many_points_are_thinned_but_keep_their_extremes() -> None:
    points = [(float(i), 1.0 if i != 4321 else 9.0) for i in range(10_000)]
    svg = LinePlot("t", "x", "y").draw([Series("run", points, "red")])
    (drawn,) = drawn_points(svg)
    assert len(drawn) <= MAX_POINTS + 1
    assert value_at(svg, min(y for _, y in drawn)) == pytest.approx(9.0, abs=0.05)


def test_low_beginnings_leave_room_for_the_rest() -> None:
    values = [-1000.0, *(-2.0 + 0.02 * i for i in range(40))]
    line = Series("run", [(float(i), v) for i, v in enumerate(values)], "red")
    (clipped,) = drawn_points(LinePlot("t", "x", clip_low=True).draw([line]))
    (whole,) = drawn_points(LinePlot("t", "x").draw([line]))
    assert clipped[1][1] - clipped[-1][1] > 150  # pixels
    assert whole[1][1] - whole[-1][1] < 1


def test_hover_data_has_all_values() -> None:
    line = Series("run", [(0.0, 1.0), (1.0, None), (2.0, 3.0)], "red")
    root = ET.fromstring(LinePlot("t", "x").draw([line]))
    (data,) = json.loads(root.get("data-lines") or "")
    assert [(point[2], point[3]) for point in data["points"]] == [("0", "1"), ("2", "3")]


def test_marks_outside_of_the_plot_are_left_out() -> None:
    line = Series("run", [(0.0, 1.0), (1.0, 2.0)], "red")
    svg = LinePlot("t", "x").draw([line], [Mark(1.5, "inside"), Mark(99.0, "outside")])
    assert len(of_class(svg, "mark")) == 1


def test_names_of_marks_do_not_lie_over_one_another() -> None:
    line = Series("run", [(0.0, 1.0), (100.0, 2.0)], "red")
    marks = [Mark(value, "grow", vertical=True) for value in (1.0, 2.0, 50.0)]
    svg = LinePlot("t", "x").draw([line], marks)
    assert (len(of_class(svg, "mark")), len(of_class(svg, "mark-name"))) == (3, 2)


def test_numbers_of_iterations_are_whole_on_the_axis() -> None:
    line = Series("run", [(1.0, 1.0), (2.0, 2.0)], "red")
    svg = LinePlot("t", "iteration", whole_x=True).draw([line])
    ticks = [e.text for e in of_class(svg, "tick") if "middle" in (e.get("class") or "")]
    assert ticks == ["1", "2"]


@pytest.mark.parametrize("start", ["a-run-of-a-quite-long-series-", ""])
def test_names_that_end_the_same_are_cut_where_they_differ(start: str) -> None:
    names = [f"{start}lr{rate}-epochs20-hidden3500-sgd" for rate in ("0.01", "0.02")]
    lines = [Series(name, [(0.0, 1.0)], "red", label=name) for name in (*names, "plain")]
    svg = LinePlot("t", "x").draw(lines)
    written = {e.text for e in of_class(svg, "label")}
    assert len(written) == 3
    assert all(len(text or "") <= MAX_LABEL_LETTERS for text in written)


def test_long_names_of_a_heat_map_stay_inside() -> None:
    name = "encoder." * 12
    svg = heat_map("t", [(name, [1.0])], [1], "iteration")
    (text,) = of_class(svg, "end")
    assert float(text.get("x") or 0) > LETTER_WIDTH * len(text.text or "")
    assert name in svg  # for the pointer


def test_everything_is_escaped() -> None:
    assert element("p", HOSTILE, title=HOSTILE).count("<") == 2
    assert join("<", Markup("<br>")) == "&lt;<br>"
    line = Series(HOSTILE, [(0.0, 1.0), (1.0, 2.0)], HOSTILE, label=HOSTILE)
    for svg in (
        LinePlot(HOSTILE, HOSTILE, HOSTILE).draw([line], [Mark(1.5, HOSTILE)]),
        heat_map(HOSTILE, [(HOSTILE, [1.0])], [1], HOSTILE),
        strip_chart(HOSTILE, [timing(1, [Bar(0, 0.0, 1.0, "slow", 1, HOSTILE)])]),
    ):
        assert "script" not in {e.tag for e in ET.fromstring(svg).iter()}


def test_cells_of_a_heat_map_are_as_deep_as_their_values() -> None:
    svg = heat_map("t", [("a", [0.0, 0.5, None]), ("b", [1.0, -1.0, 0.25])], [1, 2, 3], "iteration")
    cells = of_class(svg, "cell")
    depth = [float(cell.get("fill-opacity") or 0) for cell in cells]
    assert len(cells) == 5  # where there is no value, there is no cell
    assert depth[0] < depth[4] < depth[1] < depth[2] == depth[3]
    assert [cell.get("class") for cell in cells].count("cell negative") == 1


def test_many_columns_of_a_heat_map_are_put_together() -> None:
    values = [float(i % 2) for i in range(1000)]
    svg = heat_map("t", [("a", values)], list(range(1, 1001)), "iteration")
    cells = of_class(svg, "cell")
    assert len(cells) <= MAX_COLUMNS
    titles = [cell.findtext("title") or "" for cell in cells]
    assert titles[0] == "a, iteration 1 to 11: 0.455"


def timing(iteration: int, bars: list[Bar], losses: list[Loss] | None = None) -> IterationTiming:
    begin, end = min(bar.begin for bar in bars), max(bar.end for bar in bars)
    return IterationTiming(iteration, begin, end + 1.0, 0.5, bars, losses or [])


def test_strip_has_a_bar_per_job_and_marks_what_went_wrong() -> None:
    bars = [
        Bar(0, 0.0, 10.0, "usual", 1, "first"),
        Bar(1, 0.0, 20.0, "slow", 1, "second"),
        Bar(2, 4.0, 12.0, "left-out", 2, "third"),
    ]
    svg = strip_chart("t", [timing(1, bars, [Loss(2, 3.0, "lost")])])
    drawn = of_class(svg, "bar")
    widths = [float(bar.get("width") or 0) for bar in drawn]
    assert widths[1] / widths[0] == pytest.approx(2.0, rel=0.01)
    assert [bar.findtext("title") for bar in drawn] == ["first", "second", "third"]
    assert [len(of_class(svg, name)) for name in ("slow", "left-out", "again", "lost")] == [1] * 4


def test_strip_of_a_long_run_shows_its_end() -> None:
    timings = [
        timing(i, [Bar(job, 10.0 * i, 10.0 * i + 9, "usual", 1, "") for job in range(40)])
        for i in range(1, 1001)
    ]
    shown = shown_timings(timings)
    assert shown[-1].iteration == 1000
    assert sum(len(t.bars) for t in shown) == MAX_BARS
