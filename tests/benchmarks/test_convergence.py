"""How optimizers are tuned, trained and compared; how that is kept, told and drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import convergence, convergence_report, speech_like
from benchmarks.convergence_report import Comparison, Point, Run, cost_to_reach
from benchmarks.optimizers import CONTENDERS, Contender
from benchmarks.result_file import Results
from benchmarks.speech_like import QUICK


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def contender(name: str) -> Contender:
    return next(c for c in CONTENDERS if c.name == name)


def made_comparison() -> Comparison:
    """SGD reaches a loss of 2 in one of two seeds; NGSGD online in both."""
    runs = []
    for seed in (1, 2):
        start = Point(0, 0.0, 5.0, 0.1)
        sgd = (start, Point(1280, 10.0, 1.0 + seed, 0.5))
        ours = (start, Point(1280, 20.0, 1.0, 0.75))
        runs += [Run("SGD", 0.5, seed, sgd), Run("NGSGD online", 0.016, seed, ours)]
    facts = {
        "torch": "2", "pytorch_optimizer": "4", "machine": "abacus", "minibatch": 128,
        "input_condition": 4000.0, "transformed_condition": 700.0,
        "mean_direction_shares": [0.9], "num_train": 1280, "num_held_out": 10,
        "num_classes": 3, "hidden": [[50, 10]],
    }  # fmt: skip
    notes = {"SGD": "plain", "NGSGD online": "ours"}
    tuning = {"SGD": {0.25: math.inf, 0.5: 2.0}, "NGSGD online": {0.016: 1.0}}
    return Comparison(facts, notes, tuning, tuple(runs))


def test_tables_are_of_the_rounds_literal_values() -> None:
    ends, costs, _, to_two, _ = convergence.tables_of(made_comparison())
    assert [(row.name, row.values) for row in ends.rows] == [
        ("SGD", (2.0, 3.0)),
        ("NGSGD online", (1.0, 1.0)),
    ]
    assert ends.rows[0].also == {"lr": 0.5, "accuracy": 0.5}
    # 10 minibatches took 10 and 20 seconds.
    assert [row.values for row in costs.rows] == [(1000.0, 1000.0), (2000.0, 2000.0)]
    # From 5 to 2 in the first seed, and never below 3 in the second; from 5 to 1 in both.
    assert [row.values for row in to_two.rows] == [(10.0, math.inf), (15.0, 15.0)]
    assert [row.also for row in to_two.rows] == [{}, {"samples": 960}]
    assert to_two.title == "until the held-out loss was first 2"


def test_report_is_of_what_was_saved_and_the_plot_is_the_same_every_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = made_comparison()
    file = tmp_path / "c.json"
    tables = tuple(convergence.tables_of(comparison))
    Results("convergence", False, {}, {}, tables, comparison.to_fields()).write(file)
    for plot in ("one.svg", "two.svg"):
        assert convergence_report.main([str(file), "--plot", str(tmp_path / plot)]) == 0
    report = capsys.readouterr().out
    assert report == 2 * f"{convergence_report.format_report(comparison)}\n"
    assert "2.500 (2.000 - 3.000)" in report
    assert "0.25: inf, **0.5: 2.000**" in report
    assert (tmp_path / "one.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "one.svg").read_text() == (tmp_path / "two.svg").read_text()


def test_report_of_another_benchmark_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "step.json"
    Results("step", False, {}, {}, ()).write(file)
    assert convergence_report.main([str(file)]) == 2
    assert "step.json is of step, not of convergence" in capsys.readouterr().err
    assert convergence_report.main([str(tmp_path / "missing.json")]) == 2
    assert "missing.json" in capsys.readouterr().err
    Results("convergence", False, {}, {}, ()).write(file)
    assert convergence_report.main([str(file)]) == 2
    assert "step.json has no curves that could be told" in capsys.readouterr().err


@pytest.mark.parametrize("plot", ["a.docx", "nowhere/a.svg"])
def test_plot_that_cannot_be_drawn_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plot: str
) -> None:
    file = tmp_path / "c.json"
    Results("convergence", False, {}, {}, (), made_comparison().to_fields()).write(file)
    assert convergence_report.main([str(file), "--plot", str(tmp_path / plot)]) == 2
    assert plot.partition(".")[2] in capsys.readouterr().err


def test_infinite_losses_survive_json() -> None:
    run = Run("SGD", 0.1, 1, (Point(0, 0.0, 2.0, 0.1), Point(1, 0.5, math.inf, 0.0)))
    comparison = Comparison({"a": 1}, {"SGD": "note"}, {"SGD": {0.1: 2.0, 0.2: math.inf}}, (run,))
    text = json.dumps(comparison.to_fields(), allow_nan=False)
    assert Comparison.from_fields(json.loads(text)) == comparison


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


def test_run_goes_once_over_the_data() -> None:
    task = speech_like.make_task(QUICK)
    points = list(convergence.train(contender("NGSGD online"), task, 0.01, 1, num_evaluations=5))
    samples = [point.num_samples for point in points]
    assert samples == [0, *(QUICK.num_train * n // 5 for n in range(1, 6))]
    assert points[-1].loss < points[0].loss
    seconds = [point.seconds for point in points]
    assert seconds == sorted(seconds)


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
