"""The key training.native_kernels in whole runs: what it changes, and what it leaves as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natgrad.data import Minibatch
from natgrad.optim import use_native_kernels
from natgrad.optim.native import kernels as kernels_file
from natgrad.optim.native import kernels_in_use
from natgrad.parallel.engines import open_engine
from natgrad.parallel.outer import RunFailedError
from natgrad.recipes.network_job import NetworkLearner
from natgrad.recipes.reproduce.speech_runs import measure_run
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.train import TrainConfig, TrainingConfig, train
from natgrad.recipes.workshop import Workshop
from natgrad.run.config import ConfigError, from_mapping
from tests.conftest import has_compiler
from tests.optim.native import calls_of
from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, small_demo
from tests.recipes.small_run import events_of, small_config, small_examples

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")
TOLD = (
    r"training\.native_kernels is true: .* CC=no-such-compiler is no program that can be run: inst"
)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("native") / "examples"
    small_examples(directory)
    return directory


@pytest.fixture(autouse=True)
def not_in_use_afterwards() -> Iterator[None]:
    yield
    use_native_kernels(False)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not used the kernels, on a machine that cannot compile them."""
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(kernels_file, "_loaded", None)


def config_of(directory: Path, examples: Path, use: bool, **tables: dict[str, Any]) -> TrainConfig:
    """A configuration with products that are large enough for the kernels."""
    training = {"num_epochs": 1, "minibatch_size": 128, "native_kernels": use}
    network = {"hidden": [[400, 80], [400, 80]], "iterations_per_layer": 1}
    return small_config(directory, examples, training=training, network=network, **tables)


@needs_compiler
def test_run_with_the_kernels_is_repeatable_and_differs_from_one_without_in_rounding(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = calls_of("multiply", monkeypatch)
    without = train(config_of(tmp_path / "without", examples, False))
    assert not products
    native = train(config_of(tmp_path / "native", examples, True))
    assert products
    again = train(config_of(tmp_path / "again", examples, True))
    local = train(config_of(tmp_path / "local", examples, True, engine={"name": "local"}))
    assert native.read_bytes() == again.read_bytes() == local.read_bytes() != without.read_bytes()
    objectives = [
        [event["objective"] for event in events_of(tmp_path / name, "iteration")]
        for name in ("native", "without")
    ]
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-4)


class Cut(BaseException):
    """The end of a process."""


