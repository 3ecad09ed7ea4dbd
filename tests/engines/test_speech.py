"""Utterances are worked on by the engines that train networks: the same bits on each."""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path

import pytest

from natgrad.parallel.engines import open_engine
from natgrad.speech.corpus import Corpus
from tests.engines.conftest import outside
from tests.speech.toy_language import Language, files_of
from tests.speech.toy_training import train_all


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("corpus") / "features"
    return Language.draw(0).record(path, 4, per_speaker=8, seed=1, strength=0.2)


@pytest.fixture(scope="session")
def undisturbed(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    with open_engine("inline", 1) as engine:
        trained = train_all(corpus.shares(3), engine)
    path = tmp_path_factory.mktemp("inline")
    return [files_of(each, path / str(number)) for number, each in enumerate(trained)]


@outside
def test_models_of_speech_are_the_same_bits(
    engine: Executor, corpus: Corpus, undisturbed: list[object], tmp_path: Path
) -> None:
    trained = train_all(corpus.shares(3), engine)
    found = [files_of(each, tmp_path / str(number)) for number, each in enumerate(trained)]
    assert found == undisturbed
