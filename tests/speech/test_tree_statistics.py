from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.gmm.tree_statistics import (
    FEWEST_AT_ONCE,
    TreeStatistics,
    accumulate_tree_statistics,
    merge,
)
from natgrad.speech.hmm import HmmStates, MonophoneTree
from tests.speech.contexts import PHONES, TOPOLOGY, Context

STATES = HmmStates.of(PHONES, TOPOLOGY, MonophoneTree(PHONES, TOPOLOGY))

phone_lists = st.lists(st.integers(1, len(PHONES) - 1), min_size=1, max_size=12)


def draw_utterance(
    phones: list[int], seed: int, dim: int = 2
) -> tuple[NDArray[np.float32], NDArray[np.int32], list[Context]]:
    """Features, an alignment, and the context of each frame, of these phones."""
    random = np.random.default_rng(seed)
    alignment, contexts = [], []
    around = [0, *phones, 0]
    for place, phone in enumerate(phones):
        is_silence = phone in PHONES.silence_numbers
        left, right = (0, 0) if is_silence else (around[place], around[place + 2])
        for position in range(TOPOLOGY.num_states(PHONES, phone)):
            (pdf,) = MonophoneTree(PHONES, TOPOLOGY).pdfs_of_phone(phone, position)
            num_frames = int(random.integers(1, 4))
            alignment += num_frames * [STATES.number[phone, position, pdf]]
            contexts += num_frames * [(left, phone, right, position)]
    features = random.standard_normal((len(alignment), dim)).astype(np.float32)
    return features, np.array(alignment, dtype=np.int32), contexts


def as_dict(statistics: TreeStatistics) -> dict[Context, list[float]]:
    rows = zip(statistics.contexts.tolist(), statistics.moments.tolist(), strict=True)
    return {(a, b, c, d): moments for (a, b, c, d), moments in rows}


def assert_equal(one: TreeStatistics, other: TreeStatistics) -> None:
    np.testing.assert_array_equal(one.contexts, other.contexts)
    np.testing.assert_allclose(one.moments, other.moments, rtol=1e-12, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(phone_lists, st.integers(0, 2**30))
def test_statistics_are_those_of_the_definition(phones: list[int], seed: int) -> None:
    features, alignment, contexts = draw_utterance(phones, seed)
    expected: dict[Context, NDArray[np.float64]] = defaultdict(lambda: np.zeros(5))
    for frame, context in zip(features.astype(np.float64), contexts, strict=True):
        expected[context] += np.array([1, *frame, *frame**2])
    statistics = accumulate_tree_statistics(features, alignment, STATES)
    assert statistics.contexts.tolist() == sorted(map(list, expected))
    for context, moments in as_dict(statistics).items():
        np.testing.assert_allclose(moments, expected[context], rtol=1e-12)
    assert statistics.counts.sum() == len(features)
    np.testing.assert_allclose(statistics.sums.sum(axis=0), features.sum(axis=0), atol=1e-4)


def test_phone_that_follows_itself_is_two() -> None:
    phone = PHONES.symbols.number("AH_I")
    features, alignment, _ = draw_utterance([phone, phone], seed=1)
    statistics = accumulate_tree_statistics(features, alignment, STATES)
    assert sorted({tuple(context[:3]) for context in statistics.contexts.tolist()}) == [
        (0, phone, phone),
        (phone, phone, 0),
    ]


@settings(max_examples=20, deadline=None)
@given(st.lists(phone_lists, min_size=1, max_size=8), st.integers(0, 2**30))
def test_merged_statistics_do_not_depend_on_how_they_were_cut(
    utterances: list[list[int]], seed: int
) -> None:
    parts = [
        accumulate_tree_statistics(*draw_utterance(phones, seed + place)[:2], STATES)
        for place, phones in enumerate(utterances)
    ]
    one_by_one = parts[0]
    for part in parts[1:]:
        one_by_one = one_by_one + part
    assert_equal(merge(parts), one_by_one)


def test_many_contexts_are_merged_in_several_rounds() -> None:
    contexts = np.stack(np.unravel_index(np.arange(FEWEST_AT_ONCE), (10, 20, 10, 10)), axis=1)
    moments = np.random.default_rng(1).random((FEWEST_AT_ONCE, 3))
    part = TreeStatistics(contexts.astype(np.int32), moments)
    total = merge(iter([part] * 7))
    np.testing.assert_array_equal(total.contexts, part.contexts)
    np.testing.assert_allclose(total.moments, 7 * moments)


def test_features_of_another_length_are_refused() -> None:
    features, alignment, _ = draw_utterance([3, 4], seed=1)
    with pytest.raises(ValueError, match="are they of the same utterance"):
        accumulate_tree_statistics(features[1:], alignment, STATES)


def test_statistics_of_other_dimensions_are_refused() -> None:
    parts = [
        accumulate_tree_statistics(*draw_utterance([3, 4], seed=1, dim=dim)[:2], STATES)
        for dim in (2, 3)
    ]
    with pytest.raises(ValueError, match=r"dimensions \[2, 3\] cannot be merged"):
        merge(parts)
    with pytest.raises(ValueError, match="no tree statistics to merge"):
        merge([])
