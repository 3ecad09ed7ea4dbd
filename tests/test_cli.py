"""The command `natgrad`: exit codes, one clear message, and no waiting for torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from natgrad.cli import main
from natgrad.run.model_file import read_model, write_model
from natgrad.version import __version__
from tests.report.made_runs import MadeRun


def run_natgrad(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", "-m", "natgrad", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A stand-in for natgrad.recipes.train: the command must hand over and report, no more."""
    module = ModuleType("natgrad.recipes.train")
    monkeypatch.setitem(sys.modules, "natgrad.recipes.train", module)
    return module


def fails(error: BaseException, started: bool) -> Any:
    def train_from_toml(path: str, overrides: Sequence[str], on_event: Any) -> None:
        if started:
            on_event({"event": "start", "num_iterations": 3, "resumed_from": None})
        raise error

    return train_from_toml


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_does_not_wait_for_torch(argument: str) -> None:
    done = run_natgrad(argument)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "natgrad.cli" in imported
    assert not {"torch", "numpy", "tqdm", "natgrad.report"} & imported
    expected = "COMMAND" if argument == "--help" else f"natgrad {__version__}"
    assert expected in done.stdout


def test_report_does_not_wait_for_torch(tmp_path: Path) -> None:
    run = MadeRun(num_iterations=2).write(tmp_path / "run")
    done = run_natgrad("report", str(run), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0
    assert done.stdout == f"{tmp_path / 'page.html'}\n"
    assert "<svg" in (tmp_path / "page.html").read_text()
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "torch" not in imported


@pytest.mark.parametrize(
    "arguments",
    [[], ["dance"], ["train"], ["average", "a"], ["average", "a", "-o", "b", "--weights", "1;2"]],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: natgrad" in capsys.readouterr().err


def test_bad_path_is_one_clear_message_and_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    for arguments in (["report", missing], ["info", missing], ["export", missing, "--onnx", "x"]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("natgrad: ")
        assert error.count("\n") == 1
        assert missing in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["info", ""], "the argument after 'info' is empty"),
        (["report", "run", "-o", ""], "the argument after '-o' is empty"),
        (["report", "run", "--out="], "--out= is empty"),
    ],
)
def test_empty_argument_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert told in capsys.readouterr().err


def test_what_the_system_says_is_told_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"natgrad: {tmp_path}: Is a directory: expected a file\n"
    missing = tmp_path / "missing.npz"
    assert main(["prepare", str(missing), "-o", str(tmp_path / "examples")]) == 2
    error = capsys.readouterr().err
    assert error == f"natgrad: {missing}: No such file or directory: check the name\n"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ModuleNotFoundError("No module named 'kaldifst.core'", name="kaldifst.core"),
            "No module named 'kaldifst.core': pip install 'natgrad[speech]'",
        ),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "No module named 'torch'"),
        (ModuleNotFoundError("ray: pip install it", name="ray"), "ray: pip install it"),
    ],
)
def test_missing_package_is_told_with_the_extra_that_brings_it(
    training: Any, capsys: pytest.CaptureFixture[str], error: Exception, told: str
) -> None:
    training.train_from_toml = fails(error, started=False)
    assert main(["train", "c.toml"]) == 2
    assert capsys.readouterr().err == f"natgrad: {told}\n"


def test_debug_shows_the_traceback_wherever_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    for arguments in (["--debug", "info", missing], ["info", "--debug", missing]):
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert "Traceback" in error
        assert error.splitlines()[-1].startswith("natgrad: there is no model file")


