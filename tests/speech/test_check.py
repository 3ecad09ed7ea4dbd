from __future__ import annotations

import dataclasses
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import soundfile

from natgrad.speech.data.audio import Audio
from natgrad.speech.data.check import Problem, check, format_problems
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.data.sound_level import clipped_share, is_steady, loudest_decibels
from tests.speech.recordings import babble, write_recording

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def good(tmp_path: Path) -> DataDirectory:
    """Three utterances of two speakers, with nothing wrong."""
    return DataDirectory.of(
        Utterance(key, key[0], write_recording(tmp_path / f"{key}.flac"), text=("YES", "NO"))
        for key in ("a-1", "a-2", "b-1")
    )


def having(good: DataDirectory, **changes: object) -> DataDirectory:
    """Return the same with its second utterance changed."""
    changed = dataclasses.replace(good.utterances["a-2"], **changes)  # type: ignore[arg-type]
    return DataDirectory({**good.utterances, "a-2": changed})


def only_problem(problems: list[Problem]) -> tuple[str, str, str]:
    (problem,) = problems
    assert problem.remedy
    return problem.kind, problem.where, problem.message


def test_good_directory_has_no_problems(good: DataDirectory) -> None:
    assert check(good, lexicon_words={"YES", "NO", "MAYBE"}, other=DataDirectory({})) == []


def test_untranscribed_utterance_is_found(good: DataDirectory) -> None:
    found = only_problem(check(having(good, text=None), {"YES", "NO"}))
    assert found == ("untranscribed utterance", "a-2", "has no line in text")


def test_empty_text_is_found(good: DataDirectory) -> None:
    found = only_problem(check(having(good, text=())))
    assert found == ("empty text", "a-2", "its line in text has no words")


def test_words_that_the_lexicon_lacks_are_found_most_frequent_first(good: DataDirectory) -> None:
    problems = check(having(good, text=("YEA", "NO", "YEA")), {"NO", "YES"})
    assert only_problem(problems)[1:] == ("a-2", "'YEA' is not in the lexicon; 2 times in all")
    problems = check(having(good, text=("YEA", "NO")), {"YES"})
    assert [problem.message for problem in problems] == [
        "'NO' is not in the lexicon; 3 times in all",
        "'YEA' is not in the lexicon",
    ]
    assert len(check(good, lexicon_words=set())) == 2
    assert check(good, lexicon_words=None) == []


def test_speaker_in_both_sets_is_found(good: DataDirectory) -> None:
    other = DataDirectory.of([Utterance("a-9", "a", Path("/elsewhere.wav"))])
    kind, where, message = only_problem(check(good, other=other))
    assert (kind, where) == ("speaker in both sets", "a")
    assert "a-1" in message
    assert "a-9" in message


def test_recording_in_both_sets_is_found(good: DataDirectory) -> None:
    other = DataDirectory.of([Utterance("c-9", "c", good.utterances["b-1"].path)])
    kind, where, message = only_problem(check(good, other=other))
    assert (kind, where) == ("recording in both sets", "b-1")
    assert "b-1.flac is c-9 of the other set" in message


def test_recording_in_both_sets_is_found_whatever_the_way_to_it(
    good: DataDirectory, tmp_path: Path
) -> None:
    (tmp_path / "link.flac").symlink_to(tmp_path / "b-1.flac")
    for name in ("data/../b-1.flac", "link.flac"):
        other = DataDirectory.of([Utterance("c-9", "c", tmp_path / name)])
        kind, where, _ = only_problem(check(good, other=other))
        assert (kind, where) == ("recording in both sets", "b-1")


@pytest.mark.parametrize(
    ("kind", "name", "samples"),
    [
        ("samples not finite", "nan.wav", np.where(np.arange(8000) == 99, np.nan, babble())),
        ("clipped audio", "clip.wav", np.clip(babble() * 20, -1, 1)),
        ("clipped audio", "softer.wav", np.clip(babble() * 20, -1, 1) * 0.4),
        ("silence only", "zero.wav", np.zeros(8000)),
        ("silence only", "offset.wav", np.full(8000, 0.3)),
        ("silence only", "faint.wav", babble() * 1e-3),
        ("silence only", "noise.wav", 0.1 * np.random.default_rng(2).standard_normal(8000)),
        ("silence only", "hum.wav", 0.1 * np.sin(2 * np.pi * 50 / 16000 * np.arange(8000))),
        ("shorter than a frame", "short.wav", babble()[2000:2399]),
        ("empty audio", "empty.wav", np.zeros(0)),
        ("several channels", "stereo.wav", np.stack([babble(), babble()], axis=1)),
    ],
)
def test_recording_that_cannot_serve_is_found_and_no_other_harmed(
    good: DataDirectory, tmp_path: Path, kind: str, name: str, samples: np.ndarray[tuple[int, ...]]
) -> None:
    path = tmp_path / name
    soundfile.write(path, samples, 16000, subtype="FLOAT")
    found = only_problem(check(having(good, path=path)))
    assert found[:2] == (kind, "a-2")
    assert str(path) in found[2]


