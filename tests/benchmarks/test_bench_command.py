"""`natgrad bench`: finds a checkout, and runs, lists and shows its benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import NAMES, list_benchmarks
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.machine import ROOT
from benchmarks.result_file import Results
from benchmarks.table import Row, Table
from natgrad.cli import main
from natgrad.cli.bench import find_checkout


def write_results(directory: Path, name: str) -> None:
    table = Table("title of the table", "ms", (Row("a", (1.0,)),))
    directory.mkdir(parents=True, exist_ok=True)
    Results(name, False, {}, {}, (table,)).write(directory / f"{name}.json")


# -- which checkout ------------------------------------------------------------------------------


def make_checkout(root: Path) -> Path:
    for file in ("benchmarks/__init__.py", "benchmarks/__main__.py", "natgrad/__init__.py"):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("")
    return root


def test_checkout_is_the_nearest_around_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = make_checkout(tmp_path / "clone")
    (checkout / "docs" / "deep").mkdir(parents=True)
    monkeypatch.chdir(checkout / "docs" / "deep")
    assert find_checkout(None) == checkout
    other = make_checkout(tmp_path / "other")
    assert find_checkout("../../../other") == checkout / "docs" / "deep" / "../../../other"
    assert find_checkout("../../../other").resolve() == other


def test_checkout_of_the_natgrad_that_runs_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_checkout(None) == ROOT


def test_without_a_checkout_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("natgrad.cli.bench.__file__", str(tmp_path / "site/natgrad/cli/bench.py"))
    assert main(["bench", "step"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"natgrad: neither {tmp_path} nor what is above it has benchmarks/")
    assert error.endswith("Go to a clone of the repository, or name it by --from CHECKOUT\n")
    assert main(["bench", "--from", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("natgrad: nowhere has no benchmarks/")


def test_command_hands_over_to_the_checkouts_own_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkout = make_checkout(tmp_path / "clone")
    tell = "import sys, natgrad; print(natgrad.__file__, sys.argv[1:]); sys.exit(7)"
    (checkout / "benchmarks" / "__main__.py").write_text(tell)
    arguments = ["a", "b", "--quick", "--show", "--list", "--results", "R", "--run", "D"]
    assert main(["bench", "--from", str(checkout), *arguments]) == 7
    expected = ["a", "b", "--list", "--show", "--quick", "--results", "R", "--run", "D"]
    assert capfd.readouterr().out == f"{checkout / 'natgrad/__init__.py'} {expected}\n"


def test_benchmark_that_is_killed_is_a_failure(tmp_path: Path) -> None:
    checkout = make_checkout(tmp_path / "clone")
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    (checkout / "benchmarks" / "__main__.py").write_text(kill)
    assert main(["bench", "--from", str(checkout)]) == 1


# -- list, show, run -----------------------------------------------------------------------------


def test_list_has_every_benchmark_with_what_it_measures() -> None:
    lines = list_benchmarks().splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert lines[0].endswith(
        "What a training step costs: NGSGD against torch.optim.SGD and the bare matrix products."
    )


def test_list_and_show_do_not_wait_for_torch(tmp_path: Path) -> None:
    write_results(tmp_path, "data")
    for arguments in (["--list"], ["--show", "--results", str(tmp_path)]):
        command = [sys.executable, "-X", "importtime", "-m", "benchmarks", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "benchmarks.text" in imported
        assert not {"torch", "numpy"} & imported


def test_without_names_all_that_was_saved_is_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path, "data")
    write_results(tmp_path, "step")
    assert main(["bench", "--from", str(ROOT), "--results", str(tmp_path)]) == 0
    heads = [line for line in capfd.readouterr().out.splitlines() if line.endswith("unknown")]
    assert [head.split(":")[0] for head in heads] == ["step", "data"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dance"], "there is no benchmark 'dance': the benchmarks are step, convergence,"),
        (["--show"], "no benchmark has results in"),
        ([], "no benchmark has results in"),
        (["--show", "step"], "step.json is not there: run  natgrad bench step  to have it"),
        (["step", "--run", "exp"], "--run is for the benchmark decode, which is not among step"),
    ],
)
def test_bad_input_gets_an_error_that_helps(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmarks_main([*arguments, "--results", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_results_that_cannot_be_read_do_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path, "data")
    (tmp_path / "step.json").write_text("{}")
    assert benchmarks_main(["--results", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert "title of the table" in captured.out
    assert "step.json has no results of format 1" in captured.err


def test_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    write_results(tmp_path, "data")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "benchmarks", "--results", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_benchmarks_run_in_processes_of_their_own_and_one_that_fails_stops_no_other(
    tmp_path: Path,
) -> None:
    """In a copy, where benchmarks are tiny; started where another `benchmarks` is in the way."""
    clone = tmp_path / "clone"
    skip = shutil.ignore_patterns("results", "__pycache__")
    shutil.copytree(ROOT / "benchmarks", clone / "benchmarks", ignore=skip)
    (clone / "natgrad").mkdir()
    for file in ("atomic.py", "machine.py", "version.py"):
        shutil.copy(ROOT / "natgrad" / file, clone / "natgrad")
    (clone / "natgrad" / "__init__.py").write_text("")
    say = "import os, sys\nprint('{}', os.getpid(), sys.argv[1:], flush=True)\nsys.exit({})\n"
    (clone / "benchmarks" / "step.py").write_text(say.format("step", 2))
    (clone / "benchmarks" / "decode.py").write_text(say.format("decode", 0))
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "decode.py").write_text(say.format("wrong", 0))
    command = [
        sys.executable,
        "-P",
        "-m",
        "benchmarks",
        "step",
        "decode",
        "--run",
        "exp",
        "--quick",
    ]
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    said = [line.split(maxsplit=2) for line in done.stdout.splitlines() if "[" in line]
    assert [(name, arguments) for name, _, arguments in said] == [
        ("step", "['--quick']"),
        ("decode", "['--quick', '--run', 'exp']"),
    ]
    assert len({pid for _, pid, _ in said}) == 2
    assert done.stderr == "failed: step\n"
    assert done.returncode == 2
