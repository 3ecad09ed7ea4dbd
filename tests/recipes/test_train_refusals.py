"""What a training run refuses: before it writes anything, or before it goes on."""

from __future__ import annotations

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from natgrad.data import build as build_examples
from natgrad.data import (
    segments_of_vectors,
)
from natgrad.recipes.combination import combine_models
from natgrad.recipes.train import TrainConfig, train, train_from_toml
from natgrad.run.config import ConfigError
from natgrad.run.model_file import ModelFileError
from tests.recipes.small_run import (
    NUM_CLASSES,
    NUM_FEATURES,
    events_of,
    small_config,
    small_examples,
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples") / "small"
    small_examples(directory)
    return directory


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"training": {"num_jobs": 0}}, "in 'training': num_jobs is 0, but must be at least 1"),
        ({"training": {"initial_num_jobs": 3}}, "initial_num_jobs is 3: .* from 1 to num_jobs, 2"),
        ({"training": {"final_effective_lr": 1.0}}, "final one not above the initial one"),
        ({"training": {"num_epoch": 1}}, "unknown key 'training.num_epoch': did you mean"),
        (
            {"network": {"num_subclasses": 9}},
            "num_subclasses is given, but output is 'prior_scale'",
        ),
        ({"network": {"hidden": [[12, 5]]}}, "12 units in 5 groups"),
        ({"network": {"initial_num_hidden": 7}}, "initial_num_hidden is 7, but hidden lists 2"),
        ({"optimizer": {"method": "adam"}}, "'optimizer.method' is 'adam', but must be one of"),
        ({"optimizer": {"update_period": 0}}, "in 'optimizer': update_period must be"),
        ({"optimizer": {"rank_in": -1}}, "in 'optimizer': rank_in must be"),
        ({"optimizer": {"alpha": math.nan}}, "in 'optimizer': alpha must be"),
        ({"optimizer": {"num_samples_history": 0.0}}, "in 'optimizer': num_samples_history must"),
        ({"optimizer": {"max_change_per_sample": -1.0}}, "max_change_per_sample must be positive"),
        ({"run": {"directory": ""}}, "in 'run': directory is empty"),
        ({"run": {"seed": 10**23}}, "in 'run': seed is 1000.*, but must be a number of 64 bits"),
        ({"training": {"num_epochs": math.inf}}, "num_epochs is inf, but must be .* finite"),
        (
            {"network": {"output": "mix_up", "num_subclasses": 0}},
            "num_subclasses is 0, but must be at least 1",
        ),
        (
            {"combinaton": {"method": "mean"}},
            "unknown key 'combinaton': did you mean 'combination'",
        ),
        ({"outer": {"momentum": 1.0}}, "in 'outer': momentum is 1.0, but must be"),
        ({"outer": {"learning_rate": 0.0}}, "in 'outer': the outer learning_rate is 0.0"),
        ({"outer": {"job_lr_power": 1.5}}, "in 'outer': job_lr_power is 1.5, but must be from 0"),
        ({"outer": {"fisher": "mean"}}, "'outer.fisher' is 'mean', but must be one of 'reset'"),
        (
            {"outer": {"fisher": "kept"}, "optimizer": {"method": "none"}},
            "outer.fisher is 'kept', but optimizer.method is 'none'",
        ),
    ],
)
def test_contradictory_configuration_is_named(
    examples: Path, tmp_path: Path, tables: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small_config(tmp_path, examples, **tables)


def test_run_too_short_for_its_network_is_refused(examples: Path, tmp_path: Path) -> None:
    shape = {"hidden": [[40, 10]] * 9}
    with pytest.raises(ConfigError, match=r"has 4 outer iterations.*added before iteration 17"):
        train(small_config(tmp_path, examples, network=shape, training={"num_epochs": 1}))


def test_what_training_cannot_begin_with_is_refused_before_anything_is_written(
    examples: Path, tmp_path: Path
) -> None:
    too_few = {"output": "mix_up", "num_subclasses": 2, "mix_up_at": 0.9}
    for network, message in (
        (too_few, "num_subclasses is 2, but the examples have .* classes"),
        ({"transfer_from": str(tmp_path / "missing")}, "there is no model file .*missing"),
    ):
        with pytest.raises(ValueError, match=message):
            train(small_config(tmp_path / "run", examples, network=network))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"run\.directory and data\.examples are both"):
        train(small_config(examples, examples))


