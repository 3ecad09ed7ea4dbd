"""Table 2: what is recognised after the runs, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.reproduce.experiment import Experiment, Report
from natgrad.recipes.reproduce.job_counts.experiment import JOBS, JOBS_AN4
from natgrad.recipes.reproduce.job_counts.word_experiment import WORDS, WORDS_AN4
from tests.recipes.made_up_jobs import made_up_results


@pytest.fixture
def report() -> Report:
    results = made_up_results()
    return WORDS.report(results.settings, results.found)


@pytest.mark.parametrize(("words", "jobs"), [(WORDS, JOBS), (WORDS_AN4, JOBS_AN4)])
def test_words_are_those_of_every_run_of_the_first_seed(
    words: Experiment[Any], jobs: Experiment[Any]
) -> None:
    settings = jobs.settings()
    own = words.measurements(settings, Path("exp"))
    assert words.chain == [jobs, words]
    assert [m.name for m in own] == [f"words-{system.name}" for system in settings.systems]
    recipes = {m.settings["recipe"] for m in own}
    assert recipes == {jobs.measurements(settings, Path("exp"))[0].settings["recipe"]}


def test_answer_has_errors_intervals_and_what_is_no_chance(report: Report) -> None:
    answer = " ".join(report.answer.split())
    assert "in per cent of 1000 words" in answer
    assert "- SGD: 20.00 (1); 21.00 (2) - simple NG-SGD: 22.00 (1) - online NG-SGD: 23.00" in answer
    assert "one job has 21.0 to 25.0 % of its words wrong in 95 % of the draws" in answer
    assert "- in at least 95 % of the draws by SGD, 1 job; simple NG-SGD, 1 job;" in answer
    assert (
        "- in at most 5 % of the draws by online NG-SGD, 2 jobs; online NG-SGD, 4 jobs." in answer
    )
    assert "one run from one seed" in answer


def test_nobody_better_is_told_as_such() -> None:
    results = made_up_results()
    better = {"better": 0.5}
    found = {
        name: {**what, **better} if "better" in what else what
        for name, what in results.found.items()
    }
    answer = WORDS.report(results.settings, found).answer
    assert "in at least 95 % of the draws by none;" in answer
    assert "in at most 5 % of the draws by none." in answer


def test_page_leads_to_that_of_the_runs(report: Report) -> None:
    assert "The runs are those of [jobs](jobs.md)" in report.answer
    results = made_up_results()
    other = WORDS_AN4.report(results.settings, results.found)
    assert "The runs are those of [jobs-an4](jobs-an4.md)" in other.answer


def test_word_errors_are_in_the_layout_of_the_papers_table(report: Report) -> None:
    lines = "\n".join(part for part in report.body if isinstance(part, str)).splitlines()
    start = lines.index("| jobs | 1 | 2 | 4 |")
    assert lines[start + 2] == (
        "| SGD | 20.00 (18.0 to 22.0), *0.960* | 21.00 (19.0 to 23.0), *0.250* |  |"
    )
    assert lines[start + 4].startswith("| online NG-SGD | 23.00 (21.0 to 25.0) | 24.00 (22.0 to")


def test_page_of_the_runs_has_no_words() -> None:
    results = made_up_results()
    found = {name: what for name, what in results.found.items() if not name.startswith("words")}
    body = JOBS.report(results.settings, found).body
    assert not any("Word error" in part for part in body if isinstance(part, str))
