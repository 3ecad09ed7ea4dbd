"""Recordings as arrays: any format that libsndfile reads, any sample rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from natgrad.speech.data.problem import Problem

__all__ = ["Audio", "AudioError", "AudioFormat", "read_audio", "read_audio_format"]

LARGEST_OVERSHOOT_SECONDS = 0.5  # as in Kaldi: times of segments are often rounded up
LARGEST_MAGNITUDE = 10.0  # lossy codecs overshoot 1 a little; 16-bit numbers are far beyond

# A WAV file that was written to a pipe says that its data is as long as can be.
STREAM_BYTES = 0x7FFF0000
# What libsndfile notes of WAV; AIFF; AU; Wave64; RF64. (A wrong "RIFF" of WAV does no harm.)
TRUNCATED = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE
)
SPHERE_HEADER_BYTES = 1024
SPHERE_LENGTH = re.compile(rb"^sample_count -i (\d+)", re.MULTILINE)
UNKNOWN_LENGTH = 2**63 - 1  # libsndfile's, of a FLAC file that was written to a pipe
LARGEST_OGG_PAGE_BYTES = 65307
OGG_HEADER_BYTES = 27
OGG_END_OF_STREAM = 4  # a bit of the flags in a page's header

COPY_AGAIN = "Copy or convert the recording again, or take its utterances out of the directory"


class AudioError(ValueError):
    """A recording that cannot be used; `problem` says why and names its file."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return str(self.problem)


@dataclass(frozen=True, eq=False)
class Audio:
    """One channel of sound; full scale is 1, which a lossy codec may pass by a little."""

    samples: NDArray[np.float32]  # (num_samples,)
    sample_rate: int

    @property
    def duration_seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.sample_rate


@dataclass(frozen=True)
class AudioFormat:
    """What a recording's file says about it."""

    num_samples: int
    sample_rate: int

    @property
    def duration_seconds(self) -> float:
        """How long the recording is."""
        return self.num_samples / self.sample_rate


def read_audio(
    path: str | Path,
    sample_rate: int | None = None,
    begin_seconds: float | None = None,
    end_seconds: float | None = None,
    speed: float = 1.0,
) -> Audio:
    """Read a recording, or a part of one, and resample it if it has another rate than asked for.

    An end that is at most half a second after the recording's own is taken for the recording's.
    At a speed above 1 it is as if the tape ran faster: shorter, and higher in pitch and formants.
    Whatever else is wrong (no such file, a broken or truncated file, several channels, samples
    that are not numbers, none at all) is an AudioError that names the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "tone.flac"
    >>> soundfile.write(path, 0.5 * np.sin(np.arange(16000)), 16000)
    >>> audio = read_audio(path, sample_rate=8000, begin_seconds=0.25)
    >>> len(audio.samples), audio.sample_rate, audio.duration_seconds
    (6000, 8000, 0.75)
    >>> read_audio(path, sample_rate=8000, speed=0.8).duration_seconds
    1.25
    """
    path = Path(path)
    with _open(path) as file:
        begin, end = _sample_range(path, file, begin_seconds, end_seconds)
        rate = int(file.samplerate)
        try:
            if begin:  # else a codec that cannot seek, as GSM, would refuse
                file.seek(begin)
            samples = file.read(end - begin, dtype="float32")
        except soundfile.LibsndfileError as error:
            raise _broken(path, f"cannot be decoded ({_reason(error)})") from error
    if len(samples) < end - begin:
        raise _broken(
            path,
            f"breaks off: samples {begin} to {end} were asked for and only {len(samples)} of them "
            "could be decoded",
        )
    _check_values(path, samples)
    wanted = sample_rate or rate
    if wanted != rate * speed:
        samples = soxr.resample(samples, rate * speed, wanted).astype(np.float32, copy=False)
        if not len(samples):
            raise _empty(path, f"{end - begin} samples at {rate * speed:g} Hz are none at {wanted}")
    return Audio(samples, wanted)


def read_audio_format(path: str | Path) -> AudioFormat:
    """Return the length and the rate of a recording without decoding it."""
    with _open(Path(path)) as file:
        return AudioFormat(int(file.frames), int(file.samplerate))