def test_run_does_not_go_on_with_other_examples(tmp_path: Path) -> None:
    small_examples(tmp_path / "examples")
    config = small_config(tmp_path / "run", tmp_path / "examples")
    final = train(config).read_bytes()
    shutil.rmtree(tmp_path / "examples")
    small_examples(tmp_path / "examples", seed=7)
    assert train(config).read_bytes() == final  # it is finished, and nothing is trained
    (tmp_path / "run" / "final.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"began with other examples .* seed was .* and is 7"):
        train(config)
    shutil.rmtree(tmp_path / "run" / "models")  # as if it had not come to its first model
    other = train(config).read_bytes()
    shutil.rmtree(tmp_path / "examples")
    small_examples(tmp_path / "examples")
    shutil.rmtree(tmp_path / "run" / "models")
    (tmp_path / "run" / "final.safetensors").unlink()
    assert train(config).read_bytes() == final != other


def test_final_model_that_was_cut_short_is_told(tmp_path: Path, examples: Path) -> None:
    config = small_config(tmp_path / "run", examples)
    final = train(config)
    final.write_bytes(final.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match=r"final\.safetensors is not a whole model file"):
        train(config)


def test_unknown_engine_is_refused_before_anything_is_written(
    examples: Path, tmp_path: Path
) -> None:
    for engine, message in (
        ({"name": "slurmm"}, "there is no engine 'slurmm': the engines are inline, local"),
        ({"name": "local", "options": {"fast": 1}}, "the engine local has no option fast"),
    ):
        with pytest.raises(ValueError, match=message):
            train(small_config(tmp_path / "run", examples, engine=engine))
    assert not (tmp_path / "run").exists()


def test_combination_without_its_data_is_refused(tmp_path: Path) -> None:
    small_examples(tmp_path / "examples", train_subset_samples=0)

    def config(**combination: str) -> TrainConfig:
        return small_config(tmp_path / "run", tmp_path / "examples", combination=combination)

    for data in ("both", "train"):
        with pytest.raises(ConfigError, match=r"on the training subset, .* train_subset_samples"):
            train(config(data=data))
    train(config(data="validation"))
    assert events_of(tmp_path / "run", "diagnostics")[0]["train"] is None
    (event,) = events_of(tmp_path / "run", "combine")
    assert event["valid"]["objective"] == pytest.approx(event["objective"])


def test_held_out_examples_of_weight_zero_are_refused_before_the_run(tmp_path: Path) -> None:
    features, labels = np.ones((600, 3), dtype=np.float32), np.arange(600) % 2
    weightless = np.zeros(600, dtype=np.float32)
    build_examples(
        tmp_path / "examples",
        [partial(segments_of_vectors, features, labels, weights=weightless)],
        num_classes=2,
        samples_per_job=300,
        validation_samples=50,
    )
    config = small_config(
        tmp_path / "run", tmp_path / "examples", combination={"data": "validation"}
    )
    with pytest.raises(ConfigError, match=r"all samples in .* \(validation\) have weight 0"):
        train(config)
    assert not (tmp_path / "run").exists()


def test_models_are_not_combined_by_examples_that_do_not_fit(
    examples: Path, tmp_path: Path
) -> None:
    final = train(small_config(tmp_path / "run", examples, training={"num_epochs": 1}))
    random = np.random.default_rng(3)
    for num_features, num_classes, message in (
        (3, NUM_CLASSES, "have 12 inputs and 6 classes, but the examples in .* have 3 and 6"),
        (NUM_FEATURES, 7, "have 12 inputs and 6 classes, but the examples in .* have 12 and 7"),
    ):
        features = random.normal(size=(600, num_features)).astype(np.float32)
        other = tmp_path / f"{num_features}-{num_classes}"
        build_examples(
            other,
            [partial(segments_of_vectors, features, np.arange(600) % 2)],
            num_classes=num_classes,
            validation_samples=100,
            train_subset_samples=100,
        )
        with pytest.raises(ConfigError, match=message):
            combine_models([final, final], tmp_path / "out", other)


def test_mistakes_in_a_file_name_it_and_what_changed_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'run.directory = "run"\ndata.examples = "examples"\nnetwork.hidden = [[8, 4]]\n'
    )
    with pytest.raises(ConfigError, match=r"run\.toml, changed by training\.num_jobs=0: in 'tra"):
        train_from_toml(path, ["training.num_jobs=0"])
    path.write_text("netwrok.hidden = [9]\n")
    with pytest.raises(ConfigError, match=r"run\.toml: unknown key 'netwrok': did you mean"):
        train_from_toml(path)
