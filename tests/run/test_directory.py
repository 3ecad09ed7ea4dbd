from __future__ import annotations

import shutil
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


HALF = "model.safetensors.0123456789abcdef.part"


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("half")


def test_driver_removes_what_killed_writers_of_the_run_have_left(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    own = [run.config, run.model(3), run.job_result(4, 0), run.final_candidate, run.states(3, 1)[0]]
    left = [file.with_name(f"{file.name}.0123456789abcdef.part") for file in own]
    put(*own, *left)
    with run.drive():
        assert [file for file in left if file.exists()] == []
        assert all(file.exists() for file in own)


def test_driver_removes_no_file_of_anybody_else(tmp_path: Path) -> None:
    foreign = [
        tmp_path / "download.part",
        tmp_path / "notes" / "download.part",
        tmp_path / "models" / "best.part",
        tmp_path / "features" / HALF,  # not of this run
        tmp_path / "models" / "copies" / HALF,
    ]
    put(*foreign)
    with RunDirectory(tmp_path).drive():
        assert [file for file in foreign if not file.exists()] == []


@pytest.mark.parametrize("below", ["run", "models", "jobs/0001"])
def test_driver_does_not_disturb_a_run_that_lies_below(tmp_path: Path, below: str) -> None:
    with RunDirectory(tmp_path / below).drive():
        written_now = [tmp_path / below / HALF, tmp_path / below / "models" / HALF]
        put(*written_now)
        with RunDirectory(tmp_path).drive():
            assert all(file.exists() for file in written_now)


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


def test_files_that_are_no_iterations_are_ignored_and_left_alone(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    names = ["best.safetensors", "notes.txt", "7.safetensors", "0007.best.safetensors"]
    names += ["best.next.safetensors", "00007.safetensors", "final.model.safetensors"]
    foreign = [*(tmp_path / "models" / name for name in names), tmp_path / "states/notes/today"]
    with run.drive():
        put(*foreign, run.model(1), run.model(12345), run.next_start(1), *run.states(1, 2))
        put(run.states(1, 2)[0].with_name("mine-of-old.safetensors"))
        assert run.iterations() == [1, 12345]
        assert run.states_left(1) == run.states(1, 2)
        run.prune_handover(12345)
        run.prune_models({12345})
        assert run.iterations() == [12345]
    assert not run.next_start(1).exists()
    assert not run.states(1, 2)[0].exists()
    assert [file for file in foreign if not file.exists()] == []


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


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b'{"training": {"num_jo', "Unterminated string"),
        (b"", "Expecting value"),
        (b'["training"]', r'it is \["training"\]'),
        (b'{"training": "\xff"}', "codec"),
    ],
)
def test_damaged_configuration_is_refused_with_its_file_and_what_to_do(
    tmp_path: Path, content: bytes, found: str
) -> None:
    run = RunDirectory(tmp_path)
    run.config.write_bytes(content)
    message = rf"{run.config} is not the configuration .*{found}.*expected a JSON object.*remove it"
    with pytest.raises(ConfigError, match=message):
        run.keep_config({"training": {"num_jobs": 2}}, added={"training": {"num_threads": 1}})
    assert run.config.read_bytes() == content


def test_what_is_no_table_in_a_kept_configuration_is_a_difference(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.config.write_text('{"run": 5}')
    differing = run.differences({"run": {"seed": 1}}, added={"run": {"seed": 0}})
    assert differing == ['run was 5 and is {"seed": 1}']


def test_run_goes_on_however_its_paths_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def config(directory: str, examples: str, start: str | None = "a/model") -> dict[str, object]:
        tables = {"run": {"directory": directory, "seed": 1}, "data": {"examples": examples}}
        return {**tables, "network": {"transfer_from": start}}

    run = RunDirectory("run")
    with run.drive():
        run.keep_config(config("run", "ex"))
        run.keep_config(config("./run/", "./ex", "./a/../a/model"))
        run.keep_config(config(str(tmp_path / "run"), str(tmp_path / "ex")))
        with pytest.raises(ConfigError, match=r"data\.examples was .*ex\" and is \"other\""):
            run.keep_config(config("run", "other"))
        assert run.differences(config("run", "ex", None)) == [
            'network.transfer_from was "a/model" and is not set'
        ]
    shutil.move("run", "moved")
    assert RunDirectory("moved").differences(config("moved", "ex")) == []


def test_jobs_are_removed_and_nothing_else_is(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    for iteration in (7, 12345):
        run.job_result(iteration, 0).parent.mkdir(parents=True)
        run.job_result(iteration, 0).touch()
    run.final_candidate.with_suffix(".safetensors.0123456789abcdef.part").touch()
    run.remove_jobs()
    assert not (tmp_path / "jobs").exists()
    (tmp_path / "jobs" / "mine").mkdir(parents=True)
    run.job_result(7, 0).parent.mkdir()
    run.remove_jobs()
    assert [place.name for place in (tmp_path / "jobs").iterdir()] == ["mine"]
