"""Extraction: every utterance has its features, or the reason why it has none."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from natgrad.speech.data.audio import Audio, read_audio
from natgrad.speech.features.extraction import Recording, extract
from natgrad.speech.features.mfcc import FeatureError, MfccOptions, mfcc

SHARED = Path(__file__).parents[3] / "shared"
AN4 = SHARED / "data/an4/wav/an4test_clstk"
RATE = 8000
OPTIONS = MfccOptions(RATE)


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def noise(num_samples: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, num_samples)


def record(directory: Path, num: int = 40) -> list[Recording]:
    """Wave files, of which every utterance is all or a part."""
    recordings = []
    for number in range(num):
        path = directory / f"{number}.wav"
        soundfile.write(path, noise(RATE + 100 * number, number), RATE)
        part = (0.25, 0.75) if number % 2 else (None, None)
        recordings.append(Recording(f"utterance-{number:02d}", path, *part))
    return recordings


def expected_features(recording: Recording) -> NDArray[np.float32]:
    _, path, begin, end = recording
    return mfcc(read_audio(path, RATE, begin, end).samples, OPTIONS)


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_every_utterance_has_its_features(tmp_path: Path, threads: Executor) -> None:
    recordings = record(tmp_path)
    store, failures = extract(recordings, OPTIONS, tmp_path / "out", threads, read_audio)
    assert failures == {}
    assert list(store) == [recording.key for recording in recordings]
    for recording in recordings:
        np.testing.assert_allclose(store[recording.key], expected_features(recording), atol=1e-3)
    assert MfccOptions(**store.about["mfcc"]) == OPTIONS


def test_processes_write_the_files_that_threads_write(tmp_path: Path, threads: Executor) -> None:
    recordings = record(tmp_path, 20)
    extract(recordings, OPTIONS, tmp_path / "threads", threads, read_audio)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as processes:
        extract(recordings, OPTIONS, tmp_path / "processes", processes, read_audio)
    assert contents(tmp_path / "threads") == contents(tmp_path / "processes")


def test_failures_are_told_one_by_one_and_harm_no_other(tmp_path: Path, threads: Executor) -> None:
    recordings = record(tmp_path)
    good, _ = extract(recordings, OPTIONS, tmp_path / "good", threads, read_audio)
    one_frame, short, broken = (tmp_path / name for name in ("one.wav", "short.wav", "broken.wav"))
    soundfile.write(one_frame, noise(200), RATE)
    soundfile.write(short, noise(199), RATE)
    broken.write_bytes(b"RIFF this is no recording")
    nan = tmp_path / "nan.wav"
    soundfile.write(nan, np.append(noise(RATE), np.nan), RATE, subtype="FLOAT")
    bad = [
        Recording("short", short),
        Recording("broken", broken),
        Recording("absent", tmp_path / "absent.wav"),
        Recording("nan", nan),
    ]
    every = [*bad[:2], *recordings[:17], *bad[2:], *recordings[17:], Recording("one", one_frame)]
    store, failures = extract(every, OPTIONS, tmp_path / "out", threads, read_audio)
    assert list(failures) == ["short", "broken", "absent", "nan"]
    assert "199 samples at 8000 Hz; expected at least one frame" in failures["short"]
    for key, path in (("broken", broken), ("absent", tmp_path / "absent.wav"), ("nan", nan)):
        assert str(path) in failures[key]
    assert store.num_frames("one") == 1
    assert set(store) == {*good, "one"}
    for key in good:
        assert np.array_equal(store[key], good[key])


def test_silence_and_clipping_are_no_failures(tmp_path: Path, threads: Executor) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(RATE), RATE)
    soundfile.write(tmp_path / "clipped.wav", np.sign(noise(RATE)), RATE)
    recordings = [Recording(name, tmp_path / f"{name}.wav") for name in ("silent", "clipped")]
    store, failures = extract(recordings, OPTIONS, tmp_path / "out", threads, read_audio)
    assert (len(store), failures) == (2, {})


def test_recordings_of_another_rate_are_resampled(tmp_path: Path, threads: Executor) -> None:
    soundfile.write(tmp_path / "cd.wav", noise(44100), 44100)
    recordings = [Recording("cd", tmp_path / "cd.wav")]
    store, failures = extract(recordings, OPTIONS, tmp_path / "out", threads, read_audio)
    assert failures == {}
    assert store.num_frames("cd") == OPTIONS.num_frames(RATE)


def read_at_another_rate(path: Path, rate: int, begin: float | None, end: float | None) -> Audio:
    return read_audio(path, 2 * rate, begin, end)


def test_a_reader_that_gives_another_rate_is_found_out(tmp_path: Path, threads: Executor) -> None:
    recordings = record(tmp_path, 1)
    _, failures = extract(recordings, OPTIONS, tmp_path / "out", threads, read_at_another_rate)
    assert "was read at 16000 Hz; expected 8000" in failures["utterance-00"]


def test_where_all_fail_the_store_is_empty_and_all_are_told(
    tmp_path: Path, threads: Executor
) -> None:
    recordings = [Recording(f"{n}", tmp_path / f"absent-{n}.wav") for n in range(40)]
    store, failures = extract(recordings, OPTIONS, tmp_path / "out", threads, read_audio)
    assert (len(store), store.dim, len(failures)) == (0, 13, 40)


def test_two_utterances_of_the_same_key_are_refused(tmp_path: Path, threads: Executor) -> None:
    recordings = record(tmp_path, 1) * 2
    with pytest.raises(FeatureError, match="there are two utterances utterance-00"):
        extract(recordings, OPTIONS, tmp_path / "out", threads, read_audio)


class FailingExecutor(Executor):
    """Loses what it is given; remembers what was cancelled."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, *_args: Any, **_kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if not self.futures:
            future.set_exception(RuntimeError("the worker is gone"))
        self.futures.append(future)
        return future


def test_when_a_batch_is_lost_the_others_are_cancelled_and_no_store_is_made(
    tmp_path: Path,
) -> None:
    executor = FailingExecutor()
    with pytest.raises(RuntimeError, match="the worker is gone"):
        extract(record(tmp_path), OPTIONS, tmp_path / "out", executor, read_audio)
    assert len(executor.futures) > 1
    assert all(future.cancelled() for future in executor.futures[1:])
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(not AN4.exists(), reason=f"there is no {AN4}")
def test_recordings_of_an4_give_the_features_of_their_samples(
    tmp_path: Path, threads: Executor
) -> None:
    options = MfccOptions(16000)
    recordings = [Recording(path.stem, path) for path in sorted(AN4.glob("fvap/*.flac"))]
    store, failures = extract(recordings, options, tmp_path / "out", threads, read_audio)
    assert failures == {}
    assert len(store) == len(recordings) > 0
    for recording in recordings:
        samples, _ = soundfile.read(recording.path, dtype="float32")
        expected = mfcc(samples, options)
        step = np.ptp(expected, axis=0).max() / 65535
        np.testing.assert_allclose(store[recording.key], expected, atol=step)
