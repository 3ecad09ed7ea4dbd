"""Figures 1 and 2: what is run, what it costs, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes.reproduce.experiment import Figure
from natgrad.recipes.reproduce.job_counts.experiment import JOBS, JOBS_AN4
from natgrad.recipes.reproduce.job_counts.figures import figures
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import An4JobCounts, JobCounts
from tests.recipes.made_up_jobs import made_up_results
from tests.recipes.small_demo import files_of, found_in

SMALL = [
    "sgd_jobs=[1]", "simple_jobs=[]", "online_jobs=[1,2]", "repeated_jobs=[2]", "more_seeds=[2]",
    "hidden=[[20,5],[20,5]]", "num_epochs=1.0", "timing_rounds=1", "examples.samples_per_job=1500",
    "examples.validation_samples=400", "examples.train_subset_samples=400",
]  # fmt: skip


def test_whole_experiments_in_small(finished_recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def run(experiment: str, *more: str) -> set[str]:
        """Return the measurements that were done."""
        arguments = ["reproduce", experiment, "--data", str(finished_recipes), "-o", str(out)]
        done = files_of(out / "measurements")
        words = [word for setting in [*SMALL, *more] for word in ("--set", setting)]
        assert main([*arguments, *words]) == 0
        now = files_of(out / "measurements")
        return {name.removesuffix(".json") for name in now if now[name] != done.get(name)}

    systems = ["sgd-1-seed-1", "online-1-seed-1", "online-2-seed-1"]
    assert run("jobs") == {"examples", "timing", "clock", "online-2-seed-2", *systems}
    measured = found_in(out)
    one, two = (measured[f"online-{n}-seed-1"] for n in (1, 2))
    assert one["num_iterations"] == 2 * two["num_iterations"]  # equal samples
    assert [p["epoch"] for p in one["curve"]] == [p["epoch"] for p in two["curve"]]
    assert [len(run["cosines"]) > 0 for run in (one, two)] == [False, True]
    # Jobs that are done one after the other, as here, are none to be measured.
    seconds = measured["clock"]["seconds"]
    assert set(seconds) == {"sgd-1-seed-1", "online-1-seed-1"}
    assert [i for i, _ in seconds["sgd-1-seed-1"]] == list(range(1, one["num_iterations"] + 1))
    page = (out / "jobs.md").read_text()
    assert "| online NG-SGD, 2 jobs | 2 |" in page  # the run from the second seed
    for name in ("epochs", "time", "held-out"):
        assert (out / f"jobs-{name}.svg").read_text().startswith("<svg")

    # The words of the same runs, which are not done again.
    assert run("words") == {f"words-{name}" for name in systems}
    words = found_in(out)["words-online-2-seed-1"]
    assert words["errors"]["num_words"] > 0
    assert 0.0 <= words["better"] <= 1.0
    assert "3 measurements after those of jobs" in (out / "words.md").read_text()
    assert (out / "jobs.md").read_text() == page

    # Another setting: only what depends on it is done again.
    assert run("words", "timing_rounds=2") == {"timing"}


def test_recipe_that_is_not_finished_is_an_error_that_tells_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["reproduce", "jobs-an4", "--data", str(tmp_path), "-o", out]) != 0
    message = capsys.readouterr().err
    assert f"{tmp_path / 'an4'} is not the directory of a finished recipe" in message
    assert f"natgrad recipe an4 --data CORPUS --out {tmp_path / 'an4'}" in message


def test_the_systems_are_those_of_the_issue_with_equal_effective_rates() -> None:
    settings = JobCounts()
    names = {system.name.removesuffix("-seed-1") for system in settings.systems}
    online = {f"online-{n}" for n in (1, 2, 4, 8, 16)}
    assert names == {"sgd-1", "sgd-2", "sgd-4", "simple-1", *online}
    by_name = {m.name: m.settings for m in JOBS.measurements(settings, Path("exp"))}
    trained = [by_name[system.name]["training"] for system in settings.systems]
    for key in ("initial_effective_lr", "final_effective_lr", "num_epochs", "minibatch_size"):
        assert len({table[key] for table in trained}) == 1
    assert {s["seed"] for name, s in by_name.items() if name.startswith("online-16")} == {1, 2, 3}


def test_each_corpus_has_its_own_settings() -> None:
    assert isinstance(JOBS_AN4.settings(), An4JobCounts)
    recipes = [
        next(m for m in each.measurements(each.settings(), Path("exp")) if m.name == "examples")
        for each in (JOBS, JOBS_AN4)
    ]
    assert [m.settings["recipe"] for m in recipes] == ["librispeech", "an4"]


@pytest.mark.parametrize(
    "wrong",
    [{"online_jobs": (2, 4)}, {"sgd_jobs": (3,)}, {"sgd_jobs": ()}, {"repeated_jobs": (5,)}],
)
def test_settings_that_cannot_be_compared_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected 1 among them"):
        JobCounts(**wrong)


# -- the report, on findings that were made up ---------------------------------------------------


@pytest.fixture
def results() -> JobCountResults:
    return made_up_results()


def test_report_tells_what_more_jobs_lose(results: JobCountResults) -> None:
    report = JOBS.report(results.settings, results.found)
    answer = " ".join(report.answer.split())
    assert "- online NG-SGD: -2.000 (1); -2.100 (2); -2.200 (4)" in answer
    assert "SGD loses 1.500 (50.0 %)" in answer
    assert "NG-SGD loses 0.100 (5.0 %) to as many, and 0.200 (10.0 %) to 4." in answer
    assert "0.050 (the range of 3 seeds with 4 jobs)" in answer
    assert "Word" not in answer


def test_rows_of_runs_tell_rates_and_how_often_they_were_limited(results: JobCountResults) -> None:
    body = [p for p in JOBS.report(results.settings, results.found).body if isinstance(p, str)]
    assert "| online NG-SGD, 2 jobs | 1 | 8 | 0.02 to 0.002 | 50 % | 0 |" in body[-1]


def test_lines_of_as_many_jobs_have_one_colour_and_methods_have_styles(
    results: JobCountResults,
) -> None:
    epochs: Figure = figures(results)[0]
    named = {line.name: line for line in epochs.lines if line.is_named}
    one_job = [named[f"{method}, 1 job"] for method in ("SGD", "simple NG-SGD", "online NG-SGD")]
    assert len({line.color for line in one_job}) == 1
    assert len({line.style for line in one_job}) == 3
    assert len({named[f"online NG-SGD, {n}"].color for n in ("1 job", "2 jobs", "4 jobs")}) == 3
