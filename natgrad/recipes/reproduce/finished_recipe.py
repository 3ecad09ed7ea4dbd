"""What a speech recipe has left in its directory, for experiments that begin there.

    natgrad recipe librispeech --data LIBRISPEECH --out exp/librispeech
    natgrad reproduce jobs --data exp

Nothing is written there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from natgrad.recipes.an4 import an4_config
from natgrad.recipes.librispeech import librispeech_config
from natgrad.recipes.reproduce.experiment import Progress
from natgrad.recipes.speech_config import SpeechConfig
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Workshop

__all__ = ["FinishedRecipe", "find_recipe"]

CONFIGS: dict[str, Callable[[], SpeechConfig]] = {
    "librispeech": librispeech_config,
    "an4": an4_config,
}


@dataclass(frozen=True)
class FinishedRecipe:
    """A recipe's choices, and the files that it has left."""

    config: SpeechConfig
    files: SpeechFiles

    @contextmanager
    def opened(
        self, progress: Progress, engine: EngineConfig, config: SpeechConfig | None = None
    ) -> Iterator[Workshop]:
        """Work with its files, perhaps with other choices."""
        shop = Workshop(config or self.config, self.files, engine, progress)
        try:
            yield shop
        finally:
            shop.close()

    @property
    def results(self) -> dict[str, Any]:
        """Its table: what each of its systems reached."""
        found: dict[str, Any] = json.loads(self.files.results.read_bytes())
        return found


def find_recipe(data: Path, name: str) -> FinishedRecipe:
    """Return the recipe in DATA/NAME, which must have got to its end."""
    files = SpeechFiles(data.absolute() / name)
    if not files.results.exists():
        raise ValueError(
            f"{files.root} is not the directory of a finished recipe: there is no "
            f"{files.results.name}. Run  natgrad recipe {name} --data CORPUS --out {data / name}  "
            "to its end, or give another --data"
        )
    return FinishedRecipe(CONFIGS[name](), files)
