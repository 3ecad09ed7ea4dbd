from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from natgrad.speech.phones import PhoneSet

SOUNDS = ("AH", "B", "K", "T")
PHONES = PhoneSet(("SIL", "NSN"), SOUNDS)


def names(phones: PhoneSet, sounds: list[str]) -> list[str]:
    return [phones.symbols.name(number) for number in phones.in_word(sounds)]


def test_phones_are_marked_by_their_place_in_the_word() -> None:
    assert names(PHONES, ["B"]) == ["B_S"]
    assert names(PHONES, ["B", "AH"]) == ["B_B", "AH_E"]
    assert names(PHONES, ["B", "AH", "T", "AH"]) == ["B_B", "AH_I", "T_I", "AH_E"]
    assert names(PHONES, ["NSN"]) == ["NSN"]
    assert names(PHONES, ["NSN", "AH", "NSN"]) == ["NSN", "AH_I", "NSN"]


def test_phones_without_marks_are_sounds() -> None:
    assert names(PhoneSet(("SIL",), SOUNDS, marks_position=False), ["B", "AH"]) == ["B", "AH"]


@given(st.lists(st.sampled_from(PHONES.sounds), min_size=1), st.booleans())
def test_sound_of_a_words_phones_are_its_sounds(sounds: list[str], marks: bool) -> None:
    phones = PhoneSet(PHONES.silences, SOUNDS, marks)
    numbers = phones.in_word(sounds)
    assert [phones.sounds[phones.sound_of[number]] for number in numbers] == sounds
    for number, sound in zip(numbers, sounds, strict=True):
        assert phones.symbols.name(number) == sound + phones.mark_of(number)
        assert (number in phones.silence_numbers) == (sound in phones.silences)


def test_every_number_has_its_sound_and_0_has_none() -> None:
    assert len(PHONES.sound_of) == len(PHONES) == 1 + 2 + 4 * len(SOUNDS)
    assert PHONES.sound_of[0] == -1
    assert sorted(PHONES.silence_numbers) == [1, 2]


def test_sounds_that_are_not_in_the_set_are_named() -> None:
    assert PHONES.unknown_sounds(["B", "X", "AH", "Y"]) == ["X", "Y"]
