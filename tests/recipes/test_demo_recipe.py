"""The demo's recipe, with real voices: from nothing to the table, in one go or in many."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from natgrad.recipes.demo_recipe import DemoSize, demo_config, demo_recipe, draw_sets
from natgrad.recipes.sentences import vocabulary, words_of
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_table import TITLES, format_table
from natgrad.recipes.workshop import Workshop
from natgrad.speech.data.directory import DataDirectory
from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.lm.arpa import read_arpa
from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, SIZE, SmallDemo, small_demo

STAGES = [
    "data", "language", "features", "mono", "tri", "lda", "sat", "decode-mono", "decode-tri",
    "decode-lda", "decode-sat", "sat-1.1", "dnn-examples", "dnn", "dnn-priors", "dnn-2-align",
    "dnn-2-examples", "dnn-2", "dnn-2-priors", "decode-dnn", "table",
]  # fmt: skip
# What tells the time or the place, and so is another in every run.
OF_THE_MOMENT = ("events.jsonl", "lock", "config.json")


def without_times(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {
            name: without_times(value)
            for name, value in facts.items()
            if name not in ("real_time_factor", "seconds")
        }
    return facts


def contents(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_dir() or path.name in OF_THE_MOMENT:
            continue
        if path.suffix == ".json":
            found[name] = without_times(json.loads(path.read_bytes()))
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_all_stages_are_done_and_the_table_has_every_system(whole_demo: SmallDemo) -> None:
    facts = whole_demo.facts
    assert list(facts) == STAGES
    assert list(facts["table"]) == list(TITLES)
    assert facts["data"]["problems"] == []
    table = format_table(facts["table"]).splitlines()
    assert len(table) == 2 + len(TITLES)
    for system in facts["table"].values():
        assert system["errors"]["num_words"] == sum(
            len(words_of(text)) for text in draw_sets(SIZE)["report"]
        )


def test_run_interrupted_before_every_stage_ends_with_the_same_bits(
    whole_demo: SmallDemo, tmp_path: Path, one_core: None
) -> None:
    begun = []

    def interrupt(event: dict[str, Any]) -> None:
        """As the keyboard does it, when a stage begins that no run before has got to."""
        if event["event"] == "stage" and event["name"] not in begun:
            begun.append(event["name"])
            raise KeyboardInterrupt

    for _ in STAGES:
        with pytest.raises(KeyboardInterrupt):
            small_demo().run(tmp_path, INLINE, silent, on_event=interrupt)
    small_demo().run(tmp_path, INLINE, silent, on_event=interrupt)
    assert begun == STAGES
    assert contents(tmp_path) == contents(whole_demo.root)


def test_recordings_are_what_data_directories_say(whole_demo: SmallDemo) -> None:
    files = whole_demo.files
    for name, sentences in draw_sets(SIZE).items():
        data = DataDirectory.read(files.data(name))
        assert sorted(u.text or () for u in data.utterances.values()) == sorted(
            words_of(text) for text in sentences
        )
        for utterance in data.utterances.values():
            assert utterance.path.is_relative_to(files.data(name))  # can be moved along with it
            assert utterance.key.startswith(utterance.speaker)
            info = soundfile.info(utterance.path)
            assert (info.format, info.subtype, info.samplerate) == ("WAV", "PCM_16", 22050)
            samples, _ = soundfile.read(utterance.path, dtype="int16")
            assert 0 < np.abs(samples.astype(int)).max() < 32767  # nothing is clipped


def test_sets_have_neither_speakers_nor_sentences_in_common(whole_demo: SmallDemo) -> None:
    files = whole_demo.files
    sets = [DataDirectory.read(files.data(name)) for name in ("train", "tune", "report")]
    for one, other in combinations(sets, 2):
        assert not set(one.speakers) & set(other.speakers)
        assert not {u.text for u in one.utterances.values()} & {
            u.text for u in other.utterances.values()
        }


def test_lexicon_and_language_model_have_the_words_of_the_grammar(
    whole_demo: SmallDemo,
) -> None:
    files = whole_demo.files
    lexicon = read_lexicon(files.lexicon)
    assert sorted(lexicon.words) == vocabulary()
    words = set(read_arpa(files.language_model).vocabulary)
    assert words == {*vocabulary(), "<s>", "</s>"}


def test_size_is_part_of_what_the_data_depend_on() -> None:
    assert demo_recipe(DemoSize(train=7)).settings != demo_recipe().settings
    assert demo_recipe().config == demo_config()


def test_words_depend_on_which_network_they_are_of(tmp_path: Path) -> None:
    """Without re-alignment another network is decoded, though all stages before are done."""

    def settings(num_realignments: int) -> object:
        recipe = small_demo()
        dnn = replace(recipe.config.dnn, num_realignments=num_realignments)
        recipe = replace(recipe, config=replace(recipe.config, dnn=dnn))
        stages = recipe.stages(Workshop(recipe.config, SpeechFiles(tmp_path), INLINE, silent))
        return next(stage.settings for stage in stages if stage.name == "decode-dnn")

    assert settings(0) != settings(1)
