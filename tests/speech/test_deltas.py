"""Deltas and splicing: against their definition, and frames in pieces against all at once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.features.deltas import add_deltas, splice

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def frames(num_frames: int, dim: int, seed: int = 0) -> Floats:
    return 10 * np.random.default_rng(seed).standard_normal((num_frames, dim), np.float32)


def literal_delta(features: Doubles, frame: int, degree: int, window: int) -> Doubles:
    """The difference of a degree at a frame, which may lie beyond the edges."""
    if degree == 0:
        nearest: Doubles = features[min(max(frame, 0), len(features) - 1)]
        return nearest
    norm = sum(offset**2 for offset in range(-window, window + 1))
    total = np.zeros(features.shape[1])
    for offset in range(-window, window + 1):
        total += offset * literal_delta(features, frame + offset, degree - 1, window) / norm
    return total


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 3), st.integers(1, 3))
def test_deltas_are_those_of_the_definition(
    num_frames: int, dim: int, order: int, window: int
) -> None:
    features = frames(num_frames, dim)
    result = add_deltas(features, order, window)
    exact = features.astype(np.float64)
    expected = [
        np.concatenate([literal_delta(exact, t, degree, window) for degree in range(order + 1)])
        for t in range(num_frames)
    ]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_features_themselves_come_first_and_unchanged() -> None:
    features = frames(9, 4)
    assert np.array_equal(add_deltas(features)[:, :4], features)


def test_a_parabola_has_its_derivatives_where_the_edges_are_far() -> None:
    time = np.arange(20, dtype=np.float32)
    result = add_deltas((time**2)[:, None])[4:-4]
    np.testing.assert_allclose(result[:, 1], 2 * time[4:-4], rtol=1e-5)
    np.testing.assert_allclose(result[:, 2], 2.0, rtol=1e-4)


@pytest.mark.parametrize("order", [1, 2])
def test_deltas_do_not_look_further_ahead_than_stated(order: int) -> None:
    features = frames(30, 3)
    changed = features.copy()
    changed[20:] += 1.0
    differs = (add_deltas(features, order) != add_deltas(changed, order)).any(axis=1)
    assert differs.tolist() == [frame >= 20 - 2 * order for frame in range(30)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 5), st.integers(0, 5))
def test_splicing_lays_neighbours_side_by_side(
    num_frames: int, dim: int, left: int, right: int
) -> None:
    features = frames(num_frames, dim)
    result = splice(features, left, right)
    assert result.shape == (num_frames, dim * (left + 1 + right))
    for frame in range(num_frames):
        for place, offset in enumerate(range(-left, right + 1)):
            neighbour = features[min(max(frame + offset, 0), num_frames - 1)]
            assert np.array_equal(result[frame, place * dim : (place + 1) * dim], neighbour)


def test_spliced_features_have_memory_of_their_own() -> None:
    result = splice(frames(5, 2), 1, 1)
    before = result[1, 0].copy()
    result[0] = 7.0
    assert result[1, 0] == before
