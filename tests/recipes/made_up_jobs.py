"""What the experiments on numbers of jobs might have found, for reports on it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import JobCounts

# In which share of draws each has fewer errors than online NG-SGD with one job.
BETTER = {"sgd-1": 0.96, "sgd-2": 0.25, "simple-1": 0.95, "online-2": 0.05, "online-4": 0.0}


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


def made_up_results(measured: Container[int] = (1, 2)) -> JobCountResults:
    """SGD, simple and online NG-SGD with 1 to 4 jobs, of which some were measured by a clock.

    An iteration takes 1 s of SGD and 1.5 s of online NG-SGD, and 2 s by the clock after 5 of start.
    """
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
        "clock": {"num_cores": 2, "seconds": {}},
        "online-4-seed-2": run_that_reaches(-2.23, 4),
        "online-4-seed-3": run_that_reaches(-2.18, 4),
    }
    for number, (name, objective) in enumerate(reached.items()):
        found[f"{name}-seed-1"] = run_that_reaches(objective, int(name[-1]))
        if int(name[-1]) in measured:
            num_iterations = found[f"{name}-seed-1"]["num_iterations"]
            ends = [[i, 5.0 + 2.0 * i] for i in range(1, num_iterations + 1)]
            found["clock"]["seconds"][f"{name}-seed-1"] = ends
        wer = 0.2 + 0.01 * number
        found[f"words-{name}-seed-1"] = {
            "wer": wer, "interval": [wer - 0.02, wer + 0.02], "errors": {"num_words": 1000},
            **({} if name == "online-1" else {"better": BETTER[name]}),
        }  # fmt: skip
    return JobCountResults(settings, found)
