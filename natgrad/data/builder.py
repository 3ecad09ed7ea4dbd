"""Build a set of examples: read sources, scatter their pieces, write blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.data.block_columns import class_counts, write_block
from natgrad.data.claim import SPILL, claim
from natgrad.data.examples import BlockEntry, Examples, open_examples, write_index
from natgrad.data.pieces import (
    LARGEST_CONTEXT_SHARE,
    SHORTEST_PIECE_FRAMES,
    Cut,
    Pieces,
    concatenate,
)
from natgrad.data.scatter import Scattering, choose
from natgrad.data.segment import CheckedSegment, Segment, check
from natgrad.data.spill import open_table, read_pieces, spill
from natgrad.data.workers import Workers, workers

Source = Callable[[], Iterable[Segment]]

VALIDATION = "validation.block"
TRAIN_SUBSET = "train_subset.block"
SMALLEST_RUN_BYTES, LARGEST_RUN_BYTES = 2**22, 2**26


def build(
    directory: Path | str,
    sources: Sequence[Source],
    *,
    num_classes: int,
    left_context: int = 0,
    right_context: int = 0,
    num_jobs: int = 1,
    samples_per_job: int = 400_000,
    validation_samples: int = 0,
    validation_sources: Sequence[Source] = (),
    train_subset_samples: int = 0,
    piece_frames: int | None = None,
    seed: int = 0,
    num_workers: int = 1,
) -> Examples:
    """Write the segments of all sources as N x M blocks of examples in random order (C.2).

    The same sources and options give the same bytes, whatever the number of workers. Each worker
    holds about a block in memory; on disk, the features need their size in float32 for the while.

    Args:
        directory: new, empty, or left behind by a build that was interrupted.
        sources: called without arguments, in any order and in any process (so they are picklable
            functions or functools.partial of them), each yields its `Segment`s.
        num_classes: labels are below it.
        left_context, right_context: how many frames an example has beside its own.
        num_jobs: N, the parallel jobs.
        samples_per_job: K; M is chosen for blocks to have about as many samples.
        validation_samples: about as many samples are held out, as whole segments.
        validation_sources: instead of these, sources of their own: of other speakers, say.
        train_subset_samples: about as many training samples are copied into the training subset.
        piece_frames: the fewest frames of the pieces that segments are cut into (if they have as
            many). By default so many that stored context is at most 8 % of the samples.
        seed: of all random choices.
        num_workers: processes. If more than one, the main script must be importable.

    Raises:
        ValueError: an argument or a segment is wrong; it is named.
        FileExistsError: the directory has something else in it, or a finished set.
        OSError: what cannot be read or written.
    """
    directory = Path(directory)
    piece_frames = _default_piece_frames(left_context + right_context, piece_frames)
    rule = Cut(left_context, right_context, piece_frames)
    _check_counts(
        0, left_context=left_context, right_context=right_context, seed=seed,
        validation_samples=validation_samples, train_subset_samples=train_subset_samples,
    )  # fmt: skip
    _check_counts(
        1, num_classes=num_classes, num_jobs=num_jobs, samples_per_job=samples_per_job,
        piece_frames=piece_frames, num_workers=num_workers,
    )  # fmt: skip
    if validation_sources and validation_samples:
        raise ValueError("Give either validation_samples or validation_sources (and not both).")
    with claim(directory), workers(num_workers) as pool:
        source_tasks = [
            SourceTask(source, number, directory / SPILL, num_classes, rule, seed, samples_per_job)
            for number, source in enumerate([*sources, *validation_sources])
        ]
        spilled, (feature_dim, side_dim) = _spill_sources(pool, source_tasks)
        runs = list(chain.from_iterable(spilled[: len(sources)]))
        scattering = choose(
            runs, num_jobs, samples_per_job, validation_samples, train_subset_samples
        )
        validation_runs = list(chain.from_iterable(spilled[len(sources) :]))
        write = BlockTask(directory, runs, validation_runs, scattering, num_classes, rule)
        blocks, counts = _write_blocks(pool, write)
        named = {block.path.name: block for block in blocks}
        examples = Examples(
            directory, feature_dim, side_dim, left_context, right_context, num_classes, counts,
            num_jobs, seed, tuple(blocks[: write.num_blocks]), named.get(VALIDATION),
            named.get(TRAIN_SUBSET),
        )  # fmt: skip
        write_index(examples)
    return open_examples(directory)


def _default_piece_frames(context: int, piece_frames: int | None) -> int:
    if piece_frames is not None:
        return piece_frames
    return max(SHORTEST_PIECE_FRAMES, math.ceil(context / LARGEST_CONTEXT_SHARE))


def _check_counts(smallest: int, **counts: int) -> None:
    for name, count in counts.items():
        if count < smallest:
            raise ValueError(f"{name} is {count}; expected at least {smallest}.")


# -- sources -> runs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceTask:
    """One source, and all that is needed to spill it."""

    source: Source
    number: int
    spill: Path
    num_classes: int
    rule: Cut
    seed: int
    samples_per_job: int


@dataclass(frozen=True)
class SpilledSource:
    """What a source gave: its runs, its dimensions, and a segment that had them."""

    runs: list[Path]
    dims: tuple[int, int] | None  # of features and side vectors; None if there were no segments
    first_key: str


def spill_source(task: SourceTask) -> SpilledSource:
    """Read a source and write its pieces as runs."""
    try:
        return _spill_source(task)
    except Exception as error:
        error.add_note(f"in source {task.number}: {task.source!r:.200}")
        raise


def _spill_source(task: SourceTask) -> SpilledSource:
    random = np.random.PCG64(np.random.SeedSequence([task.seed, task.number]))
    directory = task.spill / str(task.number)
    segments: Iterator[CheckedSegment] = (
        check(segment, task.num_classes) for segment in task.source()
    )
    first = next(segments, None)
    if first is None:
        return SpilledSource([], None, "")
    dims = _dims(first)
    # About half a block of float32, as sorting a run takes it in memory three times.
    run_bytes = task.samples_per_job * 2 * dims[0]
    run_bytes = min(max(run_bytes, SMALLEST_RUN_BYTES), LARGEST_RUN_BYTES)
    segments = _alike([first], segments)
    num_runs = spill(segments, directory, task.rule, random, run_bytes)
    return SpilledSource([directory / str(run) for run in range(num_runs)], dims, first.key)


def _dims(segment: CheckedSegment) -> tuple[int, int]:
    return segment.features.shape[1], len(segment.side)


def _alike(
    begin: Iterable[CheckedSegment], rest: Iterable[CheckedSegment]
) -> Iterator[CheckedSegment]:
    """All the segments, as long as they have the dimensions of the first."""
    first: CheckedSegment | None = None
    for part in (begin, rest):
        for segment in part:
            first = first or segment
            _check_alike(_dims(segment), segment.key, _dims(first), first.key)
            yield segment


def _check_alike(
    dims: tuple[int, int], key: str, expected: tuple[int, int], expected_key: str
) -> None:
    if dims != expected:
        raise ValueError(
            f"Segment {key!r}: it has {dims[0]} features per frame and a side vector of {dims[1]}; "
            f"expected {expected[0]} and {expected[1]}, as in segment {expected_key!r}."
        )


def _spill_sources(
    pool: Workers, tasks: Sequence[SourceTask]
) -> tuple[list[list[Path]], tuple[int, int]]:
    """The runs of each source, and the dimensions of features and side vectors of all."""
    spilled = pool.map(spill_source, tasks)
    expected: tuple[tuple[int, int], str] | None = None
    for source in spilled:
        if source.dims is not None:
            expected = expected or (source.dims, source.first_key)
            _check_alike(source.dims, source.first_key, *expected)
    if expected is None:
        raise ValueError(f"The {len(tasks)} sources have no segments; expected at least one.")
    return [source.runs for source in spilled], expected[0]


# -- runs -> blocks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockTask:
    """All that is needed to write blocks, and the name of one."""

    directory: Path
    runs: list[Path]
    validation_runs: list[Path]  # of sources that are for validation alone
    scattering: Scattering
    num_classes: int
    rule: Cut
    name: str = ""

    @property
    def num_blocks(self) -> int:
        """Training blocks."""
        return len(self.scattering.block_ranges) - 1

    def choose(self, table: NDArray[np.void]) -> NDArray[np.int64]:
        """The places of this block's pieces in the table of a run."""
        if self.name == VALIDATION:
            return np.flatnonzero(self.scattering.is_validation(table))
        if self.name == TRAIN_SUBSET:
            return np.flatnonzero(self.scattering.is_subset(table))
        return self.scattering.pieces_of_block(table, int(self.name.split(".")[0]))


