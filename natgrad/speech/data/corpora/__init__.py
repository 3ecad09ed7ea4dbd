"""Corpora in their own layouts, made into data directories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from natgrad.speech.data.corpora.an4 import prepare_an4
from natgrad.speech.data.corpora.librispeech import prepare_librispeech
from natgrad.speech.data.corpora.source_files import CorpusError
from natgrad.speech.data.directory import DataDirectory

__all__ = ["PREPARERS", "CorpusError", "prepare_an4", "prepare_librispeech"]

# By the name of a corpus: (its directory, where to write) -> data directories by name.
PREPARERS: dict[str, Callable[[Path, Path], dict[str, DataDirectory]]] = {
    "an4": prepare_an4,
    "librispeech": prepare_librispeech,
}
