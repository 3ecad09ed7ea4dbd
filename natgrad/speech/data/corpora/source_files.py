"""The files of a corpus as it was published: its lists, and its recordings in any format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from natgrad.speech.data.directory import DataError
from natgrad.speech.data.problem import Problem

__all__ = ["CorpusError", "find_all_audio", "find_audio", "read_lines", "refuse"]

AUDIO_SUFFIXES = (".flac", ".wav", ".opus", ".ogg", ".sph")


class CorpusError(DataError):
    """A directory that is not the corpus it should be, or not all of it."""


def refuse(corpus: str, source: Path, problems: Sequence[Problem]) -> None:
    """Raise a CorpusError if there are any problems."""
    if problems:
        raise CorpusError(f"{source} is not a whole copy of {corpus}", problems)


def read_lines(corpus: str, source: Path, name: str) -> list[str]:
    """Return the lines of one of the corpus's lists."""
    path = source / name
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot be read ({getattr(error, 'strerror', None) or error})"
        remedy = f"Give the directory of {corpus} that has {name} in it"
        raise CorpusError(
            f"{source} is not a copy of {corpus}",
            [Problem("missing list", str(path), message, remedy)],
        ) from error


def find_audio(stem: Path) -> Path | None:
    """Return the recording of this name, without its suffix; None if there is none."""
    candidates = (stem.with_name(stem.name + suffix) for suffix in AUDIO_SUFFIXES)
    return next((path.absolute() for path in candidates if path.is_file()), None)


def find_all_audio(directory: Path) -> dict[str, Path]:
    """Return the recordings in a directory by their names without suffix."""
    paths = (path for path in directory.absolute().iterdir() if path.suffix in AUDIO_SUFFIXES)
    return {path.stem: path for path in sorted(paths)}
