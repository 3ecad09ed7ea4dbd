from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from natgrad.run.config import ConfigError
from natgrad.run.directory import RunDirectory, RunInUseError
from natgrad.run.model_file import write_model

DRIVER = """
import sys
from natgrad.run.directory import RunDirectory
with RunDirectory(sys.argv[1]).drive():
    print("driving", flush=True)
    sys.stdin.read()
"""


def driver(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "driving\n"
    return process


def test_second_driver_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    with driver(tmp_path) as first:
        with (
            pytest.raises(RunInUseError, match=f"in use by process {first.pid} on "),
            RunDirectory(tmp_path).drive(),
        ):
            pass
        first.kill()


def test_lock_ends_with_a_killed_driver(tmp_path: Path) -> None:
    with driver(tmp_path) as first:
        first.kill()
    with RunDirectory(tmp_path).drive():
        pass


def test_last_iteration_is_that_of_the_last_whole_model(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert run.last_iteration() is None
    with run.drive():
        for number in (0, 1, 12):
            write_model(run.model(number), {"w": torch.ones(1)}, {})
        write_model(run.remodelled(13), {"w": torch.ones(1)}, {})
        (tmp_path / "models" / "0014.safetensors.0123.part").write_text("half")
    assert run.last_iteration() == 12


def test_pruning_keeps_what_it_is_told_to(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.drive():
        for number in range(5):
            write_model(run.model(number), {"w": torch.ones(1)}, {})
        write_model(run.remodelled(2), {"w": torch.ones(1)}, {})
        run.prune_models({1, 4})
    names = {file.name for file in (tmp_path / "models").iterdir()}
    assert names == {"0001.safetensors", "0004.safetensors"}


def test_another_configuration_is_refused_by_the_name_of_its_key(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.drive():
        run.keep_config({"training": {"num_jobs": 2}, "engine": {"name": "local"}}, ("engine",))
        run.keep_config({"training": {"num_jobs": 2}, "engine": {"name": "slurm"}}, ("engine",))
        with pytest.raises(ConfigError, match=r"training\.num_jobs was 2 and is 3; .* not set"):
            run.keep_config({"training": {"num_jobs": 3, "more": 1}, "engine": {}}, ("engine",))
