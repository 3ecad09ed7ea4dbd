"""Normalization, of speakers and of the last seconds: against their definitions in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.features.cmvn import (
    Cmvn,
    CmvnStatistics,
    SlidingCmvn,
    sliding_cmvn,
    speaker_means,
)
from natgrad.speech.features.mfcc import FeatureError

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def frames(num_frames: int, dim: int = 3, seed: int = 0) -> Floats:
    random = np.random.default_rng(seed)
    return (50 + 10 * random.standard_normal((num_frames, dim))).astype(np.float32)


def literal_sliding(
    features: Floats,
    window: int,
    ahead: int,
    variance: bool,
    prior: Floats | None = None,
    prior_frames: int = 0,
) -> Doubles:
    """Frame by frame: the window's frames, and the prior's, counted less so that they fit in."""
    exact, result = features.astype(np.float64), []
    for t in range(len(exact)):
        end = min(t + ahead + 1, len(exact))
        rows = exact[max(0, end - window) : end]
        weights = np.ones(len(rows))
        if prior is not None:
            added = min(window - len(rows), prior_frames, len(prior))
            rows = np.concatenate([rows, prior.astype(np.float64)])
            weights = np.append(weights, np.full(len(prior), added / len(prior)))
        mean = np.average(rows, axis=0, weights=weights)
        spread = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
        scale = np.where(spread > 1e-5 * np.abs(rows).max(), spread, 1.0) if variance else 1.0
        result.append((exact[t] - mean) / scale)
    return np.array(result).reshape(features.shape)


def test_a_speakers_mean_is_over_all_frames_of_the_speaker() -> None:
    features = {"a-1": frames(7), "a-2": frames(20, seed=1), "b-1": frames(5, seed=2)}
    normalizers = speaker_means(features, {"a": ["a-1", "a-2"], "b": ["b-1"]})
    of_a = np.concatenate([features["a-1"], features["a-2"]]).astype(np.float64)
    np.testing.assert_allclose(normalizers["a"].offset, -of_a.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(normalizers["b"].apply(features["b-1"]).mean(axis=0), 0, atol=1e-5)
    assert np.array_equal(normalizers["a"].scale, np.ones(3))


def test_with_variance_a_speakers_features_have_variance_one() -> None:
    features = {"a-1": frames(70), "a-2": frames(20, seed=1)}
    cmvn = speaker_means(features, {"a": ["a-1", "a-2"]}, variance=True)["a"]
    normalized = np.concatenate([cmvn.apply(features[key]) for key in features])
    assert normalized.dtype == np.float32
    np.testing.assert_allclose(normalized.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(normalized.std(axis=0), 1, rtol=1e-5)


def test_a_constant_feature_stays_finite_and_becomes_zero() -> None:
    features = np.full((9, 2), 0.1, dtype=np.float32)
    normalized = CmvnStatistics.of(features).cmvn(variance=True).apply(features)
    np.testing.assert_allclose(normalized, 0, atol=1e-8)
    np.testing.assert_allclose(sliding_cmvn(features, variance=True), 0, atol=1e-8)


def test_an_utterance_without_features_and_a_speaker_without_any_are_named() -> None:
    with pytest.raises(FeatureError, match="speaker a: there are no features of utterance a-2"):
        speaker_means({"a-1": frames(5)}, {"a": ["a-1", "a-2"]})
    with pytest.raises(FeatureError, match="speaker b: there are no utterances"):
        speaker_means({"a-1": frames(5)}, {"b": []})


def test_features_of_another_dimension_are_refused() -> None:
    with pytest.raises(FeatureError, match=r"shape \(5, 4\); expected frames of 3"):
        CmvnStatistics.of(frames(9)).cmvn().apply(frames(5, dim=4))


def test_kaldi_statistics_survive_the_way_there_and_back() -> None:
    statistics = CmvnStatistics.of(frames(9))
    matrix = statistics.to_kaldi()
    assert matrix.shape == (2, 4)
    assert matrix[:, -1].tolist() == [9.0, 0.0]
    back = CmvnStatistics.from_kaldi(matrix)
    assert back.count == 9
    assert np.array_equal(back.total, statistics.total)
    assert np.array_equal(back.squares, statistics.squares)
    with pytest.raises(FeatureError, match=r"shape \(3, 4\); expected \(2, D \+ 1\)"):
        CmvnStatistics.from_kaldi(np.zeros((3, 4)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.integers(1, 12), st.integers(0, 11), st.booleans())
def test_sliding_normalization_is_that_of_the_definition(
    num_frames: int, window: int, ahead: int, variance: bool
) -> None:
    ahead = min(ahead, window - 1)
    features = frames(num_frames)
    expected = literal_sliding(features, window, ahead, variance)
    result = sliding_cmvn(features, window, ahead, variance=variance)
    np.testing.assert_allclose(result, expected, atol=2e-5, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 20), st.booleans())
def test_prior_fills_the_window_as_long_as_it_is_not_full(
    num_frames: int, window: int, prior_frames: int, variance: bool
) -> None:
    features, other = frames(num_frames), frames(9, seed=1) + 5
    expected = literal_sliding(features, window, 0, variance, other, prior_frames)
    prior = CmvnStatistics.of(other)
    result = sliding_cmvn(features, window, 0, prior, prior_frames, variance)
    np.testing.assert_allclose(result, expected, atol=2e-5, rtol=1e-4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 12), st.integers(0, 11))
def test_frames_in_pieces_give_the_same_bits_and_no_later_than_stated(
    lengths: list[int], window: int, ahead: int
) -> None:
    ahead = min(ahead, window - 1)
    features = frames(sum(lengths))
    stream, given_frames, first = SlidingCmvn(3, window, ahead, variance=True), [], 0
    for length in lengths:
        given_frames.append(stream.accept(features[first : first + length]))
        first += length
        assert sum(map(len, given_frames)) == max(0, first - ahead)
    given_frames.append(stream.finish())
    whole = sliding_cmvn(features, window, ahead, variance=True)
    assert np.array_equal(np.concatenate(given_frames), whole)


@pytest.mark.parametrize("ahead", [0, 3])
def test_sliding_normalization_does_not_look_further_ahead_than_told(ahead: int) -> None:
    features = frames(40)
    changed = features.copy()
    changed[20:] += 1.0
    before, after = (sliding_cmvn(x, 10, ahead) for x in (features, changed))
    differs = (before != after).any(axis=1)
    assert differs[:20].tolist() == [frame + ahead >= 20 for frame in range(20)]


def test_a_long_stream_keeps_only_its_window() -> None:
    stream = SlidingCmvn(3, window_frames=10, look_ahead_frames=2)
    for seed in range(50):
        stream.accept(frames(7, seed=seed))
    assert len(stream._sums) == 11
    assert len(stream._waiting) == 2


def test_look_ahead_beyond_the_window_is_refused() -> None:
    with pytest.raises(FeatureError, match="look_ahead_frames is 10; expected from 0 to before"):
        sliding_cmvn(frames(5), window_frames=10, look_ahead_frames=10)


def test_prior_of_other_features_is_refused() -> None:
    with pytest.raises(FeatureError, match="the prior is of features of 4 dimensions; expected 3"):
        sliding_cmvn(frames(5), prior=CmvnStatistics.of(frames(9, dim=4)))


def test_applying_is_scale_times_x_plus_offset() -> None:
    offset, scale = np.array([[1, 2], [3, 4]], dtype=np.float32)
    cmvn = Cmvn(offset, scale)
    assert cmvn.apply(np.ones((1, 2), np.float32)).tolist() == [[4.0, 6.0]]
