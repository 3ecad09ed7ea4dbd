"""Files are there whole or not at all: with a full disk, without permission, killed at any time."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from natgrad.atomic import StorageError, leftovers, write_atomically
from natgrad.run.directory import RunDirectory
from natgrad.run.events import EventLog, read_events
from natgrad.run.model_file import read_model, write_model


@contextmanager
def largest_file(num_bytes: int) -> Iterator[None]:
    """Let the kernel refuse, as a full disk does, what goes beyond."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


def test_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model"
    write_atomically(path, [b"old"])
    with largest_file(1000), pytest.raises(StorageError, match=r"cannot write .*model: File too"):
        write_atomically(path, [b"x" * 900, b"x" * 900])
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model", b"old")]


def test_what_is_no_file_is_refused_and_stays_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for name, what in (("pipe", "device or a pipe"), ("directory", "directory")):
        with pytest.raises(StorageError, match=f"cannot write .*{name}: .*{what}"):
            write_atomically(tmp_path / name, [b"new"])
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert {file.name for file in tmp_path.iterdir()} == {"pipe", "directory"}


def test_full_disk_is_a_clear_error_and_earlier_models_stay_whole(small_disk: Path) -> None:
    run = RunDirectory(small_disk)
    with run.drive():
        tensors = {"weight": torch.randn(100_000)}
        write_model(run.model(0), tensors, {})
        write_model(run.model(1), tensors, {})
        with pytest.raises(StorageError, match=r"0002\.safetensors: No space left.*make room") as e:
            write_model(run.model(2), tensors, {})
        assert e.value.errno == errno.ENOSPC
        assert run.last_iteration() == 1
        assert torch.equal(read_model(run.model(1)).tensors["weight"], tensors["weight"])
        assert {file.name for file in run.model(1).parent.iterdir()} == {
            "0000.safetensors",
            "0001.safetensors",
        }


def test_event_that_finds_the_disk_full_is_a_clear_error(small_disk: Path) -> None:
    log = EventLog(small_disk / "events.jsonl")
    log.append("warning", message="the first")
    with pytest.raises(StorageError, match=r"events\.jsonl: No space left"):
        log.append("warning", message="x" * 2_000_000)
    assert read_events(log.path)[0]["message"] == "the first"


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = RunDirectory(tmp_path / "file")
    with (
        pytest.raises(StorageError, match=r"cannot write in the run directory .*file"),
        run.drive(),
    ):
        pass


def test_leftovers_are_the_temporary_files_of_write_atomically_alone(tmp_path: Path) -> None:
    met: list[Path] = []

    def chunks() -> Iterator[bytes]:
        met.extend(leftovers(tmp_path))  # as if it were killed now
        yield b"content"

    foreign = ["download.part", "model.0123.part", "model.0123456789ABCDEF.part", "model.part.gz"]
    for name in foreign:
        (tmp_path / name).touch()
    (tmp_path / "directory.0123456789abcdef.part").mkdir()
    write_atomically(tmp_path / "model", chunks())
    assert [file.name.split(".")[0] for file in met] == ["model"]
    assert met[0].suffix == ".part"
    assert leftovers(tmp_path) == []


WRITER = """
import sys, torch
from natgrad.run.model_file import write_model
size = 0
while True:
    size = size % 7 + 1
    write_model(sys.argv[1], {"weight": torch.full((size * 100_000,), float(size))}, {"size": size})
    print(size, flush=True)
"""


def test_file_whose_writer_is_killed_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for attempt in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.013 * attempt)
        writer.kill()
        writer.wait()
        writer.stdout.close()
        model = read_model(path)
        size = model.description["size"]
        assert torch.equal(model.tensors["weight"], torch.full((size * 100_000,), float(size)))
    with RunDirectory(tmp_path).drive():
        assert not list(tmp_path.glob("*.part"))
