"""From recordings to a store of features, utterances in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.mfcc import FeatureError, MfccOptions, mfcc
from natgrad.speech.features.shard import Shard, write_shard
from natgrad.speech.features.store import FeatureStore, write_index

__all__ = ["Extraction", "Recording", "extract"]

Floats = NDArray[np.float32]

# Each batch is a shard: enough of them to keep workers busy, but not thousands of files.
SMALLEST_BATCH_UTTERANCES = 16
MOST_BATCHES = 128


class Recorded(Protocol):
    """An utterance that was recorded: a part of a file, or all of it."""

    @property
    def key(self) -> str: ...
    @property
    def path(self) -> Path: ...
    @property
    def begin_seconds(self) -> float | None: ...
    @property
    def end_seconds(self) -> float | None: ...


class Recording(NamedTuple):
    """A recorded utterance, and no more than that; for extract, any Utterance will do."""

    key: str
    path: Path
    begin_seconds: float | None = None
    end_seconds: float | None = None


class Sound(Protocol):
    """What was read: samples within [-1, 1]."""

    @property
    def samples(self) -> Floats: ...
    @property
    def sample_rate(self) -> int: ...


class ReadAudio(Protocol):
    """Reads a part of a file, resampled if need be; natgrad.speech.data.audio.read_audio is one."""

    def __call__(
        self,
        path: Path,
        sample_rate: int,
        begin_seconds: float | None,
        end_seconds: float | None,
        /,
    ) -> Sound: ...


class Extraction(NamedTuple):
    """The features of the utterances that have any, and why each of the others has none."""

    store: FeatureStore
    failures: dict[str, str]


def extract(
    utterances: Iterable[Recorded],
    options: MfccOptions,
    out: str | Path,
    executor: Executor,
    read_audio: ReadAudio,
) -> Extraction:
    """Compute the MFCC of recorded utterances and write them as a store.

    An utterance that cannot be read, is too short, or has features that are not finite is among
    the failures, with the reason; the others are as they would be without it. The files are the
    same whatever the executor.

    Args:
        utterances: with different keys.
        options: of the features; recordings are resampled to their sample rate.
        out: the store's directory; an earlier store there is replaced.
        executor: runs batches of utterances.
        read_audio: natgrad.speech.data.audio.read_audio, or another that the executor can pickle.
            What it cannot read, it says by a ValueError or an OSError.

    Raises:
        FeatureError: two utterances have the same key.
        StorageError: a file cannot be written.
    """
    out = Path(out)
    recordings = [Recording(u.key, u.path, u.begin_seconds, u.end_seconds) for u in utterances]
    _check_keys(recordings)
    out.mkdir(parents=True, exist_ok=True)
    size = max(SMALLEST_BATCH_UTTERANCES, -(-len(recordings) // MOST_BATCHES))
    batches = [
        Batch(number, recordings[first : first + size], options, out, read_audio)
        for number, first in enumerate(range(0, len(recordings), size))
    ]
    shards: list[Shard] = []
    failures: dict[str, str] = {}
    for shard, failed in _run(executor, batches):
        if shard.places:
            shards.append(shard)
        failures |= failed
    store = write_index(out, shards, options.num_cepstra, {"mfcc": asdict(options)})
    return Extraction(store, failures)


@dataclass(frozen=True)
class Batch:
    """Some utterances, and all that is needed to write a shard of them."""

    number: int
    recordings: list[Recording]
    options: MfccOptions
    out: Path
    read_audio: ReadAudio


def extract_batch(batch: Batch) -> tuple[Shard, dict[str, str]]:
    """Write a shard of a batch; return it, and why utterances failed."""
    failures: dict[str, str] = {}

    def features() -> Iterator[tuple[str, Floats]]:
        for recording in batch.recordings:
            try:
                values = _compute(recording, batch.options, batch.read_audio)
            except (ValueError, OSError) as error:
                failures[recording.key] = str(error)
            else:
                yield recording.key, values

    shard = write_shard(batch.out, batch.number, features(), batch.options.num_cepstra)
    return shard, failures


def _compute(recording: Recording, options: MfccOptions, read_audio: ReadAudio) -> Floats:
    _, path, begin, end = recording
    sound = read_audio(path, options.sample_rate, begin, end)
    if sound.sample_rate != options.sample_rate:
        raise FeatureError(
            f"{path} was read at {sound.sample_rate} Hz; expected {options.sample_rate}"
        )
    features = mfcc(sound.samples, options)
    if not np.isfinite(features).all():
        raise FeatureError(f"{path} gives features that are not finite: is it much too loud?")
    return features


def _run(executor: Executor, batches: list[Batch]) -> Iterator[tuple[Shard, dict[str, str]]]:
    futures: list[Future[tuple[Shard, dict[str, str]]]] = []
    try:
        futures += [executor.submit(extract_batch, batch) for batch in batches]
        for future in futures:
            yield future.result()
    finally:
        for future in futures:
            future.cancel()


def _check_keys(recordings: list[Recording]) -> None:
    seen: set[str] = set()
    for recording in recordings:
        if recording.key in seen:
            raise FeatureError(f"there are two utterances {recording.key}; keys must differ")
        seen.add(recording.key)
