from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from natgrad.recipes.outcome import Outcome, score_settings
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.recognition import RecognisedShare
from natgrad.speech.score import ScoreError, Setting, read_hypotheses
from natgrad.speech.symbols import Symbols

WORDS = Symbols(["YES", "NO"])
LOW, HIGH = Setting(5.0, 0.0), Setting(10.0, 0.5)
RIGHT: tuple[int, ...] = (1, 1, 1, 1)
WRONG: tuple[int, ...] = (2, 2, 2, 2)
SAID = ("YES",) * 4


def data_of(*keys: str, text: tuple[str, ...] | None = SAID) -> DataDirectory:
    """Speakers are named before the "-" of a key."""
    return DataDirectory.of(
        Utterance(key, key.split("-")[0], Path("/audio") / key, text=text) for key in keys
    )


def heard(right_with: Mapping[str, Setting]) -> RecognisedShare:
    """Each utterance is right with one setting, and wrong with the other."""
    words = {
        key: {setting: RIGHT if setting == right else WRONG for setting in (LOW, HIGH)}
        for key, right in right_with.items()
    }
    return RecognisedShare(words, seconds=3.0, num_frames=600)


def test_setting_is_the_best_for_the_tuning_set_not_for_the_reported() -> None:
    tune, report = data_of("a-1", "b-1"), data_of("c-1", "d-1")
    outcome = score_settings(
        tune,
        report,
        heard({"a-1": HIGH, "b-1": HIGH}),
        heard({"c-1": LOW, "d-1": LOW}),
        WORDS,
        is_same_set=False,
    )
    assert outcome.settings == (HIGH,)
    assert outcome.scored.rate == 1.0
    assert (outcome.best_setting, outcome.best_rate) == (LOW, 0.0)


def test_each_speaker_is_scored_with_the_setting_of_the_others() -> None:
    data = data_of("a-1", "a-2", "c-1", "d-1", "d-2")
    found = heard({"a-1": LOW, "a-2": LOW, "c-1": HIGH, "d-1": LOW, "d-2": LOW})
    outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
    assert outcome.settings == (LOW,)
    assert outcome.scored.rate == 1 / 5
    data = data_of("a-1", "a-2", "c-1", "d-1")
    found = heard({"a-1": LOW, "a-2": LOW, "c-1": HIGH, "d-1": HIGH})
    outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
    assert outcome.settings == (LOW, HIGH)
    assert outcome.scored.rate == 1.0  # though one setting for all would have half of them right
    assert outcome.scored.hypotheses.keys() == data.utterances.keys()
    assert outcome.best_rate == 1 / 2


def test_speakers_that_agree_are_scored_with_what_all_find_best() -> None:
    data = data_of("a-1", "b-1", "c-1")
    found = heard({"a-1": HIGH, "b-1": HIGH, "c-1": HIGH})
    outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
    assert outcome.settings == (HIGH,)
    assert outcome.scored.rate == outcome.best_rate == 0.0


def test_utterances_of_a_speaker_cannot_change_its_own_setting() -> None:
    data = data_of("a-1", "b-1")
    for of_a in (LOW, HIGH):
        found = heard({"a-1": of_a, "b-1": HIGH})
        outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
        assert outcome.scored.hypotheses["a-1"] == (SAID if of_a == HIGH else ("NO",) * 4)


def test_speakers_without_transcripts_have_no_say() -> None:
    told = data_of("b-1", "d-1")
    untold = data_of("a-1", "c-1", text=None)
    data = DataDirectory(told.utterances | untold.utterances)
    found = heard({"a-1": LOW, "b-1": LOW, "c-1": LOW, "d-1": HIGH})
    outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
    assert outcome.settings == (LOW, HIGH)
    assert outcome.scored.rate == 1.0
    assert outcome.scored.total.num_words == 8


def test_utterances_without_a_result_count_as_deleted() -> None:
    data = data_of("a-1", "b-1", "c-1", "d-1")
    found = heard({"a-1": LOW, "b-1": LOW, "c-1": LOW})
    found.failures["d-1"] = "no way was left"
    found.unfinished.append("a-1")
    outcome = score_settings(data, data, found, found, WORDS, is_same_set=True)
    assert outcome.scored.total == (0, 0, 4, 16)
    assert outcome.failures == {"d-1": "no way was left"}
    assert outcome.num_unfinished == 1
    assert outcome.real_time_factor == pytest.approx(0.5)


def test_set_of_which_nothing_was_recognised_is_refused_with_the_reason() -> None:
    data = data_of("a-1", "b-1")
    nothing = RecognisedShare(failures={"a-1": "not a number"})
    with pytest.raises(ScoreError, match=r"none of 2 utterances was recognised.*a-1: not a number"):
        score_settings(data, data, nothing, nothing, WORDS, is_same_set=True)


def test_one_speaker_alone_has_no_others() -> None:
    data = data_of("a-1", "a-2")
    found = heard({"a-1": LOW, "a-2": LOW})
    with pytest.raises(ScoreError, match="only a has said any words"):
        score_settings(data, data, found, found, WORDS, is_same_set=True)


def outcome_of_two() -> Outcome:
    data = data_of("a-1", "b-1")
    found = heard({"a-1": LOW, "b-1": LOW})
    return score_settings(data, data, found, found, WORDS, is_same_set=True)


def test_outcome_is_written_with_all_that_the_table_needs(tmp_path: Path) -> None:
    outcome = outcome_of_two()
    facts = outcome.write(tmp_path / "new" / "test")
    assert facts == json.loads((tmp_path / "new" / "test" / "result.json").read_bytes())
    assert facts["wer"] == outcome.scored.rate == 0.0
    assert facts["errors"] == {
        "substitutions": 0, "insertions": 0, "deletions": 0, "num_words": 8,
    }  # fmt: skip
    assert facts["settings"] == [{"lm_weight": 5.0, "word_penalty": 0.0}]
    assert facts["best_on_report"]["lm_weight"] == 5.0
    assert facts["interval"] == [0.0, 0.0]
    found = read_hypotheses(tmp_path / "new" / "test" / "text")
    assert found == {"a-1": SAID, "b-1": SAID}
    assert (tmp_path / "new" / "test" / "speakers.txt").read_text().splitlines()[1].split()[:2] == [
        "a",
        "4",
    ]
