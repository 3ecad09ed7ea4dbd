"""The demo's data: every phone has a class, no speaker is on both sides, any division is alike."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import espeakng_loader
import numpy as np
import pytest

from natgrad.recipes import demo_speech
from natgrad.recipes.demo_speech import (
    ALLOPHONES,
    CLASSES,
    HELD_OUT_VOICES,
    PHONES,
    TRAINING_VOICES,
    sources,
    spoken,
    utterances,
)
from natgrad.recipes.sentences import GRAMMAR, sentence
from natgrad.recipes.synthesis import SILENCE, speak

VOICES = TRAINING_VOICES + HELD_OUT_VOICES


def test_no_speaker_is_both_trained_on_and_held_out() -> None:
    variants = [voice.split("+")[1] for voice in VOICES]
    assert len(set(variants)) == len(variants)


def test_dialects_of_held_out_speakers_are_trained_on() -> None:
    dialects = {voice.split("+")[0] for voice in TRAINING_VOICES}
    assert {voice.split("+")[0] for voice in HELD_OUT_VOICES} <= dialects


def test_no_voice_has_an_echo() -> None:
    """An echo would fill the pauses, by whose silence the closures of stops are found."""
    variants = Path(espeakng_loader.get_data_path(), "voices", "!v")
    for voice in VOICES:
        settings = (variants / voice.split("+")[1]).read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"^\s*echo", settings, re.MULTILINE), voice


@pytest.mark.parametrize("dialect", sorted({voice.split("+")[0] for voice in VOICES}))
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


def test_every_rule_of_the_grammar_is_used_and_there() -> None:
    text = " ".join(
        alternative for alternatives in GRAMMAR.values() for alternative in alternatives
    )
    assert set(re.findall(r"{(\w+)}", text)) | {"sentence"} == set(GRAMMAR)


def test_sentences_differ() -> None:
    random = Random(0)
    sentences = [sentence(random) for _ in range(200)]
    assert len(set(sentences)) > 190
    assert all(re.fullmatch(r"[A-Z][A-Za-z', ]+[.?]", text) for text in sentences)


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


def test_noise_is_as_far_below_the_speech_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_speech, "SNRS_DB", (20.0, 20.0))
    monkeypatch.setattr(demo_speech, "GAINS_DB", (-6.0, -6.0))
    utterance = spoken("en+m3", seed="a")
    quiet = [p for p in utterance.phones if p.name == SILENCE]
    noise = np.concatenate([utterance.samples[p.start : p.end] for p in quiet])
    total, floor = np.mean(utterance.samples**2), np.mean(noise**2)
    assert 10 * np.log10((total - floor) / floor) == pytest.approx(20.0, abs=0.3)
