from __future__ import annotations

import pickle
import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.data.audio import AudioError, read_audio, read_audio_format
from tests.speech.recordings import FORMATS, babble, write_recording

SHARED = Path(__file__).parents[3] / "shared"


def kind_of(path: Path, **how: float) -> str:
    with pytest.raises(AudioError, match=path.name) as caught:
        read_audio(path, **how)  # type: ignore[arg-type]
    assert str(path) == caught.value.problem.where
    assert caught.value.problem.remedy in str(caught.value)
    return caught.value.problem.kind


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_lossless_recordings_are_read_to_the_bit(tmp_path: Path, suffix: str) -> None:
    samples = (np.round(babble() * 32768) / 32768).astype(np.float32)
    audio = read_audio(write_recording(tmp_path / f"a{suffix}", samples))
    assert audio.samples.dtype == np.float32
    assert audio.sample_rate == 16000
    np.testing.assert_array_equal(audio.samples, samples)


def test_opus_is_read_at_its_own_rate_and_length_and_sounds_alike(tmp_path: Path) -> None:
    samples = babble(1.0, 8000)
    audio = read_audio(write_recording(tmp_path / "a.opus", samples, 8000))
    assert (audio.sample_rate, len(audio.samples)) == (8000, 8000)
    assert np.corrcoef(audio.samples, samples)[0, 1] > 0.9


@pytest.mark.parametrize("suffix", FORMATS)
def test_part_of_a_recording_is_that_part_of_the_whole(tmp_path: Path, suffix: str) -> None:
    path = write_recording(tmp_path / f"a{suffix}", babble(3.0))
    whole = read_audio(path).samples
    part = read_audio(path, begin_seconds=1.25, end_seconds=2.5).samples
    np.testing.assert_allclose(part, whole[20000:40000], atol=1e-5)
    np.testing.assert_allclose(
        read_audio(path, begin_seconds=1.25).samples, whole[20000:], atol=1e-5
    )
    np.testing.assert_array_equal(read_audio(path, end_seconds=0.5).samples, whole[:8000])


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([8000, 11025, 16000, 22050, 44100]),
    st.sampled_from([8000, 16000, 48000]),
    st.integers(2000, 9000),
)
def test_resampling_keeps_the_duration_and_a_tone(
    tmp_path_factory: pytest.TempPathFactory, rate: int, wanted: int, length: int
) -> None:
    def tone(num_samples: int, at: int) -> NDArray[np.float32]:
        return (0.3 * np.sin(2 * np.pi * 440 * np.arange(num_samples) / at)).astype(np.float32)

    path = tmp_path_factory.mktemp("tone") / "tone.wav"
    audio = read_audio(write_recording(path, tone(length, rate), rate), sample_rate=wanted)
    assert audio.sample_rate == wanted
    assert abs(len(audio.samples) - length * wanted / rate) <= 1
    inside = slice(wanted // 40, -(wanted // 40))
    np.testing.assert_allclose(
        audio.samples[inside], tone(len(audio.samples), wanted)[inside], atol=0.003
    )


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([0.9, 1.1, 0.5]), st.sampled_from([None, 8000, 22050]))
def test_at_another_speed_it_is_shorter_and_higher(speed: float, rate: int | None) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(32000) / 16000)
    with tempfile.TemporaryDirectory() as directory:
        path = write_recording(Path(directory) / "a.wav", tone.astype(np.float32))
        audio = read_audio(path, rate, speed=speed)
    assert audio.sample_rate == (rate or 16000)
    assert audio.duration_seconds == pytest.approx(2 / speed, abs=1e-3)
    spectrum = np.abs(np.fft.rfft(audio.samples * np.hanning(len(audio.samples))))
    highest = np.argmax(spectrum) * audio.sample_rate / len(audio.samples)
    assert highest == pytest.approx(440 * speed, abs=1.0)


def test_format_is_told_without_decoding(tmp_path: Path) -> None:
    found = read_audio_format(write_recording(tmp_path / "a.flac", babble(0.5), 16000))
    assert (found.num_samples, found.sample_rate, found.duration_seconds) == (8000, 16000, 0.5)


def test_path_with_spaces_and_letters_beyond_ascii_is_read(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "two  spaces" / "Grüße an alle.wav")
    assert len(read_audio(str(path)).samples) == 8000


def test_missing_recording_is_named(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "gone.wav") == "missing audio"


def test_directory_in_place_of_a_recording_is_refused(tmp_path: Path) -> None:
    assert kind_of(tmp_path) == "unreadable audio"


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.opus", "a.raw", "a", "a.mp3"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>" * 99])
def test_file_that_is_no_recording_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert kind_of(tmp_path / name) == "unreadable audio"


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kept", [0.3, 0.7, 0.99])
def test_truncated_recording_is_refused(tmp_path: Path, suffix: str, kept: float) -> None:
    path = write_recording(tmp_path / f"a{suffix}", babble(10.0))
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert kind_of(path) == "unreadable audio"


