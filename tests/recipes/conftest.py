"""A run of the small demo that several files look at."""

from __future__ import annotations

import os

import pytest

from tests.recipes.silent import silent
from tests.recipes.small_demo import INLINE, SmallDemo, small_demo


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


def _use_one_core(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "cpu_count", lambda: 1)