def test_clipping_is_found_through_a_lossy_codec(good: DataDirectory, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "clip.opus", np.clip(babble() * 20, -1, 1))
    assert only_problem(check(having(good, path=path)))[0] == "clipped audio"
    path = write_recording(tmp_path / "fine.opus", babble())
    assert check(having(good, path=path)) == []


def test_frame_of_25_ms_is_long_enough(good: DataDirectory, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "frame.wav", babble()[2000:2400])
    assert check(having(good, path=path)) == []


def test_missing_and_broken_recordings_are_found(good: DataDirectory, tmp_path: Path) -> None:
    good.utterances["a-1"].path.unlink()
    path = good.utterances["b-1"].path
    path.write_bytes(path.read_bytes()[:-100])
    one, two = check(good)
    assert (one.kind, one.where) == ("missing audio", "a-1")
    assert (two.kind, two.where) == ("unreadable audio", "b-1")
    assert str(path) in two.message


def test_segment_outside_its_recording_is_found(good: DataDirectory) -> None:
    found = only_problem(check(having(good, begin_seconds=0.1, end_seconds=3.0)))
    assert found[:2] == ("segment outside its recording", "a-2")


def test_only_the_segment_is_judged(good: DataDirectory, tmp_path: Path) -> None:
    samples = np.concatenate([babble(), np.zeros(8000, np.float32)])
    path = write_recording(tmp_path / "half.wav", samples)
    assert check(having(good, path=path, end_seconds=0.5)) == []
    assert only_problem(check(having(good, path=path, begin_seconds=0.5)))[0] == "silence only"


def test_other_sample_rate_is_found(good: DataDirectory, tmp_path: Path) -> None:
    path = write_recording(tmp_path / "rate.wav", babble(sample_rate=8000), 8000)
    found = only_problem(check(having(good, path=path)))
    message = "is at 8000 Hz, but 2 of 3 utterances at 16000 Hz"
    assert found == ("other sample rate", "a-2", message)


def test_directory_without_utterances_is_a_problem() -> None:
    assert only_problem(check(DataDirectory({})))[0] == "no utterances"


def test_executor_finds_the_same(good: DataDirectory) -> None:
    good.utterances["a-1"].path.unlink()
    good.utterances["b-1"].path.write_bytes(b"not a recording")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        assert check(good, {"YES"}, executor=executor) == check(good, {"YES"})


def test_problems_are_listed_by_kind_with_each_remedy_once(good: DataDirectory) -> None:
    good.utterances["a-1"].path.unlink()
    good.utterances["b-1"].path.unlink()
    text = format_problems(check(having(good, text=None)))
    assert text.count("->") == 2
    assert "missing audio (2)" in text
    assert all(key in text for key in good.utterances)


def test_levels_are_those_of_their_definitions() -> None:
    square = np.where(np.arange(4000) % 80 < 40, 0.1, -0.1).astype(np.float32)
    assert loudest_decibels(Audio(square, 16000)) == pytest.approx(-20, abs=1e-4)
    assert is_steady(Audio(square, 16000))
    assert not is_steady(Audio(square[:3000], 16000))  # 7 frames are too few to tell
    samples = np.array([0.5, 0.5, 0.5, 0.5, -0.6, -0.6, 0.5, 0.0, 1.0, 0.2], np.float32)
    assert clipped_share(samples) == 0.1
    assert clipped_share(samples[:8]) == 0.5
    assert clipped_share(samples[4:]) == pytest.approx(1 / 6)


def test_an4_has_no_problems() -> None:
    source = SHARED / "data/an4/wav/an4test_clstk"
    paths = sorted(source.glob("*/*.flac"))[::4]
    if not paths:
        pytest.skip("needs ../shared/data/an4")
    data = DataDirectory.of(
        Utterance(path.stem, path.parent.name, path, text=("YES",)) for path in paths
    )
    assert check(data, {"YES"}) == []
