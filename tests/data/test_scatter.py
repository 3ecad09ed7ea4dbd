from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.data.scatter import SmallestKeys, cut_ranges

sizes_lists = st.lists(st.integers(0, 50), min_size=1, max_size=40)


@settings(max_examples=200, deadline=None)
@given(sizes_lists, st.integers(1, 10))
def test_cut_leaves_no_block_empty_and_all_nearly_equal(sizes: list[int], num_blocks: int) -> None:
    if np.count_nonzero(sizes) < num_blocks:
        with pytest.raises(ValueError, match=f"too few for {num_blocks} blocks"):
            cut_ranges(np.array(sizes), num_blocks)
        return
    cuts = cut_ranges(np.array(sizes), num_blocks)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(sizes), num_blocks + 1)
    parts = [sum(sizes[a:b]) for a, b in pairwise(cuts)]
    assert min(parts) > 0
    assert max(parts) <= sum(sizes) / num_blocks + max(sizes)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 9)), max_size=8), max_size=5
    ),
    st.integers(0, 60),
)
def test_smallest_keys_are_those_of_a_sort(
    batches: list[list[tuple[int, int]]], wanted: int
) -> None:
    finder = SmallestKeys(wanted)
    for batch in batches:
        keys = np.array([key for key, _ in batch], dtype=np.uint64)
        finder.show(keys, np.array([size for _, size in batch], dtype=np.int64))
    limit, total = 0, 0
    for key, size in sorted((pair for batch in batches for pair in batch), key=lambda p: p[0]):
        if total < wanted:
            limit, total = key + 1, total + size
    assert finder.limit == limit