def _open(path: Path) -> soundfile.SoundFile:
    try:
        with open(path, "rb"):  # for the system's own reason; libsndfile says "System error"
            pass
    except FileNotFoundError as error:
        message = "there is no such file"
        remedy = "Restore it, or correct its path in wav.scp"
        raise AudioError(Problem("missing audio", str(path), message, remedy)) from error
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise _broken(path, f"cannot be opened ({reason})") from error
    try:
        file = soundfile.SoundFile(path)
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a name that ends in .raw
        message = f"is not a recording that libsndfile can read ({_reason(error)})"
        raise _broken(path, message) from error
    try:
        _check_whole(path, file)
    except AudioError:
        file.close()
        raise
    return file


def _check_whole(path: Path, file: soundfile.SoundFile) -> None:
    """Refuse several channels, and a file whose end is missing; libsndfile takes it as it is."""
    if file.channels != 1:
        message = f"has {file.channels} channels, expected 1"
        remedy = "Write one channel to a file of its own and name that in wav.scp"
        raise AudioError(Problem("several channels", str(path), message, remedy))
    cut = TRUNCATED.search(file.extra_info)
    if cut and int(cut[2]) < int(cut[1]) < STREAM_BYTES:
        raise _broken(path, f"is truncated: {cut[2]} bytes of it, its header says {cut[1]}")
    if file.format == "NIST" and file.frames < (stated := _sphere_length(path)):
        raise _broken(path, f"is truncated: {file.frames} samples, its header says {stated}")
    if file.format == "OGG" and not _ends_with_last_page(path):
        raise _broken(path, "is truncated: its Ogg stream has no end")
    if file.frames == 0:
        raise _empty(path, "has no samples")
    if file.frames == UNKNOWN_LENGTH:
        message = "does not say how long it is, as what is written to a pipe"
        remedy = "Convert it again, to a file and not through a pipe"
        raise AudioError(Problem("audio of unknown length", str(path), message, remedy))


def _sphere_length(path: Path) -> int:
    """Return how many samples the header of a NIST SPHERE file states; 0 if it does not."""
    with open(path, "rb") as file:
        stated = SPHERE_LENGTH.search(file.read(SPHERE_HEADER_BYTES))
    return int(stated[1]) if stated else 0


def _ends_with_last_page(path: Path) -> bool:
    """Whether an Ogg file ends with a whole page that says it is the last."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - LARGEST_OGG_PAGE_BYTES))
        tail = file.read()
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) < OGG_HEADER_BYTES:
        return False
    flags, num_segments = page[5], page[26]
    segments = page[OGG_HEADER_BYTES : OGG_HEADER_BYTES + num_segments]
    is_whole = len(page) >= OGG_HEADER_BYTES + num_segments + sum(segments)
    return is_whole and bool(flags & OGG_END_OF_STREAM)


def _sample_range(
    path: Path, file: soundfile.SoundFile, begin_seconds: float | None, end_seconds: float | None
) -> tuple[int, int]:
    seconds = file.frames / file.samplerate
    begin = 0.0 if begin_seconds is None else begin_seconds
    end = seconds if end_seconds is None else end_seconds
    if not (0 <= begin < seconds and begin < end <= seconds + LARGEST_OVERSHOOT_SECONDS):
        message = f"is {seconds:.3f} s long, which has no part from {begin:.3f} to {end:.3f} s"
        remedy = "Correct the times in segments"
        raise AudioError(Problem("segment outside its recording", str(path), message, remedy))
    first = round(begin * file.samplerate)
    last = min(round(end * file.samplerate), file.frames)
    if first >= last:
        raise _empty(path, f"has no samples from {begin:.6f} to {end:.6f} s")
    return first, last


def _check_values(path: Path, samples: NDArray[np.float32]) -> None:
    largest = max(float(samples.max()), -float(samples.min()))  # NaN if any sample is
    if not np.isfinite(largest):
        first = int(np.argmin(np.isfinite(samples)))
        message = f"sample {first} is {samples[first]}, not a finite number"
        remedy = "Find what wrote it, and write the recording again"
        raise AudioError(Problem("samples not finite", str(path), message, remedy))
    if largest > LARGEST_MAGNITUDE:
        message = f"has samples up to {largest:g}, where full scale is 1"
        remedy = "Divide the samples by their full scale (32768 for 16 bits) and write it again"
        raise AudioError(Problem("samples out of scale", str(path), message, remedy))


def _reason(error: Exception) -> str:
    return str(getattr(error, "error_string", error)).strip().rstrip(".")


def _broken(path: Path, message: str) -> AudioError:
    return AudioError(Problem("unreadable audio", str(path), message, COPY_AGAIN))


def _empty(path: Path, message: str) -> AudioError:
    return AudioError(Problem("empty audio", str(path), message, COPY_AGAIN))