def test_train_hands_over_and_shows_progress(
    training: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def train_from_toml(path: str, overrides: Sequence[str], on_event: Any) -> Path:
        calls.append((path, list(overrides)))
        on_event({"event": "warning", "message": "it is late"})
        return Path("exp/final.safetensors")

    training.train_from_toml = train_from_toml
    arguments = ["train", "c.toml", "--resume", "--set", "a.b=1", "--set", "c=x"]
    assert main(arguments) == 0
    assert calls == [("c.toml", ["a.b=1", "c=x"])]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("exp/final.safetensors\n", "warning: it is late\n")


@pytest.mark.parametrize(
    ("error", "started", "code"),
    [
        (ValueError("unknown key 'x'"), False, 2),
        (FileNotFoundError(2, "No such file", "c.toml"), False, 2),
        (ValueError("block 3 is damaged"), True, 1),
        (OSError(28, "cannot write m: no space"), True, 1),
        (RuntimeError("no job is left"), True, 1),
        (RuntimeError("the run directory is in use"), False, 1),
    ],
)
def test_failed_run_exits_with_1_and_wrong_configuration_with_2(
    training: Any,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    started: bool,
    code: int,
) -> None:
    training.train_from_toml = fails(error, started)
    assert main(["train", "c.toml"]) == code
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert str(error.args[-1]) in text


def test_mistake_in_the_program_is_not_hidden(training: Any) -> None:
    training.train_from_toml = fails(KeyError("samples"), started=True)
    with pytest.raises(KeyError):
        main(["train", "c.toml"])


def test_interrupted_training_says_how_to_go_on(
    training: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    training.train_from_toml = fails(KeyboardInterrupt(), started=True)
    assert main(["train", "my config.toml", "--set", "a=1"]) == 130
    error = capsys.readouterr().err
    assert error == "interrupted; to go on: natgrad train 'my config.toml' --set a=1\n"


def test_average_and_info_work_on_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(tmp_path / name) for name in ("a", "b", "mean")]
    for path, value in zip(paths[:2], (1.0, 5.0), strict=True):
        write_model(path, {"w": torch.tensor([value])}, {})
    assert main(["average", *paths[:2], "--weights", "3,1", "-o", paths[2]]) == 0
    assert read_model(paths[2]).tensors["w"].item() == 2.0
    assert main(["info", *paths[:2]]) == 0
    assert capsys.readouterr().out.count("all values are finite") == 2


def test_report_writes_tensorboard_instead_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    monkeypatch.chdir(tmp_path)
    run = str(MadeRun(num_iterations=2).write(tmp_path / "run"))
    assert main(["report", run, "--tensorboard", "board"]) == 0
    assert not (tmp_path / "report.html").exists()
    assert list((tmp_path / "board" / "run").iterdir())
    assert main(["report", run]) == 0
    assert (tmp_path / "report.html").exists()
    assert capsys.readouterr().out == "board/run\nreport.html\n"


def test_arrays_are_prepared_trained_on_and_combined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real thing, from a file of numbers to a model."""
    random = np.random.default_rng(0)
    labels = np.arange(1200) % 3
    features = random.normal(size=(1200, 6)) + 2 * np.eye(3, 6)[labels]
    np.savez(tmp_path / "arrays.npz", features=features, labels=labels)
    examples, run = tmp_path / "examples", tmp_path / "run"
    counts = ["--samples-per-job", "200", "--validation-samples", "200"]
    counts += ["--train-subset-samples", "200", "--num-jobs", "2"]
    assert main(["prepare", str(tmp_path / "arrays.npz"), "-o", str(examples), *counts]) == 0
    prepared = capsys.readouterr().out
    assert "1000 samples of 3 classes in " in prepared
    assert prepared.endswith(" kB\n")
    (tmp_path / "run.toml").write_text(
        f'run = {{directory = "{run}", keep_models = true}}\ndata.examples = "{examples}"\n'
        "network = {hidden = [[20, 5]]}\ntraining = {num_epochs = 2, num_jobs = 2}\n"
    )
    arguments = ["train", str(tmp_path / "run.toml"), "--set", "engine.name=inline"]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert said.out == f"{run / 'final.safetensors'}\n"
    assert "iter 1/" in said.err
    models = [str(path) for path in sorted((run / "models").glob("*.safetensors"))[-3:]]
    combined = str(tmp_path / "combined")
    assert main(["combine", *models, "--examples", str(examples), "-o", combined]) == 0
    assert f"{combined}: objective -0." in capsys.readouterr().out
    assert read_model(combined).description["network"]["num_outputs"] == 3
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    assert main(["info", str(run), combined]) == 0
