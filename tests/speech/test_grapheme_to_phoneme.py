import math
import random
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.run.model_file import ModelFileError, write_model
from natgrad.speech.lexicon.files import read_cmudict
from natgrad.speech.lexicon.grapheme_to_phoneme import (
    GraphemeToPhoneme,
    SpellingError,
    is_spelled_out,
    read_g2p,
    train_g2p,
    word_accuracy,
)
from natgrad.speech.lexicon.lexicon import Lexicon, LexiconError, Pronunciation

SHARED = Path(__file__).parents[3] / "shared"

SPOKEN = {
    "CAT": "K AE1 T",
    "CATS": "K AE1 T S",
    "CITE": "S AY1 T",
    "ACT": "AE1 K T",
    "TAX": "T AE1 K S",
    "AXIS": "AE1 K S AH0 S",
    "ICE": "AY1 S",
    "CASE": "K EY1 S",
    "TASTE": "T EY1 S T",
    "SIT": "S IH1 T",
    "SITE": "S AY1 T",
    "A": "AH0",
}


def toy_lexicon() -> Lexicon:
    return Lexicon([Pronunciation(word, tuple(said.split())) for word, said in SPOKEN.items()])


def pronounce_literally(model: GraphemeToPhoneme, word: str) -> dict[tuple[str, ...], float]:
    """The summed probability of each pronunciation, over every sequence of graphones."""
    numbers = range(len(model.graphones))
    choices = [[n for n in numbers if model.graphones[n].letter == letter] for letter in word]
    found: dict[tuple[str, ...], float] = {}
    for row in product(*choices):
        sounds = tuple(sound for n in row for sound in model.graphones[n].sounds)
        plain = sounds if model.stress else tuple(sound.rstrip("012") for sound in sounds)
        found[plain] = found.get(plain, 0.0) + math.exp(model.model.log_probability(row[::-1]))
    found.pop((), None)
    return found


@settings(max_examples=40, deadline=None)
@given(st.text("ACEISTX", min_size=1, max_size=4), st.booleans(), st.integers(1, 5))
def test_a_wide_search_finds_every_pronunciation_with_its_whole_probability(
    word: str, stress: bool, order: int
) -> None:
    model = train_g2p(toy_lexicon(), order=order, stress=stress)
    expected = pronounce_literally(model, word)
    if not expected:
        with pytest.raises(SpellingError, match="no letter of"):
            model.pronounce(word)
        return
    found = model.pronounce(word, n=10**4, width=10**4, beam=math.inf)
    assert {sounds: math.exp(score) for sounds, score in found} == pytest.approx(expected, rel=1e-4)
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)


def test_words_of_the_dictionary_come_out_as_they_are_in_it() -> None:
    lexicon = toy_lexicon()
    model = train_g2p(lexicon, stress=True)
    assert word_accuracy(model, lexicon, sorted(lexicon.words)) == 1.0


def test_letters_of_new_words_sound_as_in_known_ones() -> None:
    model = train_g2p(toy_lexicon())
    assert model.pronounce("TACT")[0][0] == ("T", "AE", "K", "T")
    assert model.sounds == {"AE", "AH", "AY", "EY", "IH", "K", "S", "T"}


def test_what_is_excluded_is_not_learned_from() -> None:
    model = train_g2p(toy_lexicon(), excluded=["TAX", "AXIS"])
    with pytest.raises(SpellingError, match="'TAX' has X, not a letter"):
        model.pronounce("TAX")


@pytest.mark.parametrize("word", ["", "H", "CAFÉ", "cat", "A B", "C-A"])
def test_words_that_cannot_be_said_are_refused_by_name(word: str) -> None:
    with pytest.raises(SpellingError) as refusal:
        train_g2p(toy_lexicon()).pronounce(word)
    assert repr(word) in str(refusal.value)


def test_a_letter_that_cannot_be_seen_is_shown_in_the_refusal() -> None:
    with pytest.raises(SpellingError, match=r"'A B' has ' ' B, not a letter"):
        train_g2p(toy_lexicon()).pronounce("A B")


def test_fewer_than_one_pronunciation_or_word_is_refused() -> None:
    lexicon = toy_lexicon()
    model = train_g2p(lexicon)
    for n in (0, -1):
        with pytest.raises(ValueError, match=f"{n} pronunciations of 'CAT' .* at least 1"):
            model.pronounce("CAT", n)
    with pytest.raises(ValueError, match="no words to measure the model with"):
        word_accuracy(model, lexicon, [])


def test_only_words_of_letters_and_apostrophes_are_spelled_out() -> None:
    assert all(is_spelled_out(word) for word in ("DON'T", "CAFÉ"))
    assert not any(is_spelled_out(word) for word in ("", "'", "A.", "A42", "AD-HOC", "AIR_FORCE"))


def test_a_lexicon_without_words_to_learn_from_is_refused() -> None:
    lexicon = Lexicon([Pronunciation("W", ("D", "AH", "B", "Y")), Pronunciation("42", ("F",))])
    with pytest.raises(LexiconError, match="none of the 2 words"):
        train_g2p(lexicon)
    with pytest.raises(ValueError, match="order is 0"):
        train_g2p(toy_lexicon(), order=0)


def test_the_same_lexicon_gives_the_same_bytes_and_a_file_the_same_model(tmp_path: Path) -> None:
    for name in ("one", "two"):
        train_g2p(toy_lexicon()).write(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    read = read_g2p(tmp_path / "one")
    for word in ("TACT", "EXIST", "CCC"):
        assert read.pronounce(word, 5) == train_g2p(toy_lexicon()).pronounce(word, 5)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "other", {"weight": torch.ones(1)}, {"layers": 1})
    with pytest.raises(ModelFileError, match="not of a grapheme-to-phoneme model"):
        read_g2p(tmp_path / "other")


@pytest.mark.skipif(not (SHARED / "data/cmudict").exists(), reason="needs ../shared/data/cmudict")
def test_seven_in_ten_hidden_words_of_the_cmu_dictionary_come_out_right() -> None:
    dictionary = read_cmudict(SHARED / "data/cmudict/cmudict.txt", stress=True)
    words = sorted(word for word in dictionary.words if is_spelled_out(word))
    hidden = random.Random(0).sample(words, 1000)
    model = train_g2p(dictionary, excluded=hidden)
    plain = {
        word: {tuple(sound.rstrip("012") for sound in way.sounds) for way in dictionary.of(word)}
        for word in hidden
    }
    right = sum(model.pronounce(word)[0][0] in plain[word] for word in hidden)
    assert right > 0.71 * len(hidden)
