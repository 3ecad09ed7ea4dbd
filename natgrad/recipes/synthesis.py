"""Speech from text by espeak-ng, with the position of every phone; and words' pronunciations.

espeak-ng is a formant synthesiser in C, a few hundred times faster than real time. The PyPI package
`espeakng-loader` brings its library and its data; here it is driven through ctypes.

The library keeps state in its own static memory (phases of pitch flutter, noise), so what it says
depends on all it said before. To make `speak` a function of its arguments, the library is loaded
afresh for every utterance and unloaded after it, which costs about as much as a second of speech.
A lock lets one thread at a time do so; other processes have libraries of their own.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import locale
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["SILENCE", "Phone", "Utterance", "pronounce", "speak"]

SILENCE = "_"
RATES = range(80, 451)  # words per minute
PITCHES = range(0, 100)

# From espeak-ng's speak_lib.h.
AUDIO_OUTPUT_SYNCHRONOUS = 2
INITIALIZE_PHONEME_EVENTS, INITIALIZE_DONT_EXIT = 0x0001, 0x8000
EVENT_LIST_TERMINATED, EVENT_PHONEME = 0, 7
PARAMETER_RATE, PARAMETER_PITCH = 1, 3
POSITION_CHARACTER = 1
CHARS_UTF8, END_PAUSE = 0x0001, 0x1000
PHONEMES_IPA, PHONEMES_APART_BY_SPACES = 0x02, ord(" ") << 8

STRESS_MARKS = "',%=|"  # may precede a phone's name
IPA_STRESS = dict.fromkeys(map(ord, "\u02c8\u02cc"))  # to be taken away
RANDOM_SEED = 1  # of the library's own noise: any will do, as long as it is the same

_one_at_a_time = threading.Lock()


class Phone(NamedTuple):
    """A phone, by espeak-ng's ASCII name without marks of stress, and the samples it lasts."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Utterance:
    """What was said. The phones follow one another without gaps from the first sample to the last.

    A stop begins with its closure; pauses of any kind are `SILENCE`.
    """

    samples: npt.NDArray[np.float32]  # from -1 to 1
    sample_rate: int
    phones: tuple[Phone, ...]


def speak(text: str, voice: str = "en", rate: int = 175, pitch: int = 50) -> Utterance:
    """Return the text as spoken by a voice: the same arguments give the same samples, anywhere.

    Args:
        text: one or a few sentences.
        voice: a language or dialect as espeak-ng names it, and after a plus sign a variant of the
            speaker: "en", "en-us+m3", "en-gb-scotland+steph".
        rate: words per minute, 80 to 450.
        pitch: 0 to 99; 50 is the voice's own.

    >>> utterance = speak("Good morning.", voice="en-us+f1")
    >>> " ".join(phone.name for phone in utterance.phones)
    '_ g U d m O@ n I N _'
    """
    if rate not in RATES or pitch not in PITCHES:
        raise ValueError(
            f"speak got a rate of {rate} and a pitch of {pitch}; expected {RATES[0]} to "
            f"{RATES[-1]} words per minute, and a pitch of {PITCHES[0]} to {PITCHES[-1]}."
        )
    with _one_at_a_time, _fresh_library() as library:
        sample_rate = _initialize(library)
        _select_voice(library, voice)
        library.espeak_SetParameter(PARAMETER_RATE, rate, 0)
        library.espeak_SetParameter(PARAMETER_PITCH, pitch, 0)
        wave, marks = _synthesize(library, text)
    if not wave.any():
        raise ValueError(f"{voice!r} has nothing to say for the text {text!r}: it has no words.")
    samples = wave.astype(np.float32) / np.float32(32768)
    return Utterance(samples, sample_rate, phones_between(marks, wave))


def pronounce(words: Sequence[str], voice: str = "en") -> list[tuple[str, ...]]:
    """Return the sounds of each word when it is said alone, in the IPA, without marks of stress.

    >>> pronounce(["snap", "clam"])
    [('s', 'n', 'a', 'p'), ('k', 'l', 'a', 'm')]
    """
    with _one_at_a_time, _fresh_library() as library:
        _initialize(library)
        _select_voice(library, voice)
        library.espeak_TextToPhonemes.restype = ctypes.c_char_p
        return [_sounds(library, word) for word in words]


def phones_between(marks: list[tuple[str, int]], wave: npt.NDArray[np.int16]) -> tuple[Phone, ...]:
    """Return the phones of espeak-ng's marks (name, sample), which stand where a phone begins.

    A mark comes after the pause that the phone makes first, such as the closure of a stop; so
    zeros before a mark are moved to the phone that it begins (unless that would leave nothing, as
    when the phone before is itself a pause).

    >>> wave = np.array([0, 5, 5, 5, 0, 0, 5, 0, 0, 0], dtype=np.int16)
    >>> [tuple(phone) for phone in phones_between([("a", 1), ("t", 6), ("_:", 7)], wave)]
    [('_', 0, 1), ('a', 1, 4), ('t', 4, 7), ('_', 7, 10)]
    """
    names = [SILENCE] + [_phone_name(mark) for mark, _ in marks]
    starts = [0] + [sample for _, sample in marks] + [len(wave)]
    loud = np.flatnonzero(wave)
    for i in range(1, len(names)):
        last_loud = np.searchsorted(loud, starts[i]) - 1
        if last_loud >= 0 and loud[last_loud] >= starts[i - 1] and names[i - 1] != SILENCE:
            starts[i] = int(loud[last_loud]) + 1
    phones: list[Phone] = []
    for name, start, end in zip(names, starts[:-1], starts[1:], strict=True):
        if phones and name == phones[-1].name == SILENCE:
            phones[-1] = phones[-1]._replace(end=end)
        elif end > start:
            phones.append(Phone(name, start, end))
    return tuple(phones)