@pytest.mark.parametrize("kind", ["NIST", "AIFF", "AU", "W64", "RF64"])
@pytest.mark.parametrize("kept", [0.3, 0.99])
def test_truncated_recording_of_an_older_format_is_refused(
    tmp_path: Path, kind: str, kept: float
) -> None:
    path = tmp_path / "a"
    soundfile.write(path, babble(), 16000, format=kind, subtype="PCM_16")
    assert len(read_audio(path).samples) == 8000
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert kind_of(path) == "unreadable audio"


def test_flac_file_of_unknown_length_is_refused(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "piped.flac")
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the lower half, and the next four bytes, are the number of samples
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert kind_of(path) == "audio of unknown length"
    with pytest.raises(AudioError, match="not through a pipe"):
        read_audio_format(path)


def test_recording_of_a_codec_that_cannot_seek_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gsm.wav"
    soundfile.write(path, babble(sample_rate=8000), 8000, format="WAV", subtype="GSM610")
    assert len(read_audio(path).samples) >= 4000


def test_name_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "a\0b.wav") == "unreadable audio"


@pytest.mark.parametrize("suffix", [".flac", ".opus"])
def test_recording_with_a_hole_is_refused(tmp_path: Path, suffix: str) -> None:
    path = write_recording(tmp_path / f"a{suffix}", babble(10.0))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 500] = bytes(range(250)) * 2
    path.write_bytes(content)
    assert kind_of(path) == "unreadable audio"


@pytest.mark.parametrize("stated_bytes", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_wave_file_that_came_through_a_pipe_is_read(tmp_path: Path, stated_bytes: int) -> None:
    path = tmp_path / "piped.wav"
    layout = struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    size = struct.pack("<I", stated_bytes)
    sound = np.arange(1000, dtype="<i2").tobytes()
    path.write_bytes(b"RIFF" + size + b"WAVEfmt " + layout + b"data" + size + sound)
    np.testing.assert_array_equal(read_audio(path).samples * 32768, np.arange(1000))


def test_several_channels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "stereo.wav"
    soundfile.write(path, np.zeros((8000, 2)), 8000)
    assert kind_of(path) == "several channels"


def test_recording_without_samples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.wav"
    soundfile.write(path, np.zeros(0), 8000)
    assert kind_of(path) == "empty audio"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_sample_that_is_no_number_is_refused_by_its_place(tmp_path: Path, bad: float) -> None:
    samples = babble()
    samples[4321] = bad
    path = tmp_path / "bad.wav"
    soundfile.write(path, samples, 16000, subtype="FLOAT")
    assert kind_of(path) == "samples not finite"
    with pytest.raises(AudioError, match="sample 4321 is"):
        read_audio(path)
    assert len(read_audio(path, end_seconds=0.25).samples) == 4000  # the part before is unharmed


def test_sixteen_bit_numbers_in_a_float_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "loud.wav"
    soundfile.write(path, babble() * 32768, 16000, subtype="FLOAT")
    assert kind_of(path) == "samples out of scale"


def test_end_half_a_second_late_is_the_end_and_more_is_refused(tmp_path: Path) -> None:
    path = write_recording(tmp_path / "a.wav")
    assert len(read_audio(path, end_seconds=0.9).samples) == 8000
    assert kind_of(path, end_seconds=1.1) == "segment outside its recording"
    assert kind_of(path, begin_seconds=0.5, end_seconds=0.6) == "segment outside its recording"
    assert kind_of(path, begin_seconds=0.2, end_seconds=0.1) == "segment outside its recording"
    assert kind_of(path, begin_seconds=-0.1) == "segment outside its recording"
    assert kind_of(path, begin_seconds=0.1, end_seconds=0.10001) == "empty audio"


def test_error_survives_its_way_from_another_process(tmp_path: Path) -> None:
    with pytest.raises(AudioError) as caught:
        read_audio(tmp_path / "gone.wav")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.problem == caught.value.problem
    assert str(again) == str(caught.value)


def test_parts_of_real_opus_are_those_of_the_whole() -> None:
    files = sorted((SHARED / "data/librispeech/dev-clean").glob("*/*/*.opus"))[:3]
    if not files:
        pytest.skip("needs ../shared/data/librispeech")
    for file in files:
        whole = read_audio(file)
        assert whole.sample_rate == 8000
        part = read_audio(file, begin_seconds=1.0, end_seconds=1.5)
        np.testing.assert_allclose(part.samples, whole.samples[8000:12000], atol=1e-4)
