from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from natgrad.speech.gmm.fmllr import (
    FmllrStatistics,
    apply_affine,
    estimate_fmllr,
    identity_transform,
    rotate_affine,
)
from natgrad.speech.gmm.linear_transform import unpack
from tests.speech.speakers import Speaker, literal_posteriors, random_speaker

Doubles = NDArray[np.float64]


def accumulate(speaker: Speaker, weights: Doubles | None = None) -> FmllrStatistics:
    statistics = FmllrStatistics.zeros(speaker.gmms.dim)
    statistics.add(speaker.features, speaker.pdfs, speaker.gmms, weights)
    return statistics


def expected_log_likelihood(
    transform: Doubles, speaker: Speaker, posteriors: list[tuple[int, int, float]]
) -> float:
    """Of the transformed features, with the posteriors as they are, by the definition."""
    frame, gaussian, posterior = (np.array(column) for column in zip(*posteriors, strict=True))
    moved = speaker.features.astype(np.float64) @ transform[:, :-1].T + transform[:, -1]
    variances = speaker.gmms.variances[gaussian]
    squares = (moved[frame] - speaker.gmms.means[gaussian]) ** 2 / variances
    log_det = np.log(abs(np.linalg.det(transform[:, :-1])))
    of_pairs = log_det - 0.5 * (np.log(2 * np.pi * variances) + squares).sum(axis=1)
    return float(posterior @ of_pairs)


def log_likelihood(transform: Doubles, speaker: Speaker) -> float:
    moved = apply_affine(transform, speaker.features)
    scores = speaker.gmms.posteriors(moved, speaker.pdfs).log_likelihood
    return float(scores.sum() + len(moved) * np.linalg.slogdet(transform[:, :-1])[1])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_statistics_are_those_of_the_definition(seed: int, dim: int) -> None:
    speaker = random_speaker(seed, dim, num_frames=300)
    linear, quadratic = np.zeros((dim, dim + 1)), np.zeros((dim, dim + 1, dim + 1))
    for t, g, posterior in literal_posteriors(speaker):
        extended = np.append(speaker.features[t].astype(np.float64), 1.0)
        for i in range(dim):
            sharpness = posterior / speaker.gmms.variances[g, i]
            linear[i] += sharpness * speaker.gmms.means[g, i] * extended
            quadratic[i] += sharpness * np.outer(extended, extended)
    statistics = accumulate(speaker)
    np.testing.assert_allclose(statistics.linear, linear, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(unpack(statistics.quadratic), quadratic, rtol=1e-5, atol=1e-5)
    assert statistics.num_frames == pytest.approx(300)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_no_numerical_optimiser_finds_a_better_transform(seed: int, dim: int) -> None:
    speaker = random_speaker(seed, dim)
    posteriors = literal_posteriors(speaker)
    found = estimate_fmllr(accumulate(speaker), max_sweeps=5000)
    num_frames = len(speaker.features)

    def loss(flat: Doubles) -> float:
        transform = flat.reshape(dim, dim + 1)
        return -expected_log_likelihood(transform, speaker, posteriors) / num_frames

    start = identity_transform(dim)
    best = minimize(loss, start.ravel(), method="BFGS", options={"gtol": 1e-7, "maxiter": 400})
    ours = loss(found.transform.ravel())
    assert ours <= best.fun + 1e-5
    assert found.gain_per_frame == pytest.approx(loss(start.ravel()) - ours, abs=1e-5)
    near = minimize(loss, found.transform.ravel(), method="BFGS", options={"maxiter": 50})
    assert ours == pytest.approx(near.fun, abs=1e-5)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.01, 0.5))
def test_estimating_again_never_lowers_the_likelihood(seed: int, dim: int, strength: float) -> None:
    speaker = random_speaker(seed, dim, strength=strength)
    transform = identity_transform(dim)
    before = log_likelihood(transform, speaker)
    for _ in range(4):
        moved = apply_affine(transform, speaker.features)
        statistics = FmllrStatistics.zeros(dim)
        statistics.add_posteriors(
            speaker.features, speaker.gmms.posteriors(moved, speaker.pdfs), speaker.gmms
        )
        found = estimate_fmllr(statistics, start=transform)
        assert found.gain_per_frame >= 0
        transform = found.transform
        after = log_likelihood(transform, speaker)
        assert after >= before - 1e-3
        before = after


