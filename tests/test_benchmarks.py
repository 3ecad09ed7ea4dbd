"""The benchmarks run, and their output has the right shape; not how fast anything is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import averaging, combination, convergence, speech_like, step
from benchmarks.convergence_report import Point, Results, Run, cost_to_reach
from benchmarks.optimizers import CONTENDERS, Contender
from benchmarks.speech_like import QUICK
from natgrad.nn import NetworkConfig


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def contender(name: str) -> Contender:
    return next(c for c in CONTENDERS if c.name == name)


# -- benchmarks.step -------------------------------------------------------------------------


def test_step_times_every_contender(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tiny = NetworkConfig(num_inputs=6, num_outputs=5, hidden=((8, 4),) * 2)
    monkeypatch.setattr(step, "NETWORKS", {"tiny": tiny})
    file = tmp_path / "step.json"
    size = ["--networks", "tiny", "--minibatches", "4", "--threads", "1", "--rounds", "2"]
    monkeypatch.setattr("sys.argv", ["step", *size, "--json", str(file)])
    step.main()
    rows = json.loads(file.read_text())["timings"]
    names = [row["contender"] for row in rows]
    assert {"products", "torch SGD", "none", "simple", "online"} <= set(names)
    assert all(row["milliseconds"] > 0.0 for row in rows)
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)


# -- benchmarks.convergence ------------------------------------------------------------------


def test_quick_convergence_reports_every_contender(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    results_file, plot_file = tmp_path / "c.json", tmp_path / "c.svg"
    convergence.main(["--quick", "--json", str(results_file), "--plot", str(plot_file)])
    report = capsys.readouterr().out
    results = Results.from_json(results_file.read_text())
    assert [run.name for run in results.runs] == [c.name for c in CONTENDERS]
    for run in results.runs:
        samples = [point.num_samples for point in run.points]
        assert samples[0] == 0
        assert samples[-1] == QUICK.num_train
        assert samples == sorted(samples)
        assert math.isfinite(run.points[-1].loss)
        assert f"| {run.name} | {run.lr:g} |" in report
    assert plot_file.read_text().rstrip().endswith("</svg>")
    convergence.main(["--from-json", str(results_file), "--plot", str(tmp_path / "again.svg")])
    assert capsys.readouterr().out == report
    assert (tmp_path / "again.svg").read_text() == plot_file.read_text()


def test_task_is_the_same_every_time_and_holds_out_other_frames() -> None:
    task, again = speech_like.make_task(QUICK), speech_like.make_task(QUICK)
    assert torch.equal(task.frames, again.frames)
    assert torch.equal(task.labels, again.labels)
    assert len(task.held_out_y) == QUICK.num_held_out
    x, y = task.minibatch(task.train_indices)
    assert x.shape == (QUICK.num_train, 9 * QUICK.num_features)
    assert set(y.tolist()) <= set(range(QUICK.num_classes))
    trained_on = {tuple(row) for row in x.tolist()}
    assert trained_on.isdisjoint(tuple(row) for row in task.held_out_x.tolist())


def test_grid_whose_best_is_at_its_edge_is_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake_train(
        contender: Contender, task: object, lr: float, seed: int, num_evaluations: int
    ) -> Iterator[Point]:
        yield Point(0, 0.0, 9.0, 0.0)
        yield Point(1, 1.0, abs(math.log2(lr / contender.lr) - 3.0), 0.0)

    monkeypatch.setattr(convergence, "train", fake_train)
    sgd, task = contender("SGD"), speech_like.make_task(QUICK)
    losses = convergence.tune(sgd, task, (-1, 0, 1))
    assert list(losses) == [sgd.lr * 2.0**e for e in (-1, 0, 1, 2, 3, 4)]
    assert min(losses, key=losses.__getitem__) == sgd.lr * 8.0


@pytest.mark.parametrize("name", ["SGD", "NGSGD none"])
def test_diverged_run_ends_with_infinite_loss(name: str) -> None:
    task = speech_like.make_task(QUICK)
    task.frames[100] = math.nan
    *_, last = convergence.train(contender(name), task, lr=0.01, seed=1, num_evaluations=2)
    assert last.loss == math.inf


def test_cost_to_reach_a_loss_is_interpolated() -> None:
    points = (Point(0, 0.0, 4.0, 0.0), Point(100, 1.0, 5.0, 0.0), Point(200, 3.0, 1.0, 0.0))
    run = Run("SGD", 0.1, 1, points)
    assert cost_to_reach(run, 3.0) == (150.0, 2.0)
    assert cost_to_reach(run, 4.5) == (0.0, 0.0)
    assert cost_to_reach(run, 0.5) is None


def test_infinite_losses_survive_json() -> None:
    run = Run("SGD", 0.1, 1, (Point(0, 0.0, 2.0, 0.1), Point(1, 0.5, math.inf, 0.0)))
    results = Results({"a": 1}, {"SGD": "note"}, {"SGD": {0.1: 2.0, 0.2: math.inf}}, (run,))
    assert "Infinity" not in results.to_json()
    assert Results.from_json(results.to_json()) == results


# -- benchmarks.averaging and benchmarks.combination -----------------------------------------


def test_averaging_reports_all_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = averaging.Size(
        network=NetworkConfig(num_inputs=700, num_outputs=5, hidden=((20, 5),)),
        num_models=3,
        repetitions=2,
        samples_per_job=600,
        num_iterations=2,
        driver_iterations=3,
        driver_jobs=2,
    )
    averaging.main(["--json", str(tmp_path / "figures.json")], size)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert all(seconds > 0 for seconds in figures["average"].values())
    assert [len(figures["iteration"][jobs]["ratios"]) for jobs in ("1", "2")] == [2, 2]
    assert len(figures["driver"]["megabytes"]) == 3
    assert "2 jobs have" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        averaging.main(["nonsense"])


def test_combination_judges_all_ways_on_data_that_none_has_seen(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    combination.main(["--utterances", "60", "--epochs", "1", "--json", str(file)])
    rows = {row["model"]: row for row in json.loads(file.read_text())}
    assert rows["combined on both, 5 evaluations"]["train"] != rows["the last model"]["train"]
    assert all(math.isfinite(row["unknown"]) for row in rows.values())
