"""Training utterances at other speeds, in the demo's small run."""

from __future__ import annotations

from pathlib import Path

import pytest

from natgrad.data import Block, open_examples
from natgrad.recipes.dnn import choose_held_out
from natgrad.recipes.speech_files import at_speed
from natgrad.recipes.speeds import read_at_all_speeds
from natgrad.recipes.workshop import Workshop
from natgrad.speech.corpus import Corpus, Item
from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, SmallDemo, small_demo

SPEED = 1.1


@pytest.fixture
def shop(whole_demo: SmallDemo) -> Workshop:
    return Workshop(small_demo().config, whole_demo.files, INLINE, silent)


def keys_in(path: Path) -> set[str]:
    return {piece.key for piece in Block.read(path).pieces()}


def test_copies_have_keys_and_speakers_of_their_own_and_the_same_words(shop: Workshop) -> None:
    usual, fast = shop.data("train"), shop.data("train", SPEED)
    assert not usual.utterances.keys() & fast.utterances.keys()
    assert not usual.speakers.keys() & fast.speakers.keys()
    for key, utterance in usual.utterances.items():
        copy = fast.utterances[at_speed(key, SPEED)]
        assert (copy.path, copy.text) == (utterance.path, utterance.text)
        assert copy.speaker == at_speed(utterance.speaker, SPEED)


def test_copies_are_as_much_shorter_and_are_aligned_with_transforms_of_their_own(
    shop: Workshop,
) -> None:
    lengths = [
        {item.key: item.num_frames for item in shop.corpus("train", speed).items}
        for speed in (1.0, SPEED)
    ]
    for key, num_frames in lengths[0].items():
        assert lengths[1][at_speed(key, SPEED)] == pytest.approx(num_frames / SPEED, abs=2)
    usual, fast = read_at_all_speeds(shop).values()
    assert usual.transforms is not None
    assert fast.transforms is not None
    assert fast.transforms.keys() == {at_speed(name, SPEED) for name in usual.transforms}
    for key, alignment in fast.alignments.items():
        assert len(alignment) == lengths[1][key]


def test_held_out_utterances_are_held_out_at_all_speeds(shop: Workshop) -> None:
    examples = open_examples(shop.files.dnn().examples)
    training = set().union(*(keys_in(path) for path in examples.block_paths))
    assert examples.validation is not None
    validation = keys_in(examples.validation.path)
    assert validation
    assert validation <= shop.data("train").utterances.keys()
    for key in validation:
        assert key not in training
        assert at_speed(key, SPEED) not in training
    for speed, trained in read_at_all_speeds(shop).items():
        hidden = {at_speed(key, speed) for key in validation}
        assert trained.alignments.keys() - hidden <= training


def test_as_many_are_held_out_as_have_the_frames() -> None:
    items = tuple(Item(f"a-{number}", "a", 100, ("YES",)) for number in range(20))
    corpus = Corpus(Path("features"), items, {})
    chosen = choose_held_out(corpus, 450)
    assert len(chosen) == 5
    assert chosen == choose_held_out(corpus, 450)
    assert chosen != choose_held_out(corpus, 450, seed=1)
    assert choose_held_out(corpus, 0) == set()
