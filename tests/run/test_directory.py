from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from natgrad.run.config import ConfigError
from natgrad.run.directory import RunDirectory, RunInUseError
from natgrad.run.model_file import read_model, write_model

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


def test_what_was_left_to_the_next_iteration_is_removed_but_for_the_last(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.drive():
        for number in (1, 2):
            for path in (run.model(number), run.next_start(number), run.momentum(number)):
                write_model(path, {"w": torch.ones(1)}, {})
            run.clear_states(number)
            write_model(run.states(number, 1)[0], {"w": torch.ones(1)}, {})
        assert run.last_iteration() == 2
        run.prune_handover(2)
        names = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.safetensors")}
        assert names == {
            "models/0001.safetensors",
            "models/0002.safetensors",
            "models/0002.next.safetensors",
            "models/0002.momentum.safetensors",
            "states/0002/0-of-1.safetensors",
        }
        run.prune_handover()
    names = {file.name for file in tmp_path.rglob("*.safetensors")}
    assert names == {"0001.safetensors", "0002.safetensors"}


def test_states_of_jobs_take_the_place_of_what_a_crash_has_left(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.clear_states(3)
    for state in run.states(3, 4):
        write_model(state, {"w": torch.tensor(-1.0)}, {})
    run.job_state(3, 0).parent.mkdir(parents=True)
    for job in (0, 2):
        write_model(run.job_state(3, job), {"w": torch.tensor(float(job))}, {})
    run.keep_job_states(3, [0, 2])
    assert run.states_left(3) == run.states(3, 2)
    assert [read_model(state).tensors["w"].item() for state in run.states(3, 2)] == [0.0, 2.0]
    run.states(3, 2)[1].unlink()
    assert run.states_left(3) == run.states(3, 2)  # that one is lost is not forgotten


def test_older_configuration_has_the_values_that_were_meant_by_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.drive():
        run.keep_config({"training": {"num_jobs": 2}})
        now = {"training": {"num_jobs": 2}, "outer": {"momentum": 0.0}}
        run.keep_config(now, added={"outer": {"momentum": 0.0}})
        now["outer"] = {"momentum": 0.9}
        with pytest.raises(ConfigError, match=r"outer\.momentum was 0\.0 and is 0\.9"):
            run.keep_config(now, added={"outer": {"momentum": 0.0}})
        # A new key of a table that was there; what the run began with stays.
        added = {"training": {"num_threads": 1, "num_jobs": 1}}
        new = {"training": {"num_jobs": 2, "num_threads": 1}, "outer": {"momentum": 0.0}}
        assert run.differences(new, added=added) == []
        assert run.differences(new) == ["training.num_threads was not set and is 1"]


def test_another_configuration_is_refused_by_the_name_of_its_key(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    with run.drive():
        run.keep_config({"training": {"num_jobs": 2}, "engine": {"name": "local"}}, ("engine",))
        run.keep_config({"training": {"num_jobs": 2}, "engine": {"name": "slurm"}}, ("engine",))
        with pytest.raises(ConfigError, match=r"training\.num_jobs was 2 and is 3; .* not set"):
            run.keep_config({"training": {"num_jobs": 3, "more": 1}, "engine": {}}, ("engine",))