def assemble_block(task: BlockTask) -> tuple[BlockEntry, NDArray[np.float64]]:
    """Collect a block's pieces from all runs and write it; its entry and its class counts."""
    pieces = concatenate(list(_pieces_of_block(task)))
    path = task.directory / task.name
    num_bytes = write_block(path, pieces, task.rule)
    entry = BlockEntry(path, pieces.num_samples, num_bytes)
    return entry, class_counts(pieces, task.num_classes)


def _pieces_of_block(task: BlockTask) -> Iterator[Pieces]:
    for run in task.runs:
        chosen = task.choose(open_table(run))
        if len(chosen):
            yield read_pieces(run, chosen)
    if task.name == VALIDATION:
        for run in task.validation_runs:
            yield read_pieces(run, np.arange(len(open_table(run))))


def _write_blocks(pool: Workers, write: BlockTask) -> tuple[list[BlockEntry], NDArray[np.float64]]:
    """The entries of all blocks, training blocks first; and the class counts of these."""
    names = [f"{block:06d}.block" for block in range(write.num_blocks)]
    is_validated = write.scattering.validation_limit or write.validation_runs
    names += [VALIDATION] if is_validated else []
    names += [TRAIN_SUBSET] if write.scattering.subset_limit else []
    fields = {name: value for name, value in vars(write).items() if name != "name"}
    results = pool.map(assemble_block, [BlockTask(**fields, name=name) for name in names])
    counts = np.sum([counts for _, counts in results[: write.num_blocks]], axis=0)
    return [entry for entry, _ in results], counts
