"""espeak-ng speaks the same every time, and its phones are where the sound is."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import locale
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import espeakng_loader
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.recipes import synthesis
from natgrad.recipes.synthesis import SILENCE, Utterance, phones_between, pronounce, speak

TEXT = "Call four seven nine, and stop at the green sign."
# With flutter (a state of its own), without, of another kind of synthesis, and of breath alone.
VOICES = ["en+f1", "en-us+Alex", "en-gb-scotland+klatt4", "en+whisper"]


def digest(utterance: Utterance) -> str:
    return hashlib.sha256(utterance.samples.tobytes() + repr(utterance.phones).encode()).hexdigest()


def part(utterance: Utterance, name: str) -> npt.NDArray[np.float32]:
    """The samples of the first phone of this name."""
    phone = next(phone for phone in utterance.phones if phone.name == name)
    return utterance.samples[phone.start : phone.end]


def crossings(samples: npt.NDArray[np.float32]) -> float:
    """How often the signal changes its sign, per sample: high for hiss, low for voice."""
    return float(np.mean(np.diff(np.signbit(samples))))


@pytest.mark.parametrize("voice", VOICES)
def test_what_was_said_before_changes_nothing(voice: str) -> None:
    before = digest(speak(TEXT, voice))
    speak("Something else.", "en-us+m3", rate=300)
    assert digest(speak(TEXT, voice)) == before


def test_another_process_says_the_same() -> None:
    code = (
        "import hashlib; from natgrad.recipes.synthesis import speak; "
        f"print(hashlib.sha256(speak({TEXT!r}, 'en+f1', 210, 40).samples.tobytes()).hexdigest())"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()
    assert said == hashlib.sha256(speak(TEXT, "en+f1", 210, 40).samples.tobytes()).hexdigest()


def test_threads_wait_for_one_another() -> None:
    jobs = [(TEXT, voice) for voice in VOICES] * 3
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda job: digest(speak(*job)), jobs))
    assert together == [digest(speak(*job)) for job in jobs]


@pytest.mark.parametrize("voice", VOICES)
def test_phones_follow_one_another_from_the_first_sample_to_the_last(voice: str) -> None:
    utterance = speak(TEXT, voice)
    assert utterance.samples.dtype == np.float32
    assert float(np.abs(utterance.samples).max()) <= 1.0
    edges = [0, *(phone.end for phone in utterance.phones)]
    assert [phone.start for phone in utterance.phones] == edges[:-1]
    assert edges[-1] == len(utterance.samples)
    assert edges == sorted(set(edges))


def test_phones_are_those_of_the_words() -> None:
    names = [phone.name for phone in speak("See the dog.", "en-us").phones]
    assert [name for name in names if name != SILENCE] == ["s", "i:", "D", "@2", "d", "0", "g"]


def test_silence_is_silent_and_hiss_hisses_where_the_marks_say() -> None:
    utterance = speak("See, I saw a shoe.", "en-us+m3")
    for phone in utterance.phones:
        if phone.name == SILENCE:
            assert not utterance.samples[phone.start : phone.end].any()
    hiss = min(crossings(part(utterance, name)) for name in ("s", "S"))
    voice = max(crossings(part(utterance, name)) for name in ("i:", "u:", "aI"))
    assert hiss > 2 * voice


def test_a_stop_begins_with_its_closure() -> None:
    utterance = speak("a copper", "en-us+m3")
    closure = part(utterance, "p")
    assert not closure[: len(closure) // 3].any()
    assert closure[len(closure) // 2 :].any()
    assert all(part(utterance, name)[-1] != 0 for name in ("a#", "0"))


def test_rate_makes_it_shorter_and_pitch_makes_it_another_voice() -> None:
    usual, fast, high = speak(TEXT), speak(TEXT, rate=300), speak(TEXT, pitch=80)
    assert len(fast.samples) < 0.75 * len(usual.samples)
    assert [phone.name for phone in high.phones] == [phone.name for phone in usual.phones]
    assert digest(high) != digest(usual)


@settings(max_examples=200, deadline=None)
@given(
    wave=st.lists(st.integers(0, 1), min_size=1, max_size=40),
    names=st.lists(st.sampled_from(["a", "t", "'I", "_", "_:"]), max_size=8),
    data=st.data(),
)
def test_marks_move_back_over_zeros_only(
    wave: list[int], names: list[str], data: st.DataObject
) -> None:
    size = len(wave)
    positions = sorted(
        data.draw(st.lists(st.integers(0, size), min_size=len(names), max_size=len(names)))
    )
    phones = phones_between(list(zip(names, positions, strict=True)), np.array(wave, np.int16))
    assert [phone.start for phone in phones] == [0, *(phone.end for phone in phones[:-1])]
    assert phones[-1].end == size
    assert all(phone.end > phone.start for phone in phones)
    assert all({a.name, b.name} != {SILENCE} for a, b in pairwise(phones))
    marked = _phone_at(names, positions, size)
    for phone in phones:
        for sample in range(phone.start, phone.end):
            assert marked[sample] == phone.name or wave[sample] == 0


def _phone_at(names: list[str], positions: list[int], size: int) -> list[str]:
    """The phone at each sample as marked, by definition: that of the last mark at or before it."""
    at = []
    for sample in range(size):
        begun = [name for name, start in zip(names, positions, strict=True) if start <= sample]
        name = begun[-1].lstrip("'") if begun else SILENCE
        at.append(SILENCE if name.startswith("_") else name)
    return at


def test_interrupt_while_speaking_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    before = digest(speak(TEXT))
    with monkeypatch.context() as patch:
        patch.setattr(ctypes, "string_at", interrupt)
        with pytest.raises(KeyboardInterrupt):
            speak(TEXT)
    assert digest(speak(TEXT)) == before


def test_locale_is_left_alone() -> None:
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C")
        speak("Yes.")
        assert locale.setlocale(locale.LC_CTYPE) == "C"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)


def test_library_that_another_holds_is_refused_by_name() -> None:
    path = espeakng_loader.get_library_path()
    library = ctypes.CDLL(path)
    try:
        with pytest.raises(RuntimeError, match=re.escape(path)):
            speak(TEXT)
    finally:
        _ctypes.dlclose(library._handle)
    speak("Yes.")


@pytest.mark.parametrize(
    ("voice", "wrong"),
    [("xx+m1", "language 'xx'"), ("en+nobody", "variant 'nobody'"), ("en+M1", "variant 'M1'")],
)
def test_unknown_voice_is_named(voice: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"no voice {voice!r}") + ".*" + wrong):
        speak(TEXT, voice)


@pytest.mark.parametrize(("rate", "pitch"), [(79, 50), (451, 50), (175, 100), (175, -1)])
def test_rate_and_pitch_that_espeak_would_change_are_refused(rate: int, pitch: int) -> None:
    with pytest.raises(ValueError, match=f"rate of {rate} and a pitch of {pitch}"):
        speak(TEXT, rate=rate, pitch=pitch)


@pytest.mark.parametrize("text", ["", " ... "])
def test_text_without_words_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no words"):
        speak(text)


def test_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'natgrad[demo]'")):
        speak(TEXT)


def test_phone_event_has_the_size_of_the_c_structure() -> None:
    pointer = ctypes.sizeof(ctypes.c_void_p)
    assert ctypes.sizeof(synthesis._Event) == 6 * 4 + pointer + 8


def test_sounds_of_a_word_do_not_depend_on_the_words_before() -> None:
    words = ["the", "apple", "o'clock", "anna's"]
    assert pronounce(words) == [pronounce([word])[0] for word in words]


def test_dialects_pronounce_in_their_own_way() -> None:
    british, american = (pronounce(["car"], dialect)[0] for dialect in ("en", "en-us"))
    assert british[0] == american[0] == "k"
    assert british != american


def test_sounds_have_no_marks_of_stress() -> None:
    sounds = {sound for way in pronounce(["seventy", "chocolate", "although"]) for sound in way}
    assert not any(mark in sound for sound in sounds for mark in "\u02c8\u02cc'")


@pytest.mark.parametrize("text", ["", "  ", "two words", "..."])
def test_what_is_not_one_word_has_no_pronunciation(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"pronounce got {text!r}; expected one word")):
        pronounce(["good", text])
