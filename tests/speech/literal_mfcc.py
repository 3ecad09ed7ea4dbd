"""MFCC by their definition, in float64: judges the fast ones."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.mfcc import MfccOptions

Doubles = NDArray[np.float64]

SMALLEST = float(np.finfo(np.float32).eps)


def literal_mfcc(samples: NDArray[np.float32], options: MfccOptions) -> Doubles:
    scaled = samples.astype(np.float64) * 32768
    length, shift = options.frame_length_samples, options.frame_shift_samples
    starts = range(0, len(scaled) - length + 1, shift)
    banks = mel_banks(options)
    frames = [cepstra(scaled[start : start + length], banks, options) for start in starts]
    return np.array(frames).reshape(-1, options.num_cepstra)


def cepstra(frame: Doubles, banks: Doubles, options: MfccOptions) -> Doubles:
    frame = frame - frame.mean()
    energy = math.log(max(float(frame @ frame), SMALLEST))
    before = np.concatenate([frame[:1], frame[:-1]])
    frame = (frame - options.preemphasis * before) * povey_window(len(frame))
    spectrum = np.abs(np.fft.rfft(frame, fft_length(options))) ** 2
    mel_energies = np.log(np.maximum(banks @ spectrum, SMALLEST))
    result: Doubles = np.array(
        [
            lifter(number, options.cepstral_lifter) * cosine(mel_energies, number)
            for number in range(options.num_cepstra)
        ]
    )
    if options.use_energy:
        result[0] = energy
    return result


def povey_window(length: int) -> Doubles:
    angle = 2 * math.pi * np.arange(length) / (length - 1)
    window: Doubles = (0.5 - 0.5 * np.cos(angle)) ** 0.85
    return window


def fft_length(options: MfccOptions) -> int:
    points = 1
    while points < options.frame_length_samples:
        points *= 2
    return points


def mel(hz: float) -> float:
    return 1127 * math.log(1 + hz / 700)


def mel_banks(options: MfccOptions) -> Doubles:
    points = fft_length(options)
    low, high = mel(options.low_hz), mel(options.highest_hz)
    width = (high - low) / (options.num_mel_bins + 1)
    banks = np.zeros((options.num_mel_bins, points // 2 + 1))
    for number in range(options.num_mel_bins):
        left, centre, right = (low + (number + i) * width for i in range(3))
        for point in range(points // 2):  # the last, at half the sample rate, is in no bank
            at = mel(point * options.sample_rate / points)
            if left < at <= centre:
                banks[number, point] = (at - left) / (centre - left)
            elif centre < at < right:
                banks[number, point] = (right - at) / (right - centre)
    return banks


def cosine(values: Doubles, number: int) -> float:
    num = len(values)
    norm = math.sqrt((1 if number == 0 else 2) / num)
    angles = math.pi / num * (np.arange(num) + 0.5) * number
    return norm * float(np.cos(angles) @ values)


def lifter(number: int, q: float) -> float:
    return 1 + 0.5 * q * math.sin(math.pi * number / q) if q else 1.0
