from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.parallel.engines import open_engine
from natgrad.speech.corpus import Corpus, Item, Share, over_shares
from natgrad.speech.features.cmvn import Cmvn
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.store import write_features

# Lengths of the utterances of each speaker.
lengths = st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=6), min_size=1, max_size=12)


def corpus_of(of_speakers: list[list[int]]) -> Corpus:
    items = tuple(
        Item(f"s{speaker:02}-{number}", f"s{speaker:02}", length, ("WORD",))
        for speaker, of_speaker in enumerate(of_speakers)
        for number, length in enumerate(of_speaker)
    )
    cmvn = {item.speaker: Cmvn(np.zeros(1, np.float32), np.ones(1, np.float32)) for item in items}
    return Corpus(Path("nowhere"), items, cmvn)


def content(shares: list[Share]) -> list[tuple[Item, ...]]:
    return [share.items for share in shares]


@given(lengths, st.integers(1, 20))
def test_shares_are_whole_speakers_and_all_utterances(
    of_speakers: list[list[int]], num_shares: int
) -> None:
    corpus = corpus_of(of_speakers)
    shares = corpus.shares(num_shares)
    assert len(shares) == min(num_shares, len(of_speakers))
    assert all(share.items for share in shares)
    everything = [item for share in shares for item in share.items]
    assert sorted(everything, key=lambda item: item.key) == list(corpus.items)
    of_share = [set(share.by_speaker()) for share in shares]
    assert sum(map(len, of_share)) == len(of_speakers)
    assert of_share == [set(share.cmvn) for share in shares]


@given(lengths, st.integers(1, 20))
def test_shares_differ_by_no_more_than_a_speaker(
    of_speakers: list[list[int]], num_shares: int
) -> None:
    sizes = [share.num_frames for share in corpus_of(of_speakers).shares(num_shares)]
    assert max(sizes) - min(sizes) <= max(map(sum, of_speakers))


@given(lengths, st.integers(1, 20), st.randoms())
def test_shares_do_not_depend_on_the_order_of_speakers(
    of_speakers: list[list[int]], num_shares: int, random: Random
) -> None:
    corpus = corpus_of(of_speakers)
    speakers = [item.speaker for item in corpus.items]
    shuffled = sorted(set(speakers))
    random.shuffle(shuffled)
    items = tuple(item for name in shuffled for item in corpus.items if item.speaker == name)
    again = Corpus(corpus.features, items, dict(reversed(list(corpus.cmvn.items())))).shares(
        num_shares
    )
    assert content(again) == content(corpus.shares(num_shares))
    assert [list(share.cmvn) for share in again] == [
        list(share.cmvn) for share in corpus.shares(num_shares)
    ]


def test_subset_keeps_only_the_utterances_asked_for() -> None:
    corpus = corpus_of([[1, 2], [3]])
    assert [item.key for item in corpus.subset(["s01-0", "s00-1"]).items] == ["s00-1", "s01-0"]


def sleep_and_name(share: Share, seconds: float, add: str) -> str:
    time.sleep(seconds)
    return share.items[0].key + add


def test_results_come_in_the_order_of_shares_whichever_is_done_first() -> None:
    shares = corpus_of([[9], [5], [1]]).shares(3)
    done: list[int] = []
    with ThreadPoolExecutor(3) as executor:
        found = over_shares(
            executor, sleep_and_name, shares, "!", each=[0.2, 0.1, 0.0], on_done=done.append
        )
    assert found == ["s00-0!", "s01-0!", "s02-0!"]
    assert done == [9, 5, 1]


def fail(share: Share) -> None:
    raise ValueError(f"{share.items[0].key} is at fault")


def test_failure_of_a_share_is_raised() -> None:
    with open_engine("inline", 1) as engine, pytest.raises(ValueError, match="s00-0 is at fault"):
        over_shares(engine, fail, corpus_of([[1]]).shares(1))


def test_features_are_read_by_front_end_means_and_transform(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    cepstra = {key: random.normal(size=(7, 2)).astype(np.float32) for key in ("a-1", "a-2", "b-1")}
    write_features(tmp_path, cepstra.items())
    items = tuple(Item(key, key[0], 7, None) for key in cepstra)
    cmvn = {"a": Cmvn(np.array([1, 2], np.float32), np.array([3, 4], np.float32))}
    share = pickle.loads(pickle.dumps(Share(tmp_path, items, cmvn)))
    transform = random.normal(size=(2, 3))
    found = dict(share.read(FrontEnd(), {"b": transform}))
    assert list(found) == list(items)
    for item, features in found.items():
        expected = cepstra[item.key].astype(np.float64)
        if item.speaker == "a":
            expected = expected * [3, 4] + [1, 2]
        else:
            expected = expected @ transform[:, :2].T + transform[:, 2]
        np.testing.assert_allclose(features, expected, atol=1e-3)
        assert features.dtype == np.float32
    some = list(share.read(FrontEnd(), None, [items[2]]))
    assert [item.key for item, _ in some] == ["b-1"]


def test_no_shares_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="0 shares were asked for; expected 1 at least"):
        corpus_of([[1, 2]]).shares(0)
