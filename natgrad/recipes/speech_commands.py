"""The speech recipes by name, and what the command `natgrad recipe` does.

A recipe is imported when it is asked for: it brings all of training and recognition with it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from natgrad.parallel.engines import check_engine
from natgrad.recipes.train_config import EngineConfig
from natgrad.run.config import from_mapping, set_key

if TYPE_CHECKING:
    from natgrad.recipes.speech_recipe import SpeechRecipe

__all__ = ["RECIPES", "RecipeEnd", "list_stages", "run_recipe"]

OnEvent = Callable[[dict[str, Any]], None]
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


def _an4(data: Path | None) -> SpeechRecipe:
    source = _needed("an4", data)
    from natgrad.recipes.an4 import an4_recipe

    return an4_recipe(source)


def _librispeech(data: Path | None) -> SpeechRecipe:
    source = _needed("librispeech", data)
    from natgrad.recipes.librispeech import librispeech_recipe

    return librispeech_recipe(source)


def _demo(data: Path | None) -> SpeechRecipe:
    if data is not None:
        raise ValueError("the recipe demo takes no --data: it speaks by itself")
    from natgrad.recipes.demo_recipe import demo_recipe

    return demo_recipe()


# By name: what makes a recipe of the corpus's directory.
RECIPES: dict[str, Callable[[Path | None], SpeechRecipe]] = {
    "an4": _an4,
    "librispeech": _librispeech,
    "demo": _demo,
}
NEED_NO_DATA = ("demo",)


class RecipeEnd(NamedTuple):
    """What a recipe ended on: its table, and the run that trained the network; None if not yet."""

    table: str | None
    network: Path | None


def run_recipe(
    name: str,
    data: str | Path | None,
    out: str | Path,
    progress: Progress,
    on_event: OnEvent,
    follow_training: OnEvent,
    first: str | None = None,
    last: str | None = None,
    engine: str = "local",
    num_workers: int | None = None,
    engine_options: Sequence[str] = (),
) -> RecipeEnd:
    """Do the stages of a recipe that are not done in a directory.

    Args:
        name: of the recipe.
        data: the corpus's directory.
        out: of everything that is made.
        progress: makes progress bars.
        on_event: called with the events of stages.
        follow_training: called with the events of the network's training.
        first: the stage to begin with, done or not.
        last: the stage to end with.
        engine: where utterances and jobs are worked on.
        num_workers: how many at the same time.
        engine_options: of the engine, as in "queue=long".
    """
    from natgrad.recipes.speech_files import SpeechFiles
    from natgrad.recipes.speech_table import format_table

    if data is not None and not Path(data).is_dir():
        raise ValueError(f"there is no directory {data}: give the corpus's by --data")
    workers = _engine(engine, num_workers, engine_options)
    recipe = _recipe(name, None if data is None else Path(data))
    facts = recipe.run(out, workers, progress, first, last, on_event, follow_training)
    return RecipeEnd(
        format_table(facts["table"]) if "table" in facts else None,
        SpeechFiles(Path(out)).dnn().run if "dnn" in facts else None,
    )


def list_stages(name: str) -> list[tuple[str, str]]:
    """Return the stages of a recipe in order, and what each does.

    >>> list_stages("an4")[2]
    ('features', 'Compute the cepstra of all data directories')
    """
    from natgrad.recipes.speech_files import SpeechFiles
    from natgrad.recipes.workshop import Workshop

    # No stage is done, so it does not matter where the corpus would be.
    recipe = _recipe(name, None if name in NEED_NO_DATA else Path("DATA"))
    shop = Workshop(recipe.config, SpeechFiles(Path("OUT")), EngineConfig(), _no_bar)
    return [(stage.name, _purpose(stage.run)) for stage in recipe.stages(shop)]


def _purpose(run: Callable[..., object]) -> str:
    """Return the first clause of a function's docstring."""
    text = inspect.getdoc(getattr(run, "func", run)) or ""
    return re.split(r"[.:;](?:\s|$)", " ".join(text.split()), maxsplit=1)[0]


def _recipe(name: str, data: Path | None) -> SpeechRecipe:
    if name not in RECIPES:
        raise ValueError(f"there is no recipe {name!r}: the recipes are {', '.join(RECIPES)}")
    return RECIPES[name](data)


def _needed(name: str, data: Path | None) -> Path:
    if data is None:
        raise ValueError(f"the recipe {name} needs --data DIR, a copy of its corpus")
    return data


def _engine(name: str, num_workers: int | None, options: Sequence[str]) -> EngineConfig:
    mapping: dict[str, Any] = {"name": name, "num_workers": num_workers, "options": {}}
    for option in options:
        set_key(mapping["options"], option)
    config = from_mapping(EngineConfig, mapping)
    check_engine(config.name, config.options)
    return config


@contextmanager
def _no_bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    yield lambda amount: None
