from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from natgrad.speech.gmm.linear_transform import maximize_by_rows
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.mllt import MlltStatistics, estimate_mllt, transform_means
from natgrad.speech.gmm.statistics import GmmStatistics, update
from tests.speech.speakers import Speaker, literal_posteriors, random_speaker

Doubles = NDArray[np.float64]


def correlated(seed: int, dim: int = 3, num_frames: int = 800) -> Speaker:
    """A model that was trained on features of which all Gaussians have one correlation."""
    speaker = random_speaker(seed, dim, num_frames=num_frames)
    means = speaker.gmms.means @ speaker.distortion.T + speaker.offset
    return speaker._replace(gmms=replace(speaker.gmms, means=means))


def accumulate(speaker: Speaker, weights: Doubles | None = None) -> MlltStatistics:
    statistics = MlltStatistics.zeros(speaker.gmms)
    statistics.add(speaker.features, speaker.pdfs, speaker.gmms, weights)
    return statistics


def literal_scatter(speaker: Speaker) -> Doubles:
    dim = speaker.gmms.dim
    scatter = np.zeros((dim, dim, dim))
    for t, g, posterior in literal_posteriors(speaker):
        difference = speaker.features[t].astype(np.float64) - speaker.gmms.means[g]
        for i in range(dim):
            weight = posterior / speaker.gmms.variances[g, i]
            scatter[i] += weight * np.outer(difference, difference)
    return scatter


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_statistics_are_those_of_the_definition(seed: int, dim: int) -> None:
    speaker = correlated(seed, dim, num_frames=300)
    statistics = accumulate(speaker)
    np.testing.assert_allclose(
        statistics.scatter(speaker.gmms), literal_scatter(speaker), rtol=1e-4, atol=1e-4
    )
    assert statistics.num_frames == pytest.approx(300)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_no_numerical_optimiser_finds_a_better_transform(seed: int, dim: int) -> None:
    speaker = correlated(seed, dim)
    found = estimate_mllt(accumulate(speaker), speaker.gmms, max_sweeps=5000)
    scatter, num_frames = literal_scatter(speaker), len(speaker.features)

    def loss(flat: Doubles) -> float:
        matrix = flat.reshape(dim, dim)
        squares = sum(float(row @ g @ row) for row, g in zip(matrix, scatter, strict=True))
        return 0.5 * squares / num_frames - float(np.linalg.slogdet(matrix)[1])

    start = np.eye(dim).ravel()
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7, "maxiter": 400})
    ours = loss(found.matrix.ravel())
    assert ours <= best.fun + 1e-5
    assert found.gain_per_frame == pytest.approx(loss(start) - ours, abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_each_sweep_over_the_rows_raises_the_objective(seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(dim, dim, dim + 2))
    quadratic = roots @ roots.transpose(0, 2, 1)

    def objective(matrix: Doubles) -> float:
        squares = np.einsum("ij,ijk,ik->", matrix, quadratic, matrix)
        return 10 * float(np.linalg.slogdet(matrix)[1]) - 0.5 * float(squares)

    matrix = np.eye(dim)
    for _ in range(5):
        better = maximize_by_rows(10.0, np.zeros((dim, dim)), quadratic, matrix, max_sweeps=1)
        assert objective(better) >= objective(matrix) - 1e-9
        matrix = better


def test_transformed_features_and_means_are_more_likely_by_the_gain_or_more() -> None:
    speaker = correlated(1, dim=4, num_frames=3000)
    found = estimate_mllt(accumulate(speaker), speaker.gmms)
    moved = (speaker.features @ found.matrix.T).astype(np.float32)
    gmms = transform_means(speaker.gmms, found.matrix)
    before = speaker.gmms.posteriors(speaker.features, speaker.pdfs).log_likelihood.mean()
    after = gmms.posteriors(moved, speaker.pdfs).log_likelihood.mean()
    after += np.linalg.slogdet(found.matrix)[1]
    assert found.gain_per_frame > 0.01
    assert after - before >= found.gain_per_frame - 1e-4


def test_the_transform_takes_the_correlations_away() -> None:
    speaker = correlated(2, dim=4, num_frames=20_000)
    gmms, matrix = speaker.gmms, np.eye(4)
    for _ in range(10):  # in turn with the Gaussians, as in training
        features = (speaker.features @ matrix.T).astype(np.float32)
        moved = speaker._replace(features=features, gmms=gmms)
        found = estimate_mllt(accumulate(moved), gmms).matrix
        matrix, gmms = found @ matrix, transform_means(gmms, found)
        statistics = GmmStatistics.zeros(gmms)
        statistics.add((speaker.features @ matrix.T).astype(np.float32), speaker.pdfs, gmms)
        gmms = update(gmms, statistics)
    whole = matrix @ speaker.distortion  # what was uncorrelated first, to what is now
    strongest = np.abs(whole).max(axis=1)
    assert (np.sort(np.abs(whole), axis=1)[:, -2] < 0.1 * strongest).all()


def test_statistics_of_parts_add_up_and_weights_count_as_copies() -> None:
    speaker = correlated(3)
    first, rest = (
        accumulate(speaker._replace(features=speaker.features[s], pdfs=speaker.pdfs[s]))
        for s in (slice(0, 250), slice(250, None))
    )
    whole = accumulate(speaker)
    np.testing.assert_allclose((first + rest).quadratic, whole.quadratic, rtol=1e-10)
    np.testing.assert_allclose((first + rest).sums, whole.sums, rtol=1e-9, atol=1e-9)
    copies = np.arange(len(speaker.pdfs)) % 3
    weighted = accumulate(speaker, copies.astype(np.float64))
    copied = accumulate(
        speaker._replace(
            features=np.repeat(speaker.features, copies, axis=0),
            pdfs=np.repeat(speaker.pdfs, copies),
        )
    )
    np.testing.assert_allclose(weighted.quadratic, copied.quadratic, rtol=1e-10)
    np.testing.assert_allclose(weighted.counts, copied.counts, rtol=1e-10)


def test_what_cannot_be_estimated_is_refused() -> None:
    speaker = correlated(4, dim=4)
    with pytest.raises(ValueError, match="from 0 frames"):
        estimate_mllt(MlltStatistics.zeros(speaker.gmms), speaker.gmms)
    statistics = accumulate(speaker)
    statistics.sums[0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        estimate_mllt(statistics, speaker.gmms)


def test_statistics_of_other_mixtures_are_refused() -> None:
    one, two = correlated(5), correlated(5, dim=4)
    with pytest.raises(ValueError, match="expected the mixtures that they were made for"):
        accumulate(one).add(two.features, two.pdfs, two.gmms)
    with pytest.raises(ValueError, match="expected both of the same mixtures"):
        _ = accumulate(one) + accumulate(two)


@pytest.mark.parametrize("seed", range(20))
def test_where_nothing_is_better_than_the_identity_nothing_is_lost(seed: int) -> None:
    features = np.random.default_rng(seed).normal(3.0, 2.0, (500, 1)).astype(np.float32)
    pdfs = np.zeros(500, np.int32)
    flat = GmmSet.flat(np.zeros(1), np.ones(1), num_pdfs=1)
    moments = GmmStatistics.zeros(flat)
    moments.add(features, pdfs, flat)
    best = update(flat, moments)
    statistics = MlltStatistics.zeros(best)
    statistics.add(features, pdfs, best)
    found = estimate_mllt(statistics, best)
    np.testing.assert_allclose(found.matrix, 1.0, rtol=1e-9)
    assert 0.0 <= found.gain_per_frame < 1e-9
