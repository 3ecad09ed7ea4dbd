"""The demo's voices and sentences: no speaker is in two sets, and noise is as loud as it says."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from random import Random

import espeakng_loader
import numpy as np
import pytest

from natgrad.recipes.demo_speech import (
    REPORT_VOICES,
    TRAINING_VOICES,
    TUNING_VOICES,
    Conditions,
    spoken,
)
from natgrad.recipes.sentences import (
    GRAMMAR,
    draw_sentences,
    sentence,
    vocabulary,
    words_of,
)
from natgrad.recipes.synthesis import SILENCE

VOICES = TRAINING_VOICES + TUNING_VOICES + REPORT_VOICES


def test_no_speaker_is_in_two_sets() -> None:
    variants = [voice.split("+")[1] for voice in VOICES]
    assert len(set(variants)) == len(variants)


def test_dialects_of_other_speakers_are_trained_on() -> None:
    dialects = {voice.split("+")[0] for voice in TRAINING_VOICES}
    assert {voice.split("+")[0] for voice in TUNING_VOICES + REPORT_VOICES} <= dialects


def test_no_voice_has_an_echo() -> None:
    """An echo would fill the pauses, by whose silence the closures of stops are found."""
    variants = Path(espeakng_loader.get_data_path(), "voices", "!v")
    for voice in VOICES:
        settings = (variants / voice.split("+")[1]).read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"^\s*echo", settings, re.MULTILINE), voice


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


def test_sets_of_sentences_have_none_in_common() -> None:
    first = draw_sentences(300, "a")
    second = draw_sentences(300, "a", apart_from=first)  # the same seed: all would be the same
    third = draw_sentences(300, "b", apart_from=[*first, *second])
    assert all(len(set(drawn)) == 300 for drawn in (first, second, third))
    assert not any(set(a) & set(b) for a, b in combinations((first, second, third), 2))


def test_vocabulary_has_the_words_of_all_sentences_and_no_other() -> None:
    drawn = draw_sentences(10_000, "words")
    assert vocabulary() == sorted({word for text in drawn for word in words_of(text)})


def test_noise_is_as_far_below_the_speech_as_it_says() -> None:
    conditions = Conditions(gains_db=(-6.0, -6.0), snrs_db=(20.0, 20.0))
    utterance = spoken("Call two, three, and then four.", "en+m3", Random(0), conditions)
    quiet = [p for p in utterance.phones if p.name == SILENCE]
    noise = np.concatenate([utterance.samples[p.start : p.end] for p in quiet])
    total, floor = np.mean(utterance.samples**2), np.mean(noise**2)
    assert 10 * np.log10((total - floor) / floor) == pytest.approx(20.0, abs=0.3)


def test_utterance_depends_on_the_state_of_the_random_numbers_alone() -> None:
    first, again, other = (spoken("One.", "en+m3", Random(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first.samples, again.samples)
    assert not np.array_equal(first.samples[:1000], other.samples[:1000])
