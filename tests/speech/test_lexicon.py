import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.lexicon.lexicon import Lexicon, LexiconError, Pronunciation

YES = Pronunciation("YES", ("Y", "EH", "S"))
A_SHORT, A_LONG = Pronunciation("A", ("AH",)), Pronunciation("A", ("EY",))


def test_pronunciations_are_sorted_whatever_the_order_given() -> None:
    lexicon = Lexicon([YES, A_LONG, A_SHORT])
    assert lexicon.pronunciations == (A_SHORT, A_LONG, YES)
    assert lexicon == Lexicon([A_SHORT, YES, A_LONG])
    assert lexicon.words == {"A", "YES"}
    assert lexicon.of("A") == [A_SHORT, A_LONG]
    assert lexicon.of("NO") == []
    assert "YES" in lexicon
    assert "NO" not in lexicon
    assert len(lexicon) == 3


def test_the_phones_of_a_lexicon_are_its_sounds_and_silences() -> None:
    phones = Lexicon([YES, A_LONG]).with_unknown_word().phone_set()
    assert phones.silences == ("SIL", "SPN")
    assert phones.speech == ("EH", "EY", "S", "Y")


def test_a_word_that_is_said_as_silence_adds_no_sound_of_speech() -> None:
    assert Lexicon([YES, Pronunciation("!SIL", ("SIL",))]).sounds == ("EH", "S", "Y")


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ([Pronunciation("YES", ())], "YES has no sounds"),
        ([YES, Pronunciation("YES", ("Y", "EH", "S"), 0.5)], "YES Y EH S is there twice"),
        ([Pronunciation("YES", ("Y",), 0.0)], "has probability 0.0"),
        ([Pronunciation("YES", ("Y",), 1.5)], "has probability 1.5"),
        ([Pronunciation("YES", ("Y",), math.nan)], "has probability nan"),
        ([Pronunciation("TWO WORDS", ("Y",))], "'TWO WORDS' cannot be a word"),
        ([Pronunciation("", ("Y",))], "'' cannot be a word"),
        ([Pronunciation("<eps>", ("Y",))], "<eps> cannot be a word"),
        ([Pronunciation("<s>", ("Y",))], "<s> cannot be a word"),
        ([Pronunciation("#0", ("Y",))], "#0 cannot be a word"),
        ([Pronunciation("YES", ("#1",))], "#1 cannot be a sound"),
        ([Pronunciation("##", ("Y",))], "## cannot be a word, as it begins a comment"),
        ([Pronunciation(";;YES", ("Y",))], ";;YES cannot be a word, as it begins a comment"),
        ([Pronunciation("YES(2)", ("Y",))], "YES(2) cannot be a word: in files, that is"),
        ([Pronunciation("YES", ("0.5",))], "0.5 cannot be a sound"),
    ],
)
def test_what_is_no_lexicon_is_refused_by_name(ways: list[Pronunciation], message: str) -> None:
    with pytest.raises(LexiconError) as refusal:
        Lexicon(ways)
    assert message in str(refusal.value)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, math.nan])
def test_silence_must_be_neither_certain_nor_impossible(probability: float) -> None:
    with pytest.raises(LexiconError, match="silence_probability"):
        Lexicon([YES], silence_probability=probability)


def test_silence_needs_the_name_of_a_sound() -> None:
    with pytest.raises(LexiconError, match="#0 cannot be a sound"):
        Lexicon([YES], silence="#0")


def test_an_unknown_word_needs_one_sound() -> None:
    with pytest.raises(LexiconError, match="YES is pronounced Y EH S"):
        Lexicon([YES], unknown_word="YES")
    with pytest.raises(LexiconError, match="<UNK> is pronounced nothing"):
        Lexicon([YES], unknown_word="<UNK>")


def test_restriction_keeps_the_unknown_word_and_names_what_is_missing() -> None:
    lexicon = Lexicon([YES, A_SHORT, A_LONG]).with_unknown_word()
    assert lexicon.restricted_to(["A"]).words == {"A", "<UNK>"}
    with pytest.raises(LexiconError, match=r"2 words are not in the lexicon: MAYBE NO\."):
        lexicon.restricted_to(["YES", "NO", "MAYBE"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1e6), min_size=3, max_size=3), st.floats(1e-3, 100.0))
def test_reestimated_probabilities_are_smoothed_counts_over_the_largest(
    counts: list[float], smoothing: float
) -> None:
    ways = [Pronunciation("A", (sound,)) for sound in ("AA", "AH", "EY")]
    counted = {(way.word, way.sounds): count for way, count in zip(ways, counts, strict=True)}
    lexicon = Lexicon([*ways, YES]).reestimated(counted, smoothing)
    largest = max(counts) + smoothing
    expected = [(count + smoothing) / largest for count in counts]
    assert [way.probability for way in lexicon.of("A")] == pytest.approx(expected, rel=1e-12)
    assert max(way.probability for way in lexicon.of("A")) == 1.0
    assert lexicon.of("YES") == [YES]


def test_words_that_were_never_said_keep_their_probabilities() -> None:
    ways = [A_SHORT, Pronunciation("A", ("EY",), 0.25)]
    assert Lexicon(ways).reestimated({}, smoothing=3.0) == Lexicon(ways)


def test_counts_of_unknown_pronunciations_are_refused() -> None:
    with pytest.raises(LexiconError, match="YES is said to have been pronounced Y"):
        Lexicon([YES]).reestimated({("YES", ("Y",)): 1.0})
    with pytest.raises(LexiconError, match=r"-1\.0 times"):
        Lexicon([YES]).reestimated({("YES", ("Y", "EH", "S")): -1.0})
    with pytest.raises(LexiconError, match="smoothing is 0"):
        Lexicon([YES]).reestimated({}, smoothing=0.0)
