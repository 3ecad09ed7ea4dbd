"""Figures 1 and 2 and Table 2: what is run, what it costs, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes.reproduce.experiment import Figure
from natgrad.recipes.reproduce.job_counts.experiment import JOBS, JOBS_AN4
from natgrad.recipes.reproduce.job_counts.figures import figures
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import An4JobCounts, JobCounts, System
from tests.recipes.small_demo import files_of, found_in

SMALL = [
    "sgd_jobs=[1]", "simple_jobs=[]", "online_jobs=[1,2]", "repeated_jobs=[2]", "more_seeds=[2]",
    "hidden=[[20,5],[20,5]]", "num_epochs=1.0", "timing_rounds=1", "examples.samples_per_job=1500",
    "examples.validation_samples=400", "examples.train_subset_samples=400",
]  # fmt: skip


def test_whole_experiment_in_small(finished_recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["reproduce", "jobs", "--data", str(finished_recipes), "-o", str(out)]
    settings = [word for setting in SMALL for word in ("--set", setting)]
    assert main([*arguments, *settings]) == 0
    measured = found_in(out)
    systems = ["sgd-1-seed-1", "online-1-seed-1", "online-2-seed-1"]
    recognised = [f"words-{name}" for name in systems]
    assert set(measured) == {"examples", "timing", "online-2-seed-2", *systems, *recognised}
    one, two = (measured[f"online-{n}-seed-1"] for n in (1, 2))
    assert one["num_iterations"] == 2 * two["num_iterations"]  # equal samples
    assert [p["epoch"] for p in one["curve"]] == [p["epoch"] for p in two["curve"]]
    assert [len(run["cosines"]) > 0 for run in (one, two)] == [False, True]
    assert measured["words-online-2-seed-1"]["errors"]["num_words"] > 0
    assert 0.0 <= measured["words-online-2-seed-1"]["better"] <= 1.0
    page = (out / "jobs.md").read_text()
    assert "| online NG-SGD, 2 jobs | 2 |" in page  # the run from the second seed
    for name in ("epochs", "time", "held-out"):
        assert (out / f"jobs-{name}.svg").read_text().startswith("<svg")

    # Another setting: only what depends on it is done again.
    done = files_of(out / "measurements")
    assert main([*arguments, *settings, "--set", "timing_rounds=2"]) == 0
    changed = {name for name, time in files_of(out / "measurements").items() if time != done[name]}
    assert changed == {"timing.json"}


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


def point(iteration: int, epoch: float, train: float) -> dict[str, float]:
    return {
        "iteration": iteration, "epoch": epoch, "train_objective": train, "train_accuracy": 0.5,
        "valid_objective": train - 0.1, "valid_accuracy": 0.4,
    }  # fmt: skip


def run_that_reaches(objective: float, num_jobs: int) -> dict[str, Any]:
    curve = [point(0, 0.0, -7.0), point(16 // num_jobs, 1.0, objective)]
    return {
        "num_iterations": 16 // num_jobs, "num_left_out": 0, "limited": 0.25 * num_jobs,
        "curve": curve, "last": curve[-1],
    }  # fmt: skip


def cost(seconds: float) -> dict[str, float]:
    return {"median": seconds, "least": seconds, "most": seconds}


@pytest.fixture
def results() -> JobCountResults:
    settings = JobCounts(sgd_jobs=(1, 2), online_jobs=(1, 2, 4), repeated_jobs=(4,))
    reached = {
        "sgd-1": -3.0, "sgd-2": -4.5, "simple-1": -2.01, "online-1": -2.0, "online-2": -2.1,
        "online-4": -2.2,
    }  # fmt: skip
    found: dict[str, Any] = {
        "examples": {"samples": 100, "blocks": 16, "classes": 7},
        "timing": {
            "job": {"none": cost(1.0), "simple": cost(3.0), "online": cost(1.5)},
            "averaging": {"1": cost(0.1), "2": cost(0.2), "4": cost(0.4)},
        },
        "online-4-seed-2": run_that_reaches(-2.23, 4),
        "online-4-seed-3": run_that_reaches(-2.18, 4),
    }
    for number, (name, objective) in enumerate(reached.items()):
        found[f"{name}-seed-1"] = run_that_reaches(objective, int(name[-1]))
        wer = 0.2 + 0.01 * number
        found[f"words-{name}-seed-1"] = {
            "wer": wer, "interval": [wer - 0.02, wer + 0.02], "errors": {"num_words": 1000},
            **({} if name == "online-1" else {"better": 0.25}),
        }  # fmt: skip
    return JobCountResults(settings, found)


def test_report_tells_what_more_jobs_lose(results: JobCountResults) -> None:
    report = JOBS.report(results.settings, results.found)
    answer = " ".join(report.answer.split())
    assert "- online NG-SGD: -2.000 (1); -2.100 (2); -2.200 (4)" in answer
    assert "SGD loses 1.500 (50.0 %)" in answer
    assert "NG-SGD loses 0.100 (5.0 %) to as many, and 0.200 (10.0 %) to 4." in answer
    assert "0.050 (the range of 3 seeds with 4 jobs)" in answer
    assert "the fewest are 20.00 % (SGD, 1 job)" in answer


def test_rows_of_runs_tell_rates_and_how_often_they_were_limited(results: JobCountResults) -> None:
    body = [p for p in JOBS.report(results.settings, results.found).body if isinstance(p, str)]
    assert "| online NG-SGD, 2 jobs | 1 | 8 | 0.02 to 0.002 | 50 % | 0 |" in body[-1]


def test_word_errors_are_in_the_layout_of_the_papers_table(results: JobCountResults) -> None:
    body = "\n".join(
        p for p in JOBS.report(results.settings, results.found).body if isinstance(p, str)
    )
    lines = body.splitlines()
    start = lines.index("| jobs | 1 | 2 | 4 |")
    assert lines[start + 2] == (
        "| SGD | 20.00 (18.0 to 22.0), *0.25* | 21.00 (19.0 to 23.0), *0.25* |  |"
    )
    assert lines[start + 4].startswith("| online NG-SGD | 23.00 (21.0 to 25.0) | 24.00 (22.0 to")


def test_time_is_iterations_times_a_job_and_averaging(results: JobCountResults) -> None:
    assert results.minutes(System("online", 4, 1), 8) == pytest.approx(8 * (1.5 + 0.4) / 60)
    _, time, _ = figures(results)
    ends = {line.name: line.points[-1] for line in time.lines if line.is_named}
    assert ends["online NG-SGD, 4 jobs"] == pytest.approx((4 * 1.9 / 60, -2.2))
    assert ends["SGD, 2 jobs"] == pytest.approx((8 * 1.2 / 60, -4.5))


def test_lines_of_as_many_jobs_have_one_colour_and_methods_have_styles(
    results: JobCountResults,
) -> None:
    epochs: Figure = figures(results)[0]
    named = {line.name: line for line in epochs.lines if line.is_named}
    one_job = [named[f"{method}, 1 job"] for method in ("SGD", "simple NG-SGD", "online NG-SGD")]
    assert len({line.color for line in one_job}) == 1
    assert len({line.style for line in one_job}) == 3
    assert len({named[f"online NG-SGD, {n}"].color for n in ("1 job", "2 jobs", "4 jobs")}) == 3
