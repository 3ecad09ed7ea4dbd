"""Whole training runs, small ones: what they promise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from natgrad.data import (
    Block,
    BlockError,
    Minibatch,
    SoftLabels,
    open_examples,
    segments_of_vectors,
)
from natgrad.data import build as build_examples
from natgrad.nn import build
from natgrad.parallel.combine import CombinationError
from natgrad.parallel.engines import WorkerLost, open_engine
from natgrad.parallel.outer import RunFailedError
from natgrad.recipes import network_job
from natgrad.recipes.network_job import log_probability, restore
from natgrad.recipes.train import plan_of, train, train_from_toml
from natgrad.run.config import ConfigError
from natgrad.run.events import read_events
from natgrad.run.model_file import read_model
from tests.recipes.small_run import (
    events_of,
    small_config,
    small_examples,
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples") / "small"
    small_examples(directory)
    return directory


def test_run_learns_and_its_final_model_is_no_worse_than_any_it_was_combined_of(
    examples: Path, tmp_path: Path
) -> None:
    final = train(small_config(tmp_path, examples))
    (combination,) = events_of(tmp_path, "combine")
    assert combination["objective"] >= max(combination["objectives"])
    first, *_, last = events_of(tmp_path, "diagnostics")
    assert first["valid"]["objective"] == pytest.approx(-math.log(6))
    assert last["valid"]["accuracy"] > 0.8
    network = restore(read_model(final))
    assert len(network.hidden) == 2
    (minibatch,) = Block.read(examples / "validation.block").minibatches(10_000, seed=0)
    is_right = network(minibatch.features).argmax(dim=1) == minibatch.labels
    assert is_right.float().mean() > 0.8
    assert events_of(tmp_path, "end")[0]["status"] == "complete"


def test_run_gives_the_same_bits_with_local_processes(examples: Path, tmp_path: Path) -> None:
    inline = train(small_config(tmp_path / "inline", examples))
    local = train(small_config(tmp_path / "local", examples, engine={"name": "local"}))
    assert inline.read_bytes() == local.read_bytes()
    other = train(small_config(tmp_path / "other", examples, run={"seed": 1}))
    assert inline.read_bytes() != other.read_bytes()


def test_one_job_is_serial_training(examples: Path, tmp_path: Path) -> None:
    """N = 1 is not a case of its own: one block after the other, at the effective rate."""
    config = small_config(tmp_path, examples, training={"num_jobs": 1, "num_epochs": 1})
    train(config)
    iterations = events_of(tmp_path, "iteration")
    assert len(iterations) == open_examples(examples).num_blocks
    assert all(event["learning_rate"] == event["effective_learning_rate"] for event in iterations)
    assert iterations[0]["learning_rate"] == 0.01


def test_jobs_keep_the_memory_that_they_free(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []
    monkeypatch.setattr(network_job, "keep_freed_memory", lambda: calls.append(None))
    train(small_config(tmp_path, examples, training={"num_jobs": 2, "num_epochs": 1}))
    num_jobs = len(events_of(tmp_path, "job"))
    assert len(calls) == num_jobs > 0


def test_models_are_evaluated_so_many_iterations_apart_and_the_last(
    examples: Path, tmp_path: Path
) -> None:
    often, seldom = tmp_path / "often", tmp_path / "seldom"
    finals = [
        train(small_config(often, examples)),
        train(small_config(seldom, examples, run={"diagnostics_every": 5})),
    ]
    assert finals[0].read_bytes() == finals[1].read_bytes()
    assert [e["iteration"] for e in events_of(often, "diagnostics")] == list(range(13))
    assert [e["iteration"] for e in events_of(seldom, "diagnostics")] == [0, 5, 10, 12]


def test_network_grows_layer_by_layer_and_fresh_iterations_pick_the_best(
    examples: Path, tmp_path: Path
) -> None:
    shape = {"hidden": [[40, 10]] * 3, "iterations_per_layer": 2}
    train(small_config(tmp_path, examples, network=shape, run={"keep_models": True}))
    grown = [(event["iteration"], event["num_hidden"]) for event in events_of(tmp_path, "remodel")]
    assert grown == [(3, 2), (5, 3)]
    for number, num_hidden in [(0, 1), (2, 1), (3, 2), (4, 2), (5, 3)]:
        model = read_model(tmp_path / "models" / f"{number:04d}.safetensors")
        assert len(model.description["network"]["hidden"]) == num_hidden
    chosen = [event["chosen"] for event in events_of(tmp_path, "iteration")]
    assert chosen[:6] == ["best of 2", "average"] * 3


def test_network_is_mixed_up_half_way(examples: Path, tmp_path: Path) -> None:
    shape = {"output": "mix_up", "num_subclasses": 15}
    final = train(small_config(tmp_path, examples, network=shape))
    (event,) = [e for e in events_of(tmp_path, "remodel") if e["change"] == "mix_up"]
    half = len(events_of(tmp_path, "iteration")) / 2
    assert event["iteration"] == pytest.approx(half + 1, abs=0.5)
    network = restore(read_model(final))
    assert network.output.out_features == 15
    assert network.prior_scale is None


def test_prior_scale_is_the_default(examples: Path, tmp_path: Path) -> None:
    final = train(small_config(tmp_path, examples, training={"num_epochs": 1}))
    network = restore(read_model(final))
    assert network.prior_scale is not None
    assert network.prior_scale.scales.mean() == pytest.approx(1.0)


def test_all_but_the_last_layer_come_from_another_network(examples: Path, tmp_path: Path) -> None:
    final = train(small_config(tmp_path / "first", examples))
    shape = {"transfer_from": str(final), "initial_num_hidden": 2}
    train(small_config(tmp_path / "second", examples, network=shape, run={"keep_models": True}))
    start = read_model(tmp_path / "second" / "models" / "0000.safetensors").tensors
    donor = read_model(final).tensors
    assert torch.equal(start["hidden.1.linear.weight"], donor["hidden.1.linear.weight"])
    assert not start["output.weight"].any()
    with pytest.raises(ConfigError, match=r"network\.initial_num_hidden be 2"):
        train(small_config(tmp_path / "third", examples, network={"transfer_from": str(final)}))


@pytest.mark.parametrize("method", ["simple", "none"])
def test_other_methods_train_too(examples: Path, tmp_path: Path, method: str) -> None:
    train(small_config(tmp_path, examples, optimizer={"method": method}))
    assert events_of(tmp_path, "diagnostics")[-1]["valid"]["accuracy"] > 0.8
    layers = events_of(tmp_path, "job")[0]["layers"]
    assert layers["output"]["num_minibatches"] > 0


def test_threads_that_share_parameters_train_too(examples: Path, tmp_path: Path) -> None:
    train(small_config(tmp_path, examples, training={"num_threads": 3}))
    assert events_of(tmp_path, "diagnostics")[-1]["valid"]["accuracy"] > 0.8
    job = events_of(tmp_path, "job")[-1]
    assert job["layers"]["output"]["num_minibatches"] == math.ceil(job["samples"] / 64)


def test_finished_run_is_left_as_it_is(examples: Path, tmp_path: Path) -> None:
    config = small_config(tmp_path, examples)
    final = train(config)
    before = (final.stat().st_mtime_ns, (tmp_path / "events.jsonl").read_bytes())
    assert train(config) == final
    assert (final.stat().st_mtime_ns, (tmp_path / "events.jsonl").read_bytes()) == before


def test_driver_killed_before_its_last_word_is_spoken_for(examples: Path, tmp_path: Path) -> None:
    config = small_config(tmp_path, examples, training={"num_epochs": 1})
    train(config)
    events = (tmp_path / "events.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "events.jsonl").write_text("".join(events[:-1]))
    train(config)
    assert events_of(tmp_path, "end")[0]["status"] == "complete"


def test_every_event_is_handed_out_as_it_is_written(examples: Path, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    train(small_config(tmp_path, examples), on_event=seen.append)
    assert json.loads(json.dumps(seen)) == read_events(tmp_path / "events.jsonl")


@pytest.mark.parametrize("method", ["mean", "last"])
def test_other_ways_to_end_a_run(examples: Path, tmp_path: Path, method: str) -> None:
    final = train(small_config(tmp_path, examples, combination={"method": method}))
    (event,) = events_of(tmp_path, "combine")
    assert event["method"] == method
    if method == "last":
        last = max((tmp_path / "models").glob("*.safetensors"))
        assert final.read_bytes() == last.read_bytes()
    else:
        assert event["objective"] >= event["objectives"][-1]


def test_altered_block_ends_the_run_with_its_name(tmp_path: Path) -> None:
    small_examples(tmp_path / "examples")
    block = sorted((tmp_path / "examples").glob("*.block"))[0]
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes(content)
    with pytest.raises((RunFailedError, BlockError), match=block.name):
        train(small_config(tmp_path / "run", tmp_path / "examples"))


def test_run_that_diverges_stops_with_its_last_good_model(examples: Path, tmp_path: Path) -> None:
    config = small_config(
        tmp_path,
        examples,
        training={"initial_effective_lr": 1e30, "final_effective_lr": 1e30},
        optimizer={"method": "none", "max_change_per_sample": 0},
    )
    with pytest.raises(RunFailedError, match=r"iteration 1 failed: .*The model of iteration 0 is"):
        train(config)
    assert read_model(tmp_path / "models" / "0000.safetensors")
    assert events_of(tmp_path, "end")[0]["status"] == "failed"


def test_number_of_jobs_rises(examples: Path, tmp_path: Path) -> None:
    config = small_config(
        tmp_path, examples, training={"num_jobs": 3, "initial_num_jobs": 1, "num_epochs": 4}
    )
    numbers = [iteration.num_jobs for iteration in plan_of(config, open_examples(examples))]
    assert numbers[0] == 1
    assert max(numbers) == 3
    assert sum(numbers) == 4 * open_examples(examples).num_blocks


def test_toml_with_overrides_trains(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        f"""
        [run]
        directory = "{tmp_path}/run"
        [data]
        examples = "{examples}"
        [network]
        hidden = [[40, 10]]
        [engine]
        name = "local"
        """
    )
    final = train_from_toml(tmp_path / "run.toml", ["training.num_epochs=1", "engine.name=inline"])
    assert final == tmp_path / "run" / "final.safetensors"
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["training"]["num_epochs"] == 1
    assert config["engine"]["name"] == "inline"
    with pytest.raises(ConfigError, match=r"training\.num_epochs was 1\.0 and is 2\.0"):
        train_from_toml(tmp_path / "run.toml", ["training.num_epochs=2"])


# -- the objective -----------------------------------------------------------------------------


def test_objective_of_weighted_and_soft_labels_is_what_it_is_by_hand() -> None:
    network = build(3, 4, hidden=[(10, 5)])
    torch.nn.init.normal_(network.output.weight)
    x, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 3, 0])
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0])
    soft = SoftLabels(
        torch.tensor([[0, 1], [1, 0], [2, 3], [3, 0], [0, 2]]),
        torch.tensor([[0.9, 0.1], [1.0, 0.0], [0.6, 0.4], [0.5, 0.3], [0.7, 0.3]]),
    )
    log_p = network.log_posteriors(x).double().tolist()
    outputs = network(x)

    def objective(w: torch.Tensor | None, s: SoftLabels | None) -> float:
        return log_probability(outputs, Minibatch(x, labels, w, s)).item()

    rows = range(5)
    hard = [log_p[i][int(labels[i])] for i in rows]
    mixed = [
        sum(float(soft.probabilities[i, k]) * log_p[i][int(soft.classes[i, k])] for k in range(2))
        for i in rows
    ]
    assert objective(None, None) == pytest.approx(sum(hard), rel=1e-5)
    assert objective(weights, None) == pytest.approx(
        sum(float(weights[i]) * hard[i] for i in rows), rel=1e-5
    )
    assert objective(None, soft) == pytest.approx(sum(mixed), rel=1e-5)
    assert objective(weights, soft) == pytest.approx(
        sum(float(weights[i]) * mixed[i] for i in rows), rel=1e-5
    )


def weighted_vectors(weights: Any) -> Any:
    random = np.random.default_rng(3)
    labels = np.arange(600) % 2
    features = random.normal(size=(600, 3)).astype(np.float32) + labels[:, None]
    return segments_of_vectors(features, labels, weights=weights)


def test_examples_of_weight_zero_do_not_count(tmp_path: Path) -> None:
    weights = np.tile(np.array([1.0, 0.0], dtype=np.float32), 300)
    build_examples(
        tmp_path / "examples",
        [partial(weighted_vectors, weights)],
        num_classes=2,
        samples_per_job=300,
    )
    config = small_config(
        tmp_path / "run",
        tmp_path / "examples",
        network={"hidden": [[20, 5]], "output": "plain"},
        training={"num_jobs": 1, "num_epochs": 4},
        combination={"method": "last"},
    )
    train(config)
    jobs = events_of(tmp_path / "run", "job")
    assert jobs[0]["samples"] == pytest.approx(150, abs=30)
    assert jobs[-1]["objective"] > -0.1  # one class alone has weight


class LosesCombinations(Executor):
    """An engine that loses the first calls that combine models."""

    def __init__(self, engine: Executor, lost: list[Exception]) -> None:
        self.engine, self.lost = engine, lost

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if fn.__name__ != "combine_job" or not self.lost:
            return self.engine.submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.set_exception(self.lost.pop(0))
        return future


@pytest.mark.parametrize("error", [WorkerLost("gone"), CombinationError("no model is finite")])
def test_combination_that_is_lost_is_run_again_but_one_that_fails_is_not(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    engine = LosesCombinations(open_engine("inline", 1), [error, error])
    monkeypatch.setattr("natgrad.recipes.train.open_engine", lambda *_, **__: engine)
    config = small_config(tmp_path, examples, training={"num_epochs": 1})
    if isinstance(error, WorkerLost):
        assert train(config).exists()
    else:
        with pytest.raises(RunFailedError, match="could not be combined: no model is finite"):
            train(config)
        assert len(engine.lost) == 1
