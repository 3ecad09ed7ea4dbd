"""MFCC: against kaldi-native-fbank as it comes, and against their definition in float64."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.features.mfcc import FeatureError, MfccOptions, MfccStream, mfcc
from tests.speech.literal_mfcc import literal_mfcc, mel_banks

SHARED = Path(__file__).parents[3] / "shared"
AN4_FILE = SHARED / "data/an4/wav/an4test_clstk/fvap/an426-fvap-b.flac"

needs_an4 = pytest.mark.skipif(not AN4_FILE.exists(), reason=f"there is no {AN4_FILE}")

Floats = NDArray[np.float32]

EVERY_KIND = [
    MfccOptions(16000),
    MfccOptions(8000),
    MfccOptions.high_resolution(16000),
    MfccOptions.high_resolution(8000),
    MfccOptions(16000, use_energy=False, cepstral_lifter=0.0, preemphasis=0.0),
    MfccOptions(11025, frame_length_ms=31.0, frame_shift_ms=7.3),
    MfccOptions(22050, num_cepstra=20, high_hz=7600.0, low_hz=100.0),
]


def noise(num_samples: int, seed: int = 0, scale: float = 0.1) -> Floats:
    return np.float32(scale) * np.random.default_rng(seed).standard_normal(num_samples, np.float32)


def an4_recording() -> tuple[NDArray[np.int16], int]:
    samples, rate = soundfile.read(AN4_FILE, dtype="int16")
    return samples, rate


def package_mfcc(integers: NDArray[np.int16], rate: int) -> Floats:
    """The package's own defaults, which are Kaldi's; on integers, as Kaldi reads them."""
    options = kaldi_native_fbank.MfccOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.samp_freq = rate
    computer = kaldi_native_fbank.OnlineMfcc(options)
    computer.accept_waveform(rate, integers.astype(np.float32).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(frame) for frame in range(computer.num_frames_ready)])


@pytest.mark.parametrize("options", EVERY_KIND, ids=str)
def test_mfcc_are_those_of_the_definition(options: MfccOptions) -> None:
    samples = noise(options.sample_rate // 2)
    samples[2000:3000] = 0.0  # digital silence, where only the floors are left
    expected = literal_mfcc(samples, options)
    np.testing.assert_allclose(mfcc(samples, options), expected, atol=3e-4)


@needs_an4
@pytest.mark.parametrize("options", EVERY_KIND[:1] + EVERY_KIND[2:3], ids=str)
def test_mfcc_of_a_recording_are_those_of_the_definition(options: MfccOptions) -> None:
    integers, rate = an4_recording()
    assert rate == options.sample_rate
    samples = integers.astype(np.float32) / np.float32(32768)
    np.testing.assert_allclose(mfcc(samples, options), literal_mfcc(samples, options), atol=2e-3)


@needs_an4
def test_mfcc_of_a_recording_are_the_bits_of_the_package() -> None:
    integers, rate = an4_recording()
    features = mfcc(integers.astype(np.float32) / np.float32(32768), MfccOptions(rate))
    assert features.shape == (MfccOptions(rate).num_frames(len(integers)), 13)
    assert np.array_equal(features, package_mfcc(integers, rate))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(4000, 48000),
    st.sampled_from([(25.0, 10.0), (32.0, 8.0), (20.0, 12.5), (30.0, 7.3)]),
    st.integers(0, 6),
    st.integers(-1, 1),
)
def test_number_of_frames_is_known_beforehand(
    rate: int, milliseconds: tuple[float, float], num_shifts: int, more: int
) -> None:
    length_ms, shift_ms = milliseconds
    options = MfccOptions(rate, num_mel_bins=15, frame_length_ms=length_ms, frame_shift_ms=shift_ms)
    num_samples = options.frame_length_samples + num_shifts * options.frame_shift_samples + more
    frames = MfccStream(options).accept(noise(num_samples))
    assert len(frames) == options.num_frames(num_samples)


def test_rate_at_which_float32_rounds_otherwise_has_the_frames_of_the_package() -> None:
    options = MfccOptions(8200)
    assert options.frame_length_samples == 205
    assert len(mfcc(noise(205), options)) == 1


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 900), max_size=12))
def test_samples_in_pieces_give_the_same_bits(lengths: list[int]) -> None:
    options = MfccOptions(8000)
    samples = noise(4000)
    stream, frames, first = MfccStream(options), [], 0
    for length in [*lengths, len(samples)]:
        frames.append(stream.accept(samples[first : first + length]))
        first += length
        assert sum(map(len, frames)) == options.num_frames(min(first, len(samples)))
    assert np.array_equal(np.concatenate(frames), mfcc(samples, options))


def test_less_than_a_frame_is_refused() -> None:
    with pytest.raises(FeatureError, match=r"199 samples at 8000 Hz.*25 ms, 200 samples"):
        mfcc(noise(199), MfccOptions(8000))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_numbers_are_counted_and_refused(bad: float) -> None:
    samples = noise(8000)
    samples[[5, 77]] = bad
    with pytest.raises(FeatureError, match="2 of 8000 samples are NaN or infinite"):
        mfcc(samples, MfccOptions(8000))


@pytest.mark.parametrize("samples", [np.zeros(8000, np.int16), np.zeros((8000, 2), np.float32)])
def test_integers_and_two_channels_are_refused(samples: Floats) -> None:
    with pytest.raises(FeatureError, match=re.escape("expected floats within [-1, 1] in one")):
        mfcc(samples, MfccOptions(8000))


def test_digital_silence_has_finite_features() -> None:
    for options in EVERY_KIND:
        assert np.isfinite(mfcc(np.zeros(options.sample_rate, np.float32), options)).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_cepstra": 24}, "num_cepstra is 24; expected from 1 to num_mel_bins, 23"),
        ({"num_cepstra": 0}, "num_cepstra is 0"),
        ({"high_hz": 9000.0}, "from low_hz 20 to 9000; expected them within 0 and half .* 8000"),
        ({"high_hz": -8000.0}, "from low_hz 20 to 0"),
        ({"low_hz": -1.0}, "low_hz -1"),
        ({"sample_rate": 0}, "sample_rate is 0"),
        ({"frame_shift_ms": 0.0}, "expected at least 2 and 1"),
        ({"preemphasis": 1.5}, "preemphasis is 1.5"),
        ({"cepstral_lifter": -1.0}, "cepstral_lifter is -1"),
        ({"num_mel_bins": 2, "num_cepstra": 2}, "num_mel_bins is 2; expected at least 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(FeatureError, match=message):
        replace(MfccOptions(16000), **changes)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(st.integers(5, 130), st.sampled_from([8000, 11025, 16000]), st.sampled_from([0.0, 40.0]))
def test_mel_bins_are_refused_exactly_if_one_is_empty(
    num_mel_bins: int, rate: int, low_hz: float
) -> None:
    class Unchecked(MfccOptions):
        def __post_init__(self) -> None: ...

    arguments = {"num_cepstra": 5, "num_mel_bins": num_mel_bins, "low_hz": low_hz}
    banks = mel_banks(Unchecked(rate, **arguments))  # type: ignore[arg-type]
    if (banks.sum(axis=1) > 0).all():
        MfccOptions(rate, **arguments)  # type: ignore[arg-type]
    else:
        number = int(np.argmin(banks.sum(axis=1) > 0))
        with pytest.raises(FeatureError, match=f"number {number} has no point of the spectrum"):
            MfccOptions(rate, **arguments)  # type: ignore[arg-type]
