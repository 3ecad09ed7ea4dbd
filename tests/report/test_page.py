from __future__ import annotations

import datetime
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from natgrad.report import read_run, read_runs, render, write_report
from natgrad.report.page import SECTIONS
from tests.report.made_runs import MadeRun
from tests.report.test_history import start, write_events

ANCHORS = [anchor for anchor, _, _ in SECTIONS]


class Page(HTMLParser):
    """Reads a page: text, ids, tags, and whether every tag that opens is closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.pieces: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag.lower()

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.pieces.append(data)


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    where = tmp_path_factory.mktemp("runs")
    return [
        MadeRun(seed=1).write(where / "online"),
        MadeRun(seed=2, method="none", resume_at=9, final_objective=-1.5).write(where / "plain"),
        MadeRun(seed=3, num_jobs=(1, 1), stop_after=10).write(where / "going"),
    ]


def page_of(run: MadeRun, path: Path, now: datetime.datetime) -> Page:
    return Page(render([read_run(run.write(path))], now))


def test_a_complete_run_has_all_sections(tmp_path: Path, now: datetime.datetime) -> None:
    page = page_of(MadeRun(), tmp_path / "run", now)
    assert page.ids == [*ANCHORS, "warnings"]
    for text in ("24 of 24", "as of 2025-06-15 12:30", "\N{MINUS SIGN}1.1000", "worker was killed"):
        assert text in page.text


def test_several_runs_are_side_by_side(three_runs: list[Path], now: datetime.datetime) -> None:
    page = Page(render(read_runs(three_runs), now))
    assert page.ids == [*ANCHORS, "warnings"]
    assert "3 training runs" in page.text
    differing = page.text.split("Where the configurations differ")[1].split("Mean log-")[0]
    for key in ("training.method", "training.num_jobs_final", "seed"):
        assert key in differing
    assert "engine.name" not in differing  # which is the same in all
    assert "plain : Resumed once, 1 iteration done again" in page.text
    assert "going : The run has recorded no end" in page.text


def test_best_of_several_runs_is_marked(three_runs: list[Path], now: datetime.datetime) -> None:
    page = render(read_runs(three_runs[:2]), now)
    row = page.split("Objective: validation")[1].split("</tr>")[0]
    assert re.findall(r'<td( class="best")?>', row) == [' class="best"', ""]


def test_page_needs_nothing_from_elsewhere(three_runs: list[Path], now: datetime.datetime) -> None:
    page = render(read_runs(three_runs), now)
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+[\w/.-]*", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|<img|@import|url\(|src=", page)


def test_same_events_give_the_same_page(three_runs: list[Path], now: datetime.datetime) -> None:
    assert render(read_runs(three_runs), now) == render(read_runs(three_runs), now)


def test_run_that_has_only_begun_says_so(tmp_path: Path, now: datetime.datetime) -> None:
    begun = start(1e9, num_iterations=5, num_epochs=2.0, engine="local", version="1", host="h")
    page = Page(render([read_run(write_events(tmp_path / "run", begun))], now))
    assert "No iteration is complete yet" in page.text
    assert "no diagnostics yet" in page.text
    empty = Page(render([read_run(write_events(tmp_path / "empty"))], now))
    assert "No iteration is complete yet" in empty.text


def test_run_in_its_first_iteration_shows_its_jobs(tmp_path: Path, now: datetime.datetime) -> None:
    page = page_of(MadeRun(stop_after=1, with_diagnostics=False), tmp_path / "run", now)
    assert "jobs" in page.ids
    assert "No iteration is complete yet" in page.text


def test_killed_run_shows_what_there_is(tmp_path: Path, now: datetime.datetime) -> None:
    path = MadeRun(stop_after=12, with_diagnostics=False).write(tmp_path / "run")
    with open(path / "events.jsonl", "a") as file:
        file.write('{"time": 1750000')
    page = Page(render([read_run(path)], now))
    assert "The last line of its events is incomplete and was ignored" in page.text
    assert "no diagnostics yet" in page.text
    assert "11 of 24" in page.text
    assert "combination" not in page.ids


def test_failed_run_tells_why(tmp_path: Path, now: datetime.datetime) -> None:
    page = page_of(MadeRun(status="failed"), tmp_path / "run", now)
    assert "The run failed: no job of iteration 24 was usable" in page.text


def test_run_without_fisher_factors_has_no_spectra(tmp_path: Path, now: datetime.datetime) -> None:
    page = page_of(MadeRun(method="none"), tmp_path / "run", now)
    assert page.ids == [a for a in [*ANCHORS, "warnings"] if a != "spectra"]


def test_agreement_of_jobs_is_shown_where_it_is_known(
    tmp_path: Path, three_runs: list[Path], now: datetime.datetime
) -> None:
    one = page_of(MadeRun(), tmp_path / "run", now)
    assert "Agreement of the jobs: mean cosine of their steps" in one.text
    assert "Agreement of the jobs, layer by layer" in one.text
    assert "Agreement of jobs: last mean cosine 0.11" in one.text  # 0.8 exp(-2)
    several = Page(render(read_runs(three_runs), now))
    assert "Agreement of the jobs: mean cosine of their steps" in several.text
    assert "Agreement of the jobs, layer by layer" not in several.text
    older = page_of(MadeRun(with_cosines=False), tmp_path / "older", now)
    assert "Agreement of the jobs" not in older.text
    assert "Agreement of jobs: last mean cosine \N{EN DASH}" in older.text


def test_late_diagnostics_say_of_which_iteration(tmp_path: Path, now: datetime.datetime) -> None:
    path = MadeRun(num_iterations=8).write(tmp_path / "run")
    lines = (path / "events.jsonl").read_text().splitlines(keepends=True)
    late = [line for line in lines if not ('"diagnostics"' in line and '"iteration": 8' in line)]
    (path / "events.jsonl").write_text("".join(late))
    assert "(iteration 7)" in Page(render([read_run(path)], now)).text


def test_many_runs_and_hostile_names_are_shown(tmp_path: Path, now: datetime.datetime) -> None:
    hostile = "<script>alert(1)<!-- &"
    paths = []
    for index in range(10):
        run = MadeRun(num_iterations=3, seed=index, overrides={hostile: hostile})
        paths.append(run.write(tmp_path / f"{hostile} {index}"))
    page = Page(render(read_runs(paths), now))
    assert page.tags.count("script") == 1  # the page's own
    assert f"{hostile} 9" in page.text


def test_missing_fields_are_shown_as_missing(tmp_path: Path, now: datetime.datetime) -> None:
    path = MadeRun(num_iterations=6).write(tmp_path / "run")
    optional = {"layers", "change", "samples_per_second", "average_seconds", "host", "reason"}
    optional |= {"accepted", "attempt", "objective", "weights", "objectives", "mean_objective"}
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    for event in events:
        for name in optional:
            event.pop(name, None)
        if event["event"] == "diagnostics":
            event["train"] = None
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (path / "config.json").unlink()
    page = Page(render([read_run(path)], now))
    assert "layers" not in page.ids
    assert "combination" in page.ids


def test_page_is_written_to_a_file(tmp_path: Path) -> None:
    path = MadeRun(num_iterations=3).write(tmp_path / "run")
    out = write_report([path], tmp_path / "page.html")
    assert out.read_text().startswith("<!doctype html>")
    with pytest.raises(OSError, match="cannot write"):
        write_report([path], tmp_path / "missing" / "page.html")


def test_combination_shows_weights_and_their_sums(tmp_path: Path, now: datetime.datetime) -> None:
    path = MadeRun(num_iterations=6).write(tmp_path / "run")
    page = Page(render([read_run(path)], now))
    assert "5 models, method \u201cgeneralised\u201d" in page.text
    assert page.text.count("sum 1.00") == 4
    lines = (path / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        if event["event"] == "combine":
            event["inputs"] = [[1, 2, 3], [4], 5, [6], []]  # means of several; numbers alone
    (path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    text = Page(render([read_run(path)], now)).text
    assert "1\N{EN DASH}3 4 5 6 models of iterations" in text.replace("  ", " ")


def test_weights_that_are_not_finite_are_left_out(tmp_path: Path, now: datetime.datetime) -> None:
    path = MadeRun(num_iterations=6).write(tmp_path / "run")
    *others, combine, end = (path / "events.jsonl").read_text().splitlines()
    event = json.loads(combine)
    assert event["event"] == "combine"
    event["weights"]["output"][0] = None
    (path / "events.jsonl").write_text("\n".join([*others, json.dumps(event), end, ""]))
    page = Page(render([read_run(path)], now))
    assert "hidden.0.linear, models of iterations" in page.text
    assert "output, models of iterations" not in page.text
