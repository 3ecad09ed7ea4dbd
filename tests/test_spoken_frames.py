"""Frames of cepstra, and the phone at the centre of each: what a benchmark trains on."""

from __future__ import annotations

import re
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.spoken_frames import (
    ALLOPHONES,
    CLASSES,
    PHONES,
    frame_labels,
    mfcc,
    sources,
    utterances,
)
from natgrad.recipes.demo_speech import TRAINING_VOICES
from natgrad.recipes.sentences import sentence
from natgrad.recipes.synthesis import SILENCE, Phone, speak

RATE = 22050
SHIFT, LENGTH = 220, 551  # samples of 10 and 25 ms, rounded down


def noise(num_samples: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return 0.1 * np.random.default_rng(seed).standard_normal(num_samples, np.float32)


@pytest.mark.parametrize("num_samples", [LENGTH, LENGTH + SHIFT - 1, LENGTH + SHIFT, RATE])
def test_frames_are_those_that_fit_whole(num_samples: int) -> None:
    assert mfcc(noise(num_samples), RATE).shape == (1 + (num_samples - LENGTH) // SHIFT, 13)


def test_frame_begins_where_its_label_thinks() -> None:
    """A change of the sound changes those frames whose window reaches it, and no earlier one."""
    samples = noise(RATE)
    changed = samples.copy()
    changed[10_000:] = noise(RATE, seed=1)[10_000:]
    # Less a frame that is the same in both, as the mean is not.
    before, after = (mfcc(part, RATE) for part in (samples, changed))
    differs = np.abs((before - before[0]) - (after - after[0])).max(axis=1) > 1e-3
    expected = [frame * SHIFT + LENGTH > 10_000 for frame in range(len(before))]
    assert differs.tolist() == expected


def test_same_samples_give_the_same_features() -> None:
    assert np.array_equal(mfcc(noise(RATE), RATE), mfcc(noise(RATE), RATE))


def test_features_have_no_mean_and_do_not_tell_the_loudness() -> None:
    features = mfcc(noise(RATE), RATE, num_cepstra=20)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-4)
    np.testing.assert_allclose(mfcc(0.25 * noise(RATE), RATE, 20), features, atol=2e-3)


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 2000), min_size=1, max_size=10), data=st.data())
def test_label_is_the_phone_at_the_centre(lengths: list[int], data: st.DataObject) -> None:
    ends = np.cumsum(lengths).tolist()
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=len(ends), max_size=len(ends)))
    phones = [
        Phone(name, end - length, end)
        for name, end, length in zip(names, ends, lengths, strict=True)
    ]
    num_frames = max(0, 1 + (ends[-1] - LENGTH) // SHIFT)
    labels = frame_labels(phones, RATE, num_frames, {"a": 0, "b": 1, "c": 2})
    for frame in range(num_frames):
        centre = frame * SHIFT + LENGTH // 2
        (expected,) = (phone.name for phone in phones if phone.start <= centre < phone.end)
        assert "abc"[labels[frame]] == expected


def test_phone_without_a_class_is_named() -> None:
    with pytest.raises(ValueError, match=re.escape("no class: ['q', 'x']")):
        frame_labels([Phone(name, 0, 900) for name in "xaq"], RATE, 1, {"a": 0})


def test_frames_beyond_the_last_phone_are_refused() -> None:
    with pytest.raises(ValueError, match="centre at sample 275, but the phones end at 275"):
        frame_labels([Phone("a", 0, 275)], RATE, 1, {"a": 0})


def test_less_than_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="550 samples at 22050 Hz"):
        mfcc(noise(LENGTH - 1), RATE)


@pytest.mark.parametrize("dialect", sorted({voice.split("+")[0] for voice in TRAINING_VOICES}))
def test_every_phone_of_a_dialect_has_a_class(dialect: str) -> None:
    random = Random(dialect)
    said = set()
    for _ in range(4):
        text = " ".join(sentence(random) for _ in range(25))
        said |= {phone.name for phone in speak(text, f"{dialect}+m3", rate=400).phones}
    assert said <= set(CLASSES)


def test_classes_are_one_per_phone_and_silence_is_the_first() -> None:
    assert PHONES[0] == SILENCE
    assert list(PHONES[1:]) == sorted(PHONES[1:])
    assert sorted(set(CLASSES.values())) == list(range(len(PHONES)))
    assert not set(ALLOPHONES) & set(PHONES)


def test_any_division_into_sources_gives_the_same_segments() -> None:
    whole = list(utterances(5, seed=3))
    for per_source in (1, 2, 5):
        segments = [s for source in sources(5, seed=3, per_source=per_source) for s in source()]
        assert [segment.key for segment in segments] == [key for key, _, _ in whole]
        for segment, (_, features, labels) in zip(segments, whole, strict=True):
            assert np.array_equal(segment.features, features)
            assert np.array_equal(segment.labels, labels)


def test_another_seed_says_something_else() -> None:
    ((_, a, _),) = utterances(1, seed=0)
    ((_, b, _),) = utterances(1, seed=1)
    assert a.shape != b.shape


def test_voices_take_turns() -> None:
    keys = [key for key, _, _ in utterances(4, 0, ["en+m1", "en+f1"], first=1)]
    assert [key.rsplit("-", 2)[0] for key in keys] == ["en+f1", "en+m1"] * 2


def test_labels_have_silence_and_many_phones() -> None:
    labels = np.concatenate([labels for _, _, labels in utterances(10, seed=0)])
    share_of_silence = np.mean(labels == 0)
    assert 0.05 < share_of_silence < 0.3
    assert len(set(labels.tolist())) > 35
    assert labels.max() < len(PHONES)