@needs_compiler
@pytest.mark.parametrize("error", [None, ValueError("a minibatch is bad"), Cut()])
@pytest.mark.parametrize("use", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_job_uses_what_it_is_told_and_the_process_goes_on_with_what_it_used(
    examples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: bool,
    use: bool,
    error: BaseException | None,
) -> None:
    used: list[bool] = []
    original = NetworkLearner.learn

    def learn(self: NetworkLearner, minibatch: Minibatch) -> tuple[float, float]:
        used.append(kernels_in_use() is not None)
        if error is not None:
            raise error
        return original(self, minibatch)

    monkeypatch.setattr(NetworkLearner, "learn", learn)
    use_native_kernels(before)
    in_use = kernels_in_use()
    config = config_of(tmp_path, examples, use)
    if error is None:
        train(config)
    else:
        with pytest.raises(Cut if isinstance(error, Cut) else RunFailedError):
            train(config)
    assert set(used) == {use}
    assert kernels_in_use() is in_use


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("engine", ["inline", "local"])
def test_run_here_without_a_compiler_is_refused_before_anything_is_written(
    examples: Path, tmp_path: Path, engine: str
) -> None:
    config = config_of(tmp_path / "run", examples, True, engine={"name": engine})
    with pytest.raises(ConfigError, match=TOLD) as error:
        train(config)
    assert "or leave the key out, which only makes training faster" in str(error.value)
    assert not (tmp_path / "run").exists()
    assert kernels_in_use() is None


@needs_compiler
def test_run_that_has_begun_is_not_told_to_leave_the_key_out(
    examples: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def cut(event: dict[str, Any]) -> None:
        if event["event"] == "iteration":
            raise Cut

    with pytest.raises(Cut):
        train(config_of(tmp_path, examples, True), on_event=cut)
    request.getfixturevalue("no_compiler")
    with pytest.raises(ConfigError, match=TOLD) as error:
        train(config_of(tmp_path, examples, True))
    assert "leave" not in str(error.value)
    with pytest.raises(ConfigError, match=r"training\.native_kernels was true and is false"):
        train(config_of(tmp_path, examples, False))


@needs_compiler
@pytest.mark.parametrize("use", [False, True])
def test_run_that_ended_as_it_began_keeps_to_its_choice(
    use: bool, examples: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def cut(event: dict[str, Any]) -> None:
        raise Cut

    with pytest.raises(Cut):
        train(config_of(tmp_path, examples, use), on_event=cut)
    request.getfixturevalue("no_compiler")
    was = rf"training\.native_kernels was {str(use).lower()} and is {str(not use).lower()}"
    with pytest.raises(ConfigError, match=was):
        train(config_of(tmp_path, examples, not use))
    if use:
        with pytest.raises(ConfigError, match=TOLD) as error:
            train(config_of(tmp_path, examples, True))
        assert "leave" not in str(error.value)


@needs_compiler
def test_run_that_began_without_is_not_told_to_install_a_compiler(
    examples: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    train(config_of(tmp_path, examples, False))
    request.getfixturevalue("no_compiler")
    with pytest.raises(ConfigError, match=r"training\.native_kernels was false and is true"):
        train(config_of(tmp_path, examples, True))


@pytest.mark.usefixtures("no_compiler")
def test_job_on_a_machine_without_a_compiler_fails_and_is_not_tried_again(
    examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only there: the driver needs none, if jobs are elsewhere."""
    elsewhere = open_engine("inline", 1)
    monkeypatch.setattr("natgrad.recipes.train.open_engine", lambda *_, **__: elsewhere)
    with pytest.raises(RunFailedError, match=f"job 0 of iteration 1 cannot be done on .*: {TOLD}"):
        train(config_of(tmp_path, examples, True, engine={"name": "ray"}))
    assert not events_of(tmp_path, "retry")
    assert kernels_in_use() is None


@needs_compiler
def test_run_of_before_there_was_the_key_goes_on_with_the_same_bits(
    examples: Path, tmp_path: Path
) -> None:
    whole = train(config_of(tmp_path / "whole", examples, False))

    def cut(event: dict[str, Any]) -> None:
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise Cut

    config = config_of(tmp_path / "cut", examples, False)
    with pytest.raises(Cut):
        train(config, on_event=cut)
    older = json.loads((tmp_path / "cut" / "config.json").read_text())
    del older["training"]["native_kernels"]
    assert from_mapping(TrainConfig, older) == config
    (tmp_path / "cut" / "config.json").write_text(json.dumps(older))
    with pytest.raises(ConfigError, match=r"training\.native_kernels was false and is true"):
        train(config_of(tmp_path / "cut", examples, True))
    assert train(config).read_bytes() == whole.read_bytes()


@needs_compiler
def test_finished_run_is_found_where_there_is_no_compiler(
    examples: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = config_of(tmp_path, examples, True)
    final = train(config)
    request.getfixturevalue("no_compiler")
    assert train(config) == final


def test_stages_and_measurements_of_before_there_was_the_key_are_not_done_again(
    tmp_path: Path,
) -> None:
    recipe = small_demo()
    for use in (False, True):
        training = TrainingConfig(native_kernels=use)
        config = replace(recipe.config, dnn=replace(recipe.config.dnn, training=training))
        shop = Workshop(config, SpeechFiles(tmp_path), INLINE, silent)
        stages = replace(recipe, config=config).stages(shop)
        (stage,) = (stage for stage in stages if stage.name == "dnn")
        measured = measure_run("run", 1, 1, training=training)
        for settings in (stage.settings, measured.settings):
            expected = {"native_kernels": True} if use else {}
            added = {k: v for k, v in settings["training"].items() if k == "native_kernels"}
            assert added == expected
            assert settings["training"]["num_threads"] == 1
