import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.statistics import GmmStatistics, update
from tests.speech.mixtures import draw_mixtures, literal_scores

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Ints = NDArray[np.int32]

sizes_lists = st.lists(st.integers(1, 4), min_size=1, max_size=5)
seeds = st.integers(0, 2**30)


def draw_frames(num_frames: int, dim: int, num_pdfs: int, seed: int) -> tuple[Floats, Ints]:
    random = np.random.default_rng(seed)
    features = random.standard_normal((num_frames, dim)) * random.choice(
        [0.5, 2.0], (num_frames, 1)
    )
    return features.astype(np.float32), random.integers(0, num_pdfs, num_frames).astype(np.int32)


def accumulate(
    gmms: GmmSet, features: Floats, pdfs: Ints, weights: Doubles | None = None
) -> GmmStatistics:
    statistics = GmmStatistics.zeros(gmms)
    statistics.add(features, pdfs, gmms, weights)
    return statistics


def assert_equal(one: GmmStatistics, other: GmmStatistics) -> None:
    for name in ("counts", "sums", "squares", "log_likelihood", "num_frames"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9)


def literal_statistics(gmms: GmmSet, features: Floats, pdfs: Ints) -> GmmStatistics:
    statistics = GmmStatistics.zeros(gmms)
    scores = literal_scores(gmms, features)
    for t, pdf in enumerate(pdfs):
        own = list(range(gmms.first[pdf], gmms.first[pdf + 1]))
        total = np.logaddexp.reduce(scores[t, own])
        for g in own:
            gamma = np.exp(scores[t, g] - total)
            statistics.counts[g] += gamma
            statistics.sums[g] += gamma * features[t].astype(np.float64)
            statistics.squares[g] += gamma * features[t].astype(np.float64) ** 2
        statistics.log_likelihood += float(total)
        statistics.num_frames += 1
    return statistics


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), sizes_lists, st.integers(1, 10), seeds)
def test_statistics_are_those_of_the_definition(
    num_frames: int, sizes: list[int], dim: int, seed: int
) -> None:
    gmms = draw_mixtures(sizes, dim, seed)
    features, pdfs = draw_frames(num_frames, dim, len(sizes), seed)
    statistics = GmmStatistics.zeros(gmms)
    returned = statistics.add(features, pdfs, gmms)
    assert_equal(statistics, literal_statistics(gmms, features, pdfs))
    assert returned == statistics.log_likelihood
    np.testing.assert_allclose(
        statistics.pdf_counts, np.bincount(pdfs, minlength=len(sizes)), atol=1e-9
    )


def test_statistics_of_parts_add_up_to_those_of_the_whole() -> None:
    gmms = draw_mixtures([2, 3, 1], 5, seed=1)
    features, pdfs = draw_frames(60, 5, 3, seed=2)
    parts = accumulate(gmms, features[:17], pdfs[:17]) + accumulate(gmms, features[17:], pdfs[17:])
    assert_equal(parts, accumulate(gmms, features, pdfs))


def test_frame_with_weight_two_counts_as_two_frames() -> None:
    gmms = draw_mixtures([2, 3], 5, seed=1)
    features, pdfs = draw_frames(10, 5, 2, seed=2)
    weights = np.array([2.0, 0.0, *np.ones(8)])
    order = [0, 0, *range(2, 10)]
    assert_equal(
        accumulate(gmms, features, pdfs, weights), accumulate(gmms, features[order], pdfs[order])
    )


def test_moments_of_other_features_keep_the_gaussians_of_the_first() -> None:
    gmms = draw_mixtures([2, 3], 5, seed=1)
    features, pdfs = draw_frames(30, 5, 2, seed=2)
    own, other = GmmStatistics.zeros(gmms), GmmStatistics.zeros(gmms)
    own.add(features, pdfs, gmms)
    other.add(features, pdfs, gmms, moments_of=2 * features + 1)
    np.testing.assert_allclose(other.counts, own.counts)
    np.testing.assert_allclose(other.sums, 2 * own.sums + own.counts[:, None], rtol=1e-6, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(st.integers(20, 120), sizes_lists, st.integers(1, 6), seeds)
def test_re_estimation_never_lowers_the_likelihood(
    num_frames: int, sizes: list[int], dim: int, seed: int
) -> None:
    gmms = draw_mixtures(sizes, dim, seed)
    features, pdfs = draw_frames(num_frames, dim, len(sizes), seed)
    before = -np.inf
    for _ in range(6):
        statistics = accumulate(gmms, features, pdfs)
        assert statistics.log_likelihood >= before - 1e-9 * abs(before)
        before = statistics.log_likelihood
        gmms = update(gmms, statistics, least_count=0.0, least_weight=0.0, variance_floor=1e-12)


def test_single_gaussian_becomes_the_mean_and_variance_of_its_frames() -> None:
    features, pdfs = draw_frames(100, 3, 2, seed=3)
    gmms = GmmSet.flat(np.zeros(3), np.ones(3), num_pdfs=2)
    updated = update(gmms, accumulate(gmms, features, pdfs))
    for pdf in range(2):
        own = features[pdfs == pdf].astype(np.float64)
        np.testing.assert_allclose(updated.means[pdf], own.mean(axis=0))
        np.testing.assert_allclose(updated.variances[pdf], own.var(axis=0))


def test_gaussians_with_few_frames_are_dropped_and_weights_still_sum_to_one() -> None:
    gmms = draw_mixtures([3, 2], 2, seed=4)
    statistics = GmmStatistics.zeros(gmms)
    statistics.counts[:] = [50, 9, 150, 30, 70]
    statistics.squares[:] = statistics.counts[:, None]
    updated = update(gmms, statistics, least_count=10)
    assert updated.first.tolist() == [0, 2, 4]
    np.testing.assert_allclose(np.exp(updated.log_weights), [0.25, 0.75, 0.3, 0.7])


def test_pdf_without_enough_frames_stays_as_it_was() -> None:
    gmms = draw_mixtures([2, 2], 3, seed=5)
    features, _ = draw_frames(50, 3, 1, seed=6)
    pdfs = np.array([0] * 47 + [1] * 3, dtype=np.int32)
    updated = update(gmms, accumulate(gmms, features, pdfs))
    np.testing.assert_array_equal(updated.means[-2:], gmms.means[2:])
    np.testing.assert_array_equal(updated.variances[-2:], gmms.variances[2:])
    np.testing.assert_array_equal(updated.log_weights[-2:], gmms.log_weights[2:])
    assert not np.array_equal(updated.means[0], gmms.means[0])


def test_variances_stop_at_their_floor() -> None:
    gmms = GmmSet.flat(np.zeros(2), np.ones(2), num_pdfs=1)
    features = np.tile(np.array([[3.0, 4.0]], dtype=np.float32), (20, 1))
    statistics = accumulate(gmms, features, np.zeros(20, dtype=np.int32))
    assert update(gmms, statistics).variances.tolist() == [[1e-3, 1e-3]]
    floors = update(gmms, statistics, variance_floor=np.array([0.1, 0.2]))
    assert floors.variances.tolist() == [[0.1, 0.2]]


def test_statistics_of_other_mixtures_are_refused() -> None:
    one, other = (GmmStatistics.zeros(draw_mixtures(s, 2, seed=7)) for s in ([1, 2], [2, 1]))
    with pytest.raises(ValueError, match="expected both of the same mixtures"):
        one + other
    with pytest.raises(ValueError, match="expected the same shapes of both"):
        one.add(np.zeros((4, 2), dtype=np.float32), np.zeros(4, np.int32), draw_mixtures([4], 2, 8))