def test_the_transform_undoes_what_was_done_to_the_features() -> None:
    speaker = random_speaker(5, dim=4, num_pdfs=8, num_frames=20_000, strength=0.1)
    found = estimate_fmllr(accumulate(speaker))
    inverse = np.linalg.inv(speaker.distortion)
    expected = np.concatenate([inverse, -(inverse @ speaker.offset)[:, None]], axis=1)
    np.testing.assert_allclose(found.transform, expected, atol=0.05)
    assert np.abs(identity_transform(4) - expected).max() > 0.15
    assert found.gain_per_frame > 0.01


def test_statistics_of_parts_add_up_and_weights_count_as_copies() -> None:
    speaker = random_speaker(6)
    first, rest = (
        accumulate(speaker._replace(features=speaker.features[s], pdfs=speaker.pdfs[s]))
        for s in (slice(0, 250), slice(250, None))
    )
    whole = accumulate(speaker)
    np.testing.assert_allclose((first + rest).quadratic, whole.quadratic, rtol=1e-10)
    copies = np.arange(len(speaker.pdfs)) % 3
    weighted = accumulate(speaker, copies.astype(np.float64))
    copied = accumulate(
        speaker._replace(
            features=np.repeat(speaker.features, copies, axis=0),
            pdfs=np.repeat(speaker.pdfs, copies),
        )
    )
    assert weighted.num_frames == pytest.approx(copied.num_frames)
    np.testing.assert_allclose(weighted.quadratic, copied.quadratic, rtol=1e-10)
    np.testing.assert_allclose(weighted.linear, copied.linear, rtol=1e-9, atol=1e-9)


def test_a_speaker_of_too_few_frames_keeps_the_identity_and_a_reason() -> None:
    found = estimate_fmllr(accumulate(random_speaker(7, num_frames=499)))
    np.testing.assert_array_equal(found.transform, identity_transform(3))
    assert found.reason == "499 frames are too few, of 500 at least"
    assert found.gain_per_frame == 0
    nothing = estimate_fmllr(FmllrStatistics.zeros(3), least_frames=0)
    assert nothing.reason is not None


def test_fewer_frames_than_dimensions_give_a_finite_transform_or_a_reason() -> None:
    for num_frames in (1, 2, 3, 5):
        speaker = random_speaker(8, dim=6, num_frames=num_frames)
        found = estimate_fmllr(accumulate(speaker), least_frames=1)
        assert np.isfinite(found.transform).all()
        assert found.gain_per_frame >= 0


def test_features_that_are_not_finite_keep_the_identity_and_a_reason() -> None:
    speaker = random_speaker(9)
    statistics = accumulate(speaker)
    statistics.linear[0, 0] = np.nan
    found = estimate_fmllr(statistics)
    np.testing.assert_array_equal(found.transform, identity_transform(3))
    assert found.reason is not None
    assert "not finite" in found.reason


def test_dimensions_that_do_not_fit_are_refused() -> None:
    speaker, other = random_speaker(10), random_speaker(10, dim=4)
    with pytest.raises(ValueError, match="expected all the same"):
        FmllrStatistics.zeros(4).add(speaker.features, speaker.pdfs, speaker.gmms)
    with pytest.raises(ValueError, match="expected the same"):
        _ = accumulate(speaker) + accumulate(other)


def test_rotated_transform_commutes_with_the_rotation() -> None:
    random = np.random.default_rng(0)
    transform, matrix = random.normal(size=(4, 5)), random.normal(size=(4, 4))
    x = random.normal(size=4)
    rotated = rotate_affine(transform, matrix)
    expected = matrix @ (transform[:, :4] @ x + transform[:, 4])
    np.testing.assert_allclose(rotated[:, :4] @ (matrix @ x) + rotated[:, 4], expected)