def _phone_name(mark: str) -> str:
    name = mark.lstrip(STRESS_MARKS)
    return SILENCE if name.startswith(SILENCE) or not name else name


# -- the library ---------------------------------------------------------------------------------


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),  # in milliseconds
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


def _loader() -> Any:
    try:
        import espeakng_loader
    except ImportError as error:
        raise ImportError(
            "the speech of the demo is made by espeak-ng, and the package espeakng-loader, which "
            "brings it, is not installed: run  pip install 'natgrad[demo]'"
        ) from error
    return espeakng_loader


@contextlib.contextmanager
def _fresh_library() -> Iterator[ctypes.CDLL]:
    path = _loader().get_library_path()
    if _is_loaded(path):
        raise RuntimeError(
            f"{path} is already loaded in this process, so its state is not known and what it says "
            "would not be the same every time: speak in a process where nothing else uses espeak-ng"
        )
    characters = locale.setlocale(locale.LC_CTYPE)
    library = ctypes.CDLL(path)
    try:
        yield library
        library.espeak_Terminate()
    finally:
        _ctypes.dlclose(library._handle)
        locale.setlocale(locale.LC_CTYPE, characters)  # which espeak_Initialize sets


def _is_loaded(path: str) -> bool:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False
    _ctypes.dlclose(library._handle)
    return True


def _initialize(library: ctypes.CDLL) -> int:
    data = Path(_loader().get_data_path())
    options = INITIALIZE_PHONEME_EVENTS | INITIALIZE_DONT_EXIT
    sample_rate: int = library.espeak_Initialize(
        AUDIO_OUTPUT_SYNCHRONOUS, 0, os.fsencode(data.parent), options
    )
    if sample_rate <= 0:
        raise RuntimeError(
            f"espeak-ng cannot read its data in {data}: run "
            "pip install --force-reinstall espeakng-loader"
        )
    library.espeak_ng_SetRandSeed(ctypes.c_long(RANDOM_SEED))
    return sample_rate


def _select_voice(library: ctypes.CDLL, voice: str) -> None:
    language, _, variant = voice.partition("+")
    variants = Path(_loader().get_data_path(), "voices", "!v")
    # espeak-ng says nothing of a variant that it does not know, and takes the voice without it.
    is_known = not variant or variant in os.listdir(variants)
    if not is_known or library.espeak_SetVoiceByName(voice.encode()) != 0:
        wrong = f"language {language!r}" if is_known else f"variant {variant!r}"
        raise ValueError(
            f"espeak-ng has no voice {voice!r}, as it does not know the {wrong}: languages are the "
            f"files under {variants.parents[1] / 'lang'}, variants those in {variants}."
        )


def _sounds(library: ctypes.CDLL, word: str) -> tuple[str, ...]:
    text = ctypes.create_string_buffer(word.encode())
    left = ctypes.c_void_p(ctypes.addressof(text))
    mode = PHONEMES_IPA | PHONEMES_APART_BY_SPACES
    said = library.espeak_TextToPhonemes(ctypes.byref(left), CHARS_UTF8, mode)
    sounds = tuple(said.decode().translate(IPA_STRESS).split())
    if len(word.split()) != 1 or not sounds:
        raise ValueError(f"pronounce got {word!r}; expected one word, of letters")
    return sounds


def _synthesize(
    library: ctypes.CDLL, text: str
) -> tuple[npt.NDArray[np.int16], list[tuple[str, int]]]:
    chunks: list[bytes] = []
    marks: list[tuple[str, int]] = []
    errors: list[BaseException] = []

    def receive(wave: Any, num_samples: int, events: Any) -> int:
        try:
            if wave and num_samples:
                chunks.append(ctypes.string_at(wave, 2 * num_samples))
            for event in events:
                if event.type == EVENT_LIST_TERMINATED:
                    break
                if event.type == EVENT_PHONEME:
                    marks.append((event.id.string.decode(), event.sample))
        except BaseException as error:  # ctypes would drop it, be it an interrupt from the keyboard
            errors.append(error)
            return 1
        return 0

    callback = _Callback(receive)
    library.espeak_SetSynthCallback(callback)
    encoded = text.encode()
    status = library.espeak_Synth(
        encoded,
        ctypes.c_size_t(len(encoded) + 1),
        ctypes.c_uint(0),
        POSITION_CHARACTER,
        ctypes.c_uint(0),
        ctypes.c_uint(CHARS_UTF8 | END_PAUSE),
        None,
        None,
    )
    if errors:
        raise errors[0]
    if status != 0:
        raise RuntimeError(f"espeak-ng failed with status {status} to speak {text!r}")
    return np.frombuffer(b"".join(chunks), dtype=np.int16), marks
