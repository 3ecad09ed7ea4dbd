"""What a recipe does again when its choices are others, and what it refuses to undo."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.an4 import an4_recipe
from natgrad.recipes.decode_stages import decode_gmm
from natgrad.recipes.librispeech import librispeech_recipe
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_recipe import SpeechRecipe
from natgrad.recipes.speech_table import write_table
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Stage, StageError
from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, SmallDemo, small_demo


def recipe_of(source: str | None) -> SpeechRecipe:
    """A recipe that has nothing to prepare."""
    settings = {} if source is None else {"source": source}
    return SpeechRecipe(small_demo().config, lambda shop: {}, lambda shop: {}, settings)


def stages_of(recipe: SpeechRecipe, root: Path) -> dict[str, Stage]:
    shop = Workshop(recipe.config, SpeechFiles(root), INLINE, silent)
    return {stage.name: stage for stage in recipe.stages(shop)}


def run_to_language(recipe: SpeechRecipe, root: Path, first: str | None = None) -> list[str]:
    """Return the stages that were done."""
    done: list[str] = []

    def listen(event: dict[str, Any]) -> None:
        done.extend([event["name"]] if event["event"] == "stage" else [])

    recipe.run(root, INLINE, silent, first, "language", on_event=listen)
    return done


@pytest.mark.parametrize("other", ["/corpora/b", None])
def test_a_directory_of_another_corpus_is_refused_and_stays_as_it_is(
    tmp_path: Path, other: str | None
) -> None:
    run_to_language(recipe_of("/corpora/a"), tmp_path)
    with pytest.raises(StageError, match=r"was made of /corpora/a, .*--from data"):
        run_to_language(recipe_of(other), tmp_path)
    assert run_to_language(recipe_of("/corpora/a"), tmp_path) == []


def test_another_corpus_takes_its_place_if_that_is_asked_for(tmp_path: Path) -> None:
    run_to_language(recipe_of("/corpora/a"), tmp_path)
    assert run_to_language(recipe_of("/corpora/b"), tmp_path, "data") == ["data", "language"]
    assert run_to_language(recipe_of("/corpora/b"), tmp_path) == []


def test_a_corpus_is_the_same_by_whatever_way_it_is_named(tmp_path: Path) -> None:
    for name in ("corpus", "beside"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "corpus")
    for make in (an4_recipe, librispeech_recipe):
        settings = make(tmp_path / "corpus").settings
        for way in ("beside/../corpus", "link"):
            assert make(tmp_path / way).settings == settings


@pytest.mark.parametrize("changed", [{"tune": "report"}, {"report": "tune"}])
def test_what_is_decoded_depends_on_the_sets_that_are_weighed_and_reported(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    recipe = small_demo()
    before = stages_of(recipe, tmp_path)
    after = stages_of(replace(recipe, config=replace(recipe.config, **changed)), tmp_path)
    for name in ("features", "decode-mono", "decode-dnn"):
        assert before[name].added != after[name].added


def test_the_table_depends_on_which_models_are_decoded(tmp_path: Path) -> None:
    recipe = small_demo()
    fewer = replace(recipe, config=replace(recipe.config, decoded=("sat",)))
    tables = [stages_of(each, tmp_path)["table"] for each in (recipe, fewer)]
    assert tables[0].settings != tables[1].settings


def test_a_network_that_is_asked_for_again_is_not_found_complete(tmp_path: Path) -> None:
    stages = stages_of(small_demo(), tmp_path)
    for name in ("dnn", "dnn-2"):
        (tmp_path / name / "run").mkdir(parents=True)
        forget = stages[name].forget
        assert forget is not None
        forget()
        assert not (tmp_path / name / "run").exists()


def test_passes_of_an_earlier_configuration_leave_neither_results_nor_transforms(
    whole_demo: SmallDemo, tmp_path: Path
) -> None:
    shutil.copytree(whole_demo.root, tmp_path / "demo", ignore=shutil.ignore_patterns("dnn*"))
    config = small_demo().config
    one_pass = replace(config, decoding=replace(config.decoding, next=()))
    shop = Workshop(one_pass, SpeechFiles(tmp_path / "demo"), INLINE, silent)
    assert list(decode_gmm(shop, "sat")) == ["sat"]
    assert "sat-unadapted" not in write_table(shop)
    assert not list((tmp_path / "demo" / "decode" / "sat").glob("*/transforms.safetensors"))


@pytest.mark.parametrize("speeds", [(1.0,), (0.9, 0.9), (1.0000001,), (-0.9,), (0.0,)])
def test_speeds_that_would_take_the_place_of_others_are_refused(speeds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="none of them 1"):
        replace(small_demo().config.dnn, other_speeds=speeds)
