"""Stores of features: what was written is read, by whichever process, or the damage is named."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from natgrad.speech.features import store as feature_store
from natgrad.speech.features.mfcc import FeatureError
from natgrad.speech.features.store import (
    INDEX,
    FeatureStore,
    FeatureStoreError,
    open_features,
    write_features,
)

Floats = NDArray[np.float32]


def some_features(num: int = 20, dim: int = 13, seed: int = 0) -> dict[str, Floats]:
    random = np.random.default_rng(seed)
    return {
        f"speaker-{number:03d}": 10 * random.standard_normal((1 + 7 * number, dim), np.float32)
        for number in range(num)
    }


def assert_same(store: FeatureStore, features: dict[str, Floats]) -> None:
    assert list(store) == list(features)
    for key, values in features.items():
        assert store.num_frames(key) == len(values)
        np.testing.assert_allclose(store[key], values, atol=float(np.ptp(values)) / 60000)


def only_shard(path: Path) -> Path:
    (shard,) = path.glob("*.shard")
    return shard


def test_what_was_written_is_read(tmp_path: Path) -> None:
    features = some_features()
    store = write_features(tmp_path / "store", features.items(), about={"rate": 8000})
    assert_same(store, features)
    assert (store.dim, store.about, len(store)) == (13, {"rate": 8000}, 20)
    assert store.total_frames == sum(map(len, features.values()))
    assert_same(open_features(tmp_path / "store"), features)


def test_values_take_sixteen_bits(tmp_path: Path) -> None:
    write_features(tmp_path, [("one", np.random.default_rng(0).random((1000, 13), np.float32))])
    assert only_shard(tmp_path).stat().st_size == 1000 * 13 * 2 + 2 * 13 * 4


def test_large_stores_have_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_store, "SHARD_BYTES", 5000)
    features = some_features()
    store = write_features(tmp_path, features.items())
    assert len(list(tmp_path.glob("*.shard"))) > 3
    assert_same(store, features)


def test_pickled_store_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    features = some_features()
    store = write_features("store", features.items())
    pickled = pickle.dumps(store)
    assert len(pickled) < 500
    monkeypatch.chdir("/")
    assert_same(pickle.loads(pickled), features)


def test_same_features_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_features(tmp_path / name, some_features().items())
    files = [sorted((tmp_path / name).iterdir()) for name in ("a", "b")]
    assert [f.name for f in files[0]] == [f.name for f in files[1]]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]


def test_values_read_may_be_written_to(tmp_path: Path) -> None:
    store = write_features(tmp_path, some_features(2).items())
    values = store["speaker-001"]
    values += 1.0
    assert not np.array_equal(values, store["speaker-001"])


def test_rewritten_store_leaves_nothing_of_the_earlier(tmp_path: Path) -> None:
    write_features(tmp_path, some_features(seed=1).items())
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "mine.shard").write_text("of another program")
    (tmp_path / "00003-00000000.shard.0123456789abcdef.part").write_text("of a run that was killed")
    features = some_features(num=3, seed=2)
    store = write_features(tmp_path, features.items())
    assert_same(store, features)
    kept = {file.name for file in tmp_path.iterdir()}
    (shard,) = tmp_path.glob("0*.shard")
    assert kept == {INDEX, shard.name, "notes.txt", "mine.shard"}


def test_interrupted_rewriting_leaves_the_earlier_store_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_store, "SHARD_BYTES", 1000)
    before = some_features(seed=1)
    write_features(tmp_path, before.items())

    def interrupted() -> Iterator[tuple[str, Floats]]:
        yield from some_features(seed=2).items()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_features(tmp_path, interrupted())
    assert_same(open_features(tmp_path), before)


@pytest.mark.parametrize("byte", [0, 60, -1])
def test_damaged_bytes_are_refused_by_utterance_and_file(tmp_path: Path, byte: int) -> None:
    store = write_features(tmp_path, [("one", np.eye(6, 4, dtype=np.float32))])
    data = bytearray(only_shard(tmp_path).read_bytes())
    data[byte] ^= 1
    only_shard(tmp_path).write_bytes(data)
    message = f"the features of one in {only_shard(tmp_path)} are damaged"
    with pytest.raises(FeatureStoreError, match=re.escape(message)):
        store["one"]


def test_damage_to_one_utterance_leaves_the_others_readable(tmp_path: Path) -> None:
    features = some_features()
    write_features(tmp_path, features.items())
    data = bytearray(only_shard(tmp_path).read_bytes())
    data[-5] ^= 1
    only_shard(tmp_path).write_bytes(data)
    store = open_features(tmp_path)
    *others, last = features
    for key in others:
        store[key]
    with pytest.raises(FeatureStoreError, match=last):
        store[last]


@pytest.mark.parametrize("num_bytes", [0, 100])
def test_truncated_shard_is_refused_by_name(tmp_path: Path, num_bytes: int) -> None:
    store = write_features(tmp_path, some_features().items())
    shard = only_shard(tmp_path)
    shard.write_bytes(shard.read_bytes()[:num_bytes])
    with pytest.raises(FeatureStoreError, match=re.escape(str(shard))):
        store["speaker-000"]


def test_missing_shard_is_named(tmp_path: Path) -> None:
    store = write_features(tmp_path, some_features().items())
    shard = only_shard(tmp_path)
    shard.unlink()
    with pytest.raises(FeatureStoreError, match=re.escape(f"cannot read {shard}")):
        store["speaker-000"]


def test_place_without_a_store_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FeatureStoreError, match=re.escape(f"{tmp_path} is not a whole store")):
        open_features(tmp_path)


def test_damaged_index_is_refused(tmp_path: Path) -> None:
    write_features(tmp_path, some_features().items())
    index = tmp_path / INDEX
    renamed = index.read_bytes().replace(b"speaker-007", b"speaker-907")
    index.write_bytes(renamed)
    with pytest.raises(FeatureStoreError, match=re.escape(f"{index} is damaged")):
        open_features(tmp_path)


def test_unknown_key_is_named(tmp_path: Path) -> None:
    store = write_features(tmp_path, some_features().items())
    with pytest.raises(KeyError, match="there are no features of 'nobody'"):
        store["nobody"]
    assert "nobody" not in store
    assert store.get("nobody") is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((2, 13), np.nan), "bad: its features have NaN, infinity"),
        (np.full((2, 13), -np.inf), "bad: its features have NaN, infinity"),
        (np.full((2, 13), 1e38), "or a magnitude above 1e\\+37"),
        (np.zeros((2, 12)), "bad: its features have 12 dimensions; expected 13"),
        (np.zeros((0, 13)), r"bad: its features are of shape \(0, 13\)"),
        (np.zeros(13), r"bad: its features are of shape \(13,\)"),
    ],
)
def test_features_that_are_no_good_are_refused_by_key(
    tmp_path: Path, values: NDArray[np.float64], message: str
) -> None:
    items = [*some_features(2).items(), ("bad", values.astype(np.float32))]
    with pytest.raises(FeatureError, match=message):
        write_features(tmp_path, items)


@pytest.mark.parametrize("shard_bytes", [1, 10**6])
def test_the_same_key_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shard_bytes: int
) -> None:
    monkeypatch.setattr(feature_store, "SHARD_BYTES", shard_bytes)
    items = [("one", np.ones((2, 2), np.float32))] * 2
    with pytest.raises(FeatureError, match="one: there are features of it twice"):
        write_features(tmp_path, items)


def test_no_features_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FeatureError, match=f"no features to write to {tmp_path}"):
        write_features(tmp_path, [])
