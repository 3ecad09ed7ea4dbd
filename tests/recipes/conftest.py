"""A run of the small demo that several files look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from natgrad.recipes.reproduce import finished_recipe, speech_runs
from natgrad.recipes.reproduce.job_counts import words
from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, SmallDemo, files_of, small_demo


@pytest.fixture(scope="session")
def whole_demo(tmp_path_factory: pytest.TempPathFactory) -> SmallDemo:
    """All stages, with nothing that interrupts them. For reading only."""
    root = tmp_path_factory.mktemp("whole-demo")
    with pytest.MonkeyPatch.context() as patch:
        _use_one_core(patch)
        return SmallDemo(root, small_demo().run(root, INLINE, silent))


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few examples are sooner made in this process than in others."""
    _use_one_core(monkeypatch)


@pytest.fixture
def finished_recipes(
    whole_demo: SmallDemo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_core: None
) -> Iterator[Path]:
    """What `natgrad reproduce --data` takes: the small demo in the place of LibriSpeech.

    It must be as it was.
    """
    monkeypatch.setitem(finished_recipe.CONFIGS, "librispeech", lambda: small_demo().config)
    monkeypatch.setattr(speech_runs, "ENGINE", INLINE)
    monkeypatch.setattr(words, "ENGINE", INLINE)
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "librispeech").symlink_to(whole_demo.root)
    before = files_of(whole_demo.root)
    yield tmp_path / "exp"
    assert files_of(whole_demo.root) == before


def _use_one_core(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "cpu_count", lambda: 1)
