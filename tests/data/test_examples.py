from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from natgrad.data import Block, ExamplesError, Segment, block_path, build, open_examples
from natgrad.data.claim import LOCK
from natgrad.data.examples import INDEX
from tests.data.corpus import Corpus

CORPUS = Corpus([30, 20, 25], feature_dim=2, side_dim=3)
OPTIONS: dict[str, Any] = {
    "num_classes": 80,
    "left_context": 1,
    "right_context": 2,
    "piece_frames": 5,
    "num_jobs": 2,
    "samples_per_job": 14,
    "validation_samples": 10,
    "train_subset_samples": 10,
}


def build_in(directory: Path) -> None:
    build(directory, [CORPUS], **OPTIONS)


# -- opening ---------------------------------------------------------------------------------


def test_open_finds_what_build_returned(tmp_path: Path) -> None:
    built = build(tmp_path, [CORPUS], **OPTIONS)
    opened = open_examples(str(tmp_path))
    assert np.array_equal(opened.class_counts, built.class_counts)
    assert {**vars(opened), "class_counts": 0} == {**vars(built), "class_counts": 0}
    assert opened.class_counts.shape == (80,)
    assert opened.class_counts.sum() == opened.num_samples
    assert (opened.feature_dim, opened.side_dim, opened.input_dim) == (2, 3, 11)
    assert (opened.left_context, opened.right_context, opened.num_jobs) == (1, 2, 2)
    assert opened.num_blocks == len(opened.block_paths) == 4
    assert opened.num_bytes == sum(path.stat().st_size for path in opened.block_paths)
    assert Block.read(opened.block_paths[0]).input_dim == 11


def test_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExamplesError, match=r"nowhere: not a finished set.*no such directory"):
        open_examples(tmp_path / "nowhere")
    with pytest.raises(ExamplesError, match=r"it has no examples\.json.*run again"):
        open_examples(tmp_path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not valid JSON"),
        ("[]", "not an index of examples"),
        ('{"format": "else"}', "not an index of examples"),
        ('{"format": "natgrad examples", "version": 99}', "version 99.*reads version 1"),
        ('{"format": "natgrad examples", "version": 1}', "lacks something"),
    ],
)
def test_foreign_index_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(ExamplesError, match=rf"{tmp_path}/examples\.json.*{problem}"):
        open_examples(tmp_path)


@pytest.mark.parametrize("name", ["000001.block", "validation.block", "train_subset.block"])
def test_missing_or_cut_block_is_named(tmp_path: Path, name: str) -> None:
    build_in(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ExamplesError, match=rf"{name}: it has \d+ bytes but should have"):
        open_examples(tmp_path)
    path.unlink()
    with pytest.raises(ExamplesError, match=f"{name}: missing"):
        open_examples(tmp_path)


def test_one_block_is_found_without_a_look_at_the_others(tmp_path: Path) -> None:
    build_in(tmp_path)
    paths = open_examples(tmp_path).block_paths
    assert [block_path(str(tmp_path), number) for number in range(len(paths))] == list(paths)
    paths[1].unlink()
    (tmp_path / "validation.block").unlink()
    assert block_path(tmp_path, 2) == paths[2]
    with pytest.raises(ExamplesError, match=r"000001.block: missing"):
        block_path(tmp_path, 1)
    with pytest.raises(ExamplesError, match=r"examples\.json: lacks something.*IndexError"):
        block_path(tmp_path, len(paths))
    with pytest.raises(ExamplesError, match=r"nowhere: not a finished set"):
        block_path(tmp_path / "nowhere", 0)


def test_set_can_be_moved(tmp_path: Path) -> None:
    build_in(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    assert Block.read(open_examples(tmp_path / "there").block_paths[1]).num_samples > 0


# -- building into a directory ---------------------------------------------------------------


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


def test_finished_set_is_not_built_over(tmp_path: Path) -> None:
    build_in(tmp_path)
    before = content(tmp_path)
    with pytest.raises(FileExistsError, match="there is a finished set of examples"):
        build_in(tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("names", [["thesis.tex"], ["thesis.tex", LOCK], ["000000.block"]])
def test_directory_with_other_files_is_left_alone(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("years of work")
    with pytest.raises(FileExistsError, match=rf"something else in it \({names[0]}\)"):
        build_in(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_directory_that_another_build_holds_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FileExistsError, match="another process is building"):
            build_in(tmp_path)
        assert (tmp_path / LOCK).exists()


def test_source_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def source() -> Iterator[Segment]:
        yield from CORPUS()
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match="the tape is torn"):
        build(tmp_path, [source], **OPTIONS)
    assert list(tmp_path.iterdir()) == []


def test_sources_without_segments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="The 2 sources have no segments"):
        build(tmp_path, [list, list], num_classes=2)


@pytest.mark.parametrize("failing_name", ["000001.block", INDEX])
def test_full_disk_leaves_no_set_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing_name: str
) -> None:
    def fsync(descriptor: int) -> None:
        if failing_name in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=rf"cannot write .*{failing_name}: No space left"):
        build_in(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    build_in(tmp_path)


SLOW_BUILD = """
import sys, time
from natgrad.data import builder
from tests.data.test_examples import CORPUS, OPTIONS

directory, stage = sys.argv[1:]

def wait(*_):
    print("ready", flush=True)
    time.sleep(60)

def source():
    yield from CORPUS()
    if stage == "spill":
        wait()

if stage == "index":
    builder.write_index = wait
builder.build(directory, [source], **OPTIONS)
"""


@pytest.mark.parametrize("stage", ["spill", "index"])
def test_killed_build_is_no_set_and_can_be_run_again(tmp_path: Path, stage: str) -> None:
    directory = tmp_path / "examples"
    command = [sys.executable, "-c", SLOW_BUILD, str(directory), stage]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    assert (directory / LOCK).exists()
    with pytest.raises(ExamplesError, match="not a finished set"):
        open_examples(directory)
    build_in(directory)
    build_in(tmp_path / "undisturbed")
    assert content(directory) == content(tmp_path / "undisturbed")


@pytest.mark.parametrize(
    ("name", "value", "smallest"),
    [
        ("left_context", -1, 0),
        ("right_context", -1, 0),
        ("validation_samples", -1, 0),
        ("train_subset_samples", -1, 0),
        ("seed", -1, 0),
        ("num_classes", 0, 1),
        ("num_jobs", 0, 1),
        ("samples_per_job", 0, 1),
        ("piece_frames", 0, 1),
        ("num_workers", 0, 1),
    ],
)
def test_wrong_argument_is_named(tmp_path: Path, name: str, value: int, smallest: int) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value}; expected at least {smallest}"):
        build(tmp_path, [CORPUS], **(OPTIONS | {name: value}))
