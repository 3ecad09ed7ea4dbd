"""Pieces on their way to the blocks: runs on disk, each sorted by the pieces' random keys.

How many blocks there will be is known only when all sources have been read. So pieces do not go to
blocks but get random keys; a block is then a range of keys, and finds its pieces of each run side
by side. It is an external sort, with sequential reads and writes only.

A run is a directory of plain arrays. It has at most `run_bytes` of pieces (but at least one
segment), which is what a worker holds in memory. All pieces of a segment are in one run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically
from natgrad.data.pieces import Cut, Pieces, concatenate, cut, frames_of, ranges
from natgrad.data.segment import CheckedSegment

ARRAYS = ("features", "side", "weights", "num_labels", "classes", "probabilities")


def spill(
    segments: Iterable[CheckedSegment],
    directory: Path,
    rule: Cut,
    random: np.random.PCG64,
    run_bytes: int,
) -> int:
    """Cut the segments and write their pieces as runs directory/0, directory/1, ...; how many."""
    num_runs = 0
    for batch in _batches(segments, rule, random, run_bytes):
        _write_run(directory / str(num_runs), batch)
        num_runs += 1
    return num_runs


def open_table(run: Path) -> NDArray[np.void]:
    """The table of a run's pieces, sorted by key: on disk, read where it is looked at."""
    return _open(run, "table")


def read_pieces(run: Path, chosen: NDArray[np.int64]) -> Pieces:
    """The pieces of a run with these indices; nothing else is read."""
    firsts = _open(run, "firsts")
    begins, ends = firsts[chosen], firsts[chosen + 1]
    frames, samples, labels = (ranges(begins[:, i], (ends - begins)[:, i]) for i in range(3))
    rows = (frames, chosen, samples, samples, labels, labels)
    columns = [_open(run, name)[part] for name, part in zip(ARRAYS, rows, strict=True)]
    names = json.loads((run / "names.json").read_text())
    return Pieces(open_table(run)[chosen], names, *columns).with_used_names()


def _open(run: Path, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(run / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    # Not as a memmap: the copies that are taken of it would be, too.
    return array.view(np.ndarray)


def _batches(
    segments: Iterable[CheckedSegment], rule: Cut, random: np.random.PCG64, run_bytes: int
) -> Iterator[Pieces]:
    waiting: list[Pieces] = []
    num_bytes = 0
    for segment in segments:
        pieces = cut(segment, rule, random)
        if waiting and num_bytes + pieces.num_bytes > run_bytes:
            yield concatenate(waiting)
            waiting, num_bytes = [], 0
        waiting.append(pieces)
        num_bytes += pieces.num_bytes
    if waiting:
        yield concatenate(waiting)


def _write_run(run: Path, pieces: Pieces) -> None:
    run.mkdir(parents=True)
    pieces = pieces.take(np.argsort(pieces.table["key"], kind="stable"))
    names = json.dumps(pieces.names).encode()
    write_atomically(run / "names.json", [names], durable=False)
    _save(run, "table", pieces.table)
    _save(run, "firsts", _firsts(pieces))
    for name in ARRAYS:
        _save(run, name, getattr(pieces, name))


def _save(run: Path, name: str, array: NDArray[Any]) -> None:
    # Not by numpy.save, whose error on a full disk names neither the file nor the reason.
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    write_atomically(run / f"{name}.npy", [header.getvalue(), array.data], durable=False)


def _firsts(pieces: Pieces) -> NDArray[np.int64]:
    """(P + 1, 3) the first frame, sample and label of each piece, and the numbers of all."""
    samples = np.concatenate([[0], np.cumsum(pieces.table["num_samples"], dtype=np.int64)])
    frames = np.concatenate([[0], np.cumsum(frames_of(pieces.table))])
    labels = np.concatenate([[0], np.cumsum(pieces.num_labels, dtype=np.int64)])[samples]
    return np.stack([frames, samples, labels], axis=1)
