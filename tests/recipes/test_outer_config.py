"""The table [outer] in whole runs: what it does, and that runs are resumed with the same bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from natgrad.data import open_examples
from natgrad.recipes.network_job import parameter_names, restore
from natgrad.recipes.train import OuterConfig, TrainConfig, plan_of, train
from natgrad.run.config import ConfigError, from_mapping, to_mapping
from natgrad.run.model_file import read_model
from tests.recipes.small_run import events_of, small_config, small_examples

KEPT = {"momentum": 0.5, "job_lr_power": 0.5, "fisher": "kept"}
AVERAGED = {"momentum": 0.5, "nesterov": False, "learning_rate": 0.8, "fisher": "averaged"}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("outer") / "examples"
    small_examples(directory)
    return directory


class Cut(BaseException):
    """The driver's end."""


@pytest.mark.parametrize("outer", [KEPT, AVERAGED], ids=["kept", "averaged"])
@pytest.mark.parametrize("cut_at", [2, 3, 5])
def test_run_that_is_cut_off_goes_on_to_the_same_bits(
    examples: Path, tmp_path: Path, outer: dict[str, Any], cut_at: int
) -> None:
    """Before it has grown, in the iteration after, and later."""
    whole = train(small_config(tmp_path / "whole", examples, outer=outer))

    def cut(event: dict[str, Any]) -> None:
        if event["event"] == "iteration" and event["iteration"] == cut_at:
            raise Cut

    config = small_config(tmp_path / "cut", examples, outer=outer)
    with pytest.raises(Cut):
        train(config, on_event=cut)
    assert train(config).read_bytes() == whole.read_bytes()
    assert not list((tmp_path / "cut").rglob("*.momentum.*"))
    assert not list((tmp_path / "cut").glob("states/*"))


def test_local_processes_give_the_same_bits(examples: Path, tmp_path: Path) -> None:
    inline = train(small_config(tmp_path / "inline", examples, outer=KEPT))
    local = train(small_config(tmp_path / "local", examples, outer=KEPT, engine={"name": "local"}))
    assert inline.read_bytes() == local.read_bytes()


def test_each_option_changes_the_result_and_the_defaults_do_not(
    examples: Path, tmp_path: Path
) -> None:
    tables: list[dict[str, Any]] = [
        {},
        to_mapping(OuterConfig()),
        {"momentum": 0.5},
        {"momentum": 0.5, "nesterov": False},
        {"learning_rate": 0.8},
        {"job_lr_power": 0.5},
        {"fisher": "kept"},
        {"fisher": "averaged"},
    ]
    results = [
        train(
            small_config(
                tmp_path / str(number),
                examples,
                outer=table,
                training={"num_epochs": 1.5},  # momentum needs two steps to be felt
                network={"iterations_per_layer": 1},
                combination={"method": "last"},
            )
        ).read_bytes()
        for number, table in enumerate(tables)
    ]
    assert results[0] == results[1]
    assert len(set(results)) == len(results) - 1


def test_what_is_not_trained_is_not_moved(examples: Path, tmp_path: Path) -> None:
    outer = {"momentum": 0.9, "learning_rate": 0.7}
    train(small_config(tmp_path, examples, outer=outer, run={"keep_models": True}))
    first = read_model(tmp_path / "models" / "0000.safetensors")
    last = read_model(tmp_path / "models" / "0008.safetensors")
    fixed = last.tensors.keys() - parameter_names(last)
    assert fixed == {"input_transform.weight", "input_transform.bias", "prior_scale.scales"}
    for name in fixed:
        assert torch.equal(last.tensors[name], first.tensors[name]), name
    assert parameter_names(last) == {name for name, _ in restore(last).named_parameters()}


def test_agreement_of_jobs_is_told_of_all_layers(examples: Path, tmp_path: Path) -> None:
    train(small_config(tmp_path, examples, training={"num_epochs": 1}))
    for event in events_of(tmp_path, "iteration"):
        num_hidden = 1 if event["iteration"] < 3 else 2
        assert set(event["layer_cosines"]) == {
            "output",
            *(f"hidden.{i}.linear" for i in range(num_hidden)),
        }
        assert -1.0 <= event["cosine"] <= 1.0
    assert events_of(tmp_path, "iteration")[-1]["cosine"] > 0  # they learn the same


def test_learning_rate_of_a_job_is_the_effective_one_times_a_power_of_their_number(
    examples: Path, tmp_path: Path
) -> None:
    for power, factor in ((1.0, 4.0), (0.5, 2.0), (0.0, 1.0)):
        config = small_config(
            tmp_path, examples, training={"num_jobs": 4}, outer={"job_lr_power": power}
        )
        for iteration in plan_of(config, open_examples(examples)):
            if iteration.num_jobs == 4:
                expected = factor * iteration.effective_learning_rate
                assert iteration.learning_rate == pytest.approx(expected)


def test_run_of_before_there_was_the_table_is_resumed(examples: Path, tmp_path: Path) -> None:
    config = small_config(tmp_path, examples, training={"num_epochs": 1})
    final = train(config)
    before = final.read_bytes()
    older = json.loads((tmp_path / "config.json").read_text())
    del older["outer"]
    assert from_mapping(TrainConfig, older) == config
    final.unlink()
    (tmp_path / "config.json").write_text(json.dumps(older))
    other = small_config(tmp_path, examples, training={"num_epochs": 1}, outer={"momentum": 0.1})
    with pytest.raises(ConfigError, match=r"outer\.momentum was 0\.0 and is 0\.1"):
        train(other)
    assert train(config).read_bytes() == before
