from __future__ import annotations

import os
import time
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natgrad.parallel.engines import WorkerLost
from natgrad.recipes.an4 import an4_config
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Workshop
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.store import write_features
from natgrad.speech.lexicon.files import write_lexicon
from natgrad.speech.lexicon.lexicon import Lexicon, Pronunciation
from tests.engines.waiting import is_running, wait_until
from tests.recipes.silent import silent


def shop_in(root: Path, engine: EngineConfig | None = None) -> Workshop:
    return Workshop(an4_config(), SpeechFiles(root), engine or EngineConfig("inline"), silent)


def add_data(shop: Workshop, name: str, with_features: list[str]) -> None:
    keys = [f"{speaker}-{number}" for speaker in "abc" for number in (1, 2)]
    data = DataDirectory.of(
        Utterance(key, key[0], Path("/audio") / key, text=("YES",)) for key in keys
    )
    data.write(shop.files.data(name))
    random = np.random.default_rng(0)
    features = {key: random.normal(5, 1, (20, 2)).astype(np.float32) for key in with_features}
    write_features(shop.files.features(name), features.items())


def test_corpus_is_the_utterances_that_have_features(tmp_path: Path) -> None:
    shop = shop_in(tmp_path)
    add_data(shop, "train", ["c-1", "a-1", "a-2"])
    corpus = shop.corpus("train")
    assert [(i.key, i.speaker, i.num_frames, i.words) for i in corpus.items] == [
        (key, key[0], 20, ("YES",)) for key in ("a-1", "a-2", "c-1")
    ]
    assert corpus.cmvn.keys() == {"a", "c"}
    assert corpus.features.is_absolute()
    np.testing.assert_allclose(corpus.cmvn["a"].offset, [-5, -5], atol=1)


def test_speakers_variances_are_normalized_if_the_recipe_says_so(tmp_path: Path) -> None:
    shop = shop_in(tmp_path)
    add_data(shop, "train", ["a-1", "a-2"])
    shop = replace(shop, config=replace(shop.config, normalize_variance=True))
    corpus = shop.corpus("train")
    values = np.concatenate([x for _, x in corpus.shares(1)[0].read(FrontEnd())])
    np.testing.assert_allclose(values.std(axis=0), 1, atol=0.01)
    shop = replace(shop, config=replace(shop.config, normalize_variance=False))
    assert (shop.corpus("train").cmvn["a"].scale == 1).all()


def test_shares_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    add_data(shop_in(tmp_path), "train", ["a-1", "b-2", "b-1", "c-2"])
    found = [
        [share.items for share in shop_in(tmp_path, EngineConfig(num_workers=n)).shares("train")]
        for n in (1, 3)
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 3


@pytest.mark.parametrize(
    ("tune", "report", "sets"),
    [
        ("test", "test", ("train", "test")),
        ("tune", "report", ("train", "tune", "report")),
        ("train", "test", ("train", "test")),
    ],
)
def test_each_set_is_there_once(
    tmp_path: Path, tune: str, report: str, sets: tuple[str, ...]
) -> None:
    shop = shop_in(tmp_path)
    changed = replace(shop, config=replace(shop.config, tune=tune, report=report))
    assert changed.sets == sets
    assert changed.decoded_sets == tuple(dict.fromkeys((tune, report)))


def test_lexicon_has_the_recipes_silence_probability(tmp_path: Path) -> None:
    shop = shop_in(tmp_path)
    shop.files.lexicon.parent.mkdir()
    write_lexicon(shop.files.lexicon, Lexicon([Pronunciation("YES", ("Y", "EH", "S"))]))
    changed = replace(shop, config=replace(shop.config, silence_probability=0.25))
    assert (shop.lexicon.silence_probability, changed.lexicon.silence_probability) == (0.5, 0.25)


def test_workers_are_opened_once_and_can_be_opened_again(tmp_path: Path) -> None:
    shop = shop_in(tmp_path)
    workers = shop.workers
    assert shop.workers is workers
    shop.close()
    with pytest.raises(RuntimeError, match="after its shutdown"):
        workers.submit(pow, 2, 2)
    assert shop.workers.submit(pow, 2, 3).result() == 8
    shop.close()
    shop.close()


def test_workers_end_at_once_when_an_exception_is_on_its_way(tmp_path: Path) -> None:
    shop = shop_in(tmp_path, EngineConfig("local", num_workers=1))
    pid = shop.workers.submit(os.getpid).result()
    calls = [shop.workers.submit(time.sleep, 20.0) for _ in range(2)]
    with pytest.raises(KeyboardInterrupt):
        _interrupt(shop)
    wait_until(lambda: not is_running(pid), "the worker has ended")
    for call in calls:  # that runs, and that waits
        with pytest.raises((WorkerLost, CancelledError)):
            call.result()


def _interrupt(shop: Workshop) -> None:
    try:
        raise KeyboardInterrupt
    finally:
        shop.close()
