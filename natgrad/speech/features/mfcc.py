"""Mel-frequency cepstra, by kaldi-native-fbank: the same numbers as Kaldi's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import kaldi_native_fbank
import numpy as np
from numpy.typing import NDArray

__all__ = ["FeatureError", "MfccOptions", "MfccStream", "mfcc"]

Floats = NDArray[np.float32]

# Kaldi's features are those of 16-bit integers; samples here are within [-1, 1].
FULL_SCALE = 32768.0


class FeatureError(ValueError):
    """Features that cannot be computed, or are not what they should be."""


@dataclass(frozen=True)
class MfccOptions:
    """What cepstra are of; the defaults are Kaldi's.

    Frames are those that fit whole into the recording. Each has its mean taken off, is
    pre-emphasised and windowed (by Kaldi's "povey" window). Nothing is random: there is no dither.

    >>> options = MfccOptions(sample_rate=16000)
    >>> options.frame_length_samples, options.frame_shift_samples, options.num_frames(16000)
    (400, 160, 98)
    """

    sample_rate: int
    num_cepstra: int = 13
    num_mel_bins: int = 23
    low_hz: float = 20.0
    high_hz: float = 0.0  # if not positive, so much above half the sample rate: -400 is below it
    use_energy: bool = True  # the first cepstrum is the logarithm of the frame's energy
    frame_length_ms: float = 25.0
    frame_shift_ms: float = 10.0
    preemphasis: float = 0.97
    cepstral_lifter: float = 22.0

    @staticmethod
    def high_resolution(sample_rate: int) -> MfccOptions:
        """Return the options of cepstra that keep all of 40 mel bins, as networks like them."""
        return MfccOptions(
            sample_rate, num_cepstra=40, num_mel_bins=40, high_hz=-400.0, use_energy=False
        )

    def __post_init__(self) -> None:
        # The package itself takes any number, and then computes something.
        nyquist = self.sample_rate / 2
        conditions = {
            f"sample_rate is {self.sample_rate}; expected a positive number": self.sample_rate > 0,
            f"num_cepstra is {self.num_cepstra}; expected from 1 to num_mel_bins, "
            f"{self.num_mel_bins}": 1 <= self.num_cepstra <= self.num_mel_bins,
            f"num_mel_bins is {self.num_mel_bins}; expected at least 3": self.num_mel_bins >= 3,
            f"the mel bins are from low_hz {self.low_hz:g} to {self.highest_hz:g}; expected them "
            f"within 0 and half the sample rate, {nyquist:g}": (
                0 <= self.low_hz < self.highest_hz <= nyquist
            ),
            f"preemphasis is {self.preemphasis:g}; expected from 0 to 1": (
                0 <= self.preemphasis <= 1
            ),
            f"a frame has {self.frame_length_samples} samples and the next begins "
            f"{self.frame_shift_samples} later; expected at least 2 and 1": (
                self.frame_length_samples >= 2 and self.frame_shift_samples >= 1
            ),
            f"cepstral_lifter is {self.cepstral_lifter:g}; expected 0 (none) or more": (
                self.cepstral_lifter >= 0
            ),
        }
        for message, holds in conditions.items():
            if not holds:
                raise FeatureError(f"cannot compute MFCC: {message}")
        self._check_that_no_mel_bin_is_empty()

    @property
    def highest_hz(self) -> float:
        """The upper end of the mel bins."""
        return self.high_hz if self.high_hz > 0 else self.sample_rate / 2 + self.high_hz

    @property
    def frame_length_samples(self) -> int:
        """The samples of a frame."""
        return self._samples(self.frame_length_ms)

    @property
    def frame_shift_samples(self) -> int:
        """How many samples after a frame the next begins."""
        return self._samples(self.frame_shift_ms)

    def num_frames(self, num_samples: int) -> int:
        """Return how many frames a recording has."""
        if num_samples < self.frame_length_samples:
            return 0
        return 1 + (num_samples - self.frame_length_samples) // self.frame_shift_samples

    def _samples(self, milliseconds: float) -> int:
        # Rounded down from float32, as the package does: at 8200 Hz, 25 ms are not 204 samples.
        return int(np.float32(self.sample_rate) * np.float32(0.001) * np.float32(milliseconds))

    def _check_that_no_mel_bin_is_empty(self) -> None:
        num_points = 2 ** math.ceil(math.log2(self.frame_length_samples))
        frequencies = np.arange(num_points // 2) * self.sample_rate / num_points
        mels = 1127.0 * np.log1p(frequencies / 700.0)
        low, high = (1127.0 * math.log1p(hz / 700.0) for hz in (self.low_hz, self.highest_hz))
        edges = np.linspace(low, high, self.num_mel_bins + 2)
        # Strictly inside: a point on the edge of a triangle has no weight.
        first = np.searchsorted(mels, edges[:-2], side="right")
        end = np.searchsorted(mels, edges[2:], side="left")
        if np.any(first >= end):
            bin_number = int(np.argmax(first >= end))
            raise FeatureError(
                f"cannot compute MFCC: of {self.num_mel_bins} mel bins between {self.low_hz:g} and "
                f"{self.highest_hz:g} Hz, number {bin_number} has no point of the spectrum of a "
                f"{num_points}-point transform at {self.sample_rate} Hz; take fewer bins or longer "
                "frames"
            )


class MfccStream:
    """MFCC of samples as they come: a frame is there as soon as its last sample is.

    >>> stream = MfccStream(MfccOptions(sample_rate=8000))
    >>> [stream.accept(np.zeros(100, dtype=np.float32)).shape for _ in range(4)]
    [(0, 13), (1, 13), (1, 13), (1, 13)]
    """

    def __init__(self, options: MfccOptions) -> None:
        self.options = options
        self._computer = kaldi_native_fbank.OnlineMfcc(_package_options(options))
        self._num_frames_taken = 0

    def accept(self, samples: Floats) -> Floats:
        """Take the next samples, within [-1, 1]; return the (T, D) frames that they complete.

        Raises:
            FeatureError: they are not finite floats in one dimension.
        """
        _check_samples(samples)
        scaled = samples.astype(np.float32) * np.float32(FULL_SCALE)
        self._computer.accept_waveform(self.options.sample_rate, scaled)
        first, end = self._num_frames_taken, self._computer.num_frames_ready
        frames = np.empty((end - first, self.options.num_cepstra), dtype=np.float32)
        for frame in range(first, end):
            frames[frame - first] = self._computer.get_frame(frame)
        self._computer.pop(end - first)
        self._num_frames_taken = end
        return frames


def mfcc(samples: Floats, options: MfccOptions) -> Floats:
    """Return the (T, D) cepstra of a recording: its samples, within [-1, 1].

    >>> tone = np.sin(np.arange(8000, dtype=np.float32))
    >>> mfcc(tone, MfccOptions(sample_rate=8000)).shape
    (98, 13)

    Raises:
        FeatureError: it is too short for a frame, or not finite floats in one dimension.
    """
    _check_samples(samples)
    if options.num_frames(len(samples)) == 0:
        raise FeatureError(
            f"the recording has {len(samples)} samples at {options.sample_rate} Hz; expected at "
            f"least one frame of {options.frame_length_ms:g} ms, {options.frame_length_samples} "
            "samples"
        )
    return MfccStream(options).accept(samples)


def _check_samples(samples: Floats) -> None:
    if samples.ndim != 1 or samples.dtype.kind != "f":
        raise FeatureError(
            f"the samples are {samples.dtype} of shape {samples.shape}; expected floats within "
            "[-1, 1] in one dimension: take one channel, and divide integers by their full scale"
        )
    num_bad = len(samples) - int(np.count_nonzero(np.isfinite(samples)))
    if num_bad:
        raise FeatureError(
            f"{num_bad} of {len(samples)} samples are NaN or infinite: the recording is broken"
        )


def _package_options(options: MfccOptions) -> kaldi_native_fbank.MfccOptions:
    package_options = kaldi_native_fbank.MfccOptions()
    package_options.frame_opts.samp_freq = options.sample_rate
    package_options.frame_opts.frame_length_ms = options.frame_length_ms
    package_options.frame_opts.frame_shift_ms = options.frame_shift_ms
    package_options.frame_opts.preemph_coeff = options.preemphasis
    package_options.frame_opts.dither = 0.0
    package_options.mel_opts.num_bins = options.num_mel_bins
    package_options.mel_opts.low_freq = options.low_hz
    package_options.mel_opts.high_freq = options.highest_hz
    package_options.num_ceps = options.num_cepstra
    package_options.use_energy = options.use_energy
    package_options.cepstral_lifter = options.cepstral_lifter
    return package_options
