from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import eigh

from natgrad.speech.gmm.lda import LdaStatistics, estimate_lda

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Classes = NDArray[np.int64]


def data(seed: int, dim: int = 6, num_classes: int = 4, num: int = 300) -> tuple[Floats, Classes]:
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, num_classes, num)
    centres = rng.normal(0, 2, (num_classes, dim))
    x = centres[classes] + rng.normal(size=(num, dim)) @ rng.normal(size=(dim, dim)) + 3.0
    return x.astype(np.float32), classes


def accumulate(x: Floats, classes: Classes, num_classes: int = 4) -> LdaStatistics:
    statistics = LdaStatistics.zeros(x.shape[1], num_classes)
    statistics.add(x, classes)
    return statistics


def literal_covariances(x: Floats, classes: Classes) -> tuple[Doubles, Doubles]:
    """Within and between, by their definitions."""
    exact, mean = x.astype(np.float64), x.mean(axis=0, dtype=np.float64)
    within, between = (np.zeros((x.shape[1], x.shape[1])) for _ in range(2))
    for number in np.unique(classes):
        of_class = exact[classes == number]
        centre = of_class.mean(axis=0)
        for row in of_class:
            within += np.outer(row - centre, row - centre) / len(x)
        between += len(of_class) * np.outer(centre - mean, centre - mean) / len(x)
    return within, between


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 6))
def test_covariances_are_those_of_the_definition(seed: int, dim: int, num_classes: int) -> None:
    x, classes = data(seed, dim, num_classes)
    statistics = accumulate(x, classes, num_classes + 1)  # one class has no frames
    within, between = literal_covariances(x, classes)
    np.testing.assert_allclose(statistics.within, within, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(statistics.between, between, rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_transform_makes_within_unit_and_between_diagonal_with_the_largest_first(
    seed: int, out_dim: int
) -> None:
    x, classes = data(seed)
    within, between = literal_covariances(x, classes)
    matrix = estimate_lda(accumulate(x, classes), out_dim)
    assert matrix.shape == (out_dim, 6)
    np.testing.assert_allclose(matrix @ within @ matrix.T, np.eye(out_dim), atol=1e-7)
    largest = eigh(between, within, eigvals_only=True)[::-1][:out_dim]
    np.testing.assert_allclose(matrix @ between @ matrix.T, np.diag(largest), atol=1e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-4, 1.0, 1e4]))
def test_projected_data_does_not_depend_on_the_units_of_the_features(
    seed: int, scale: float
) -> None:
    x, classes = data(seed)
    scales = np.array([1, scale, 1, 1 / scale, 1, 1], dtype=np.float32)
    one = x @ estimate_lda(accumulate(x, classes), 3).T
    two = (x * scales) @ estimate_lda(accumulate(x * scales, classes), 3).T
    np.testing.assert_allclose(np.abs(one), np.abs(two), rtol=1e-3, atol=1e-3)


def test_statistics_of_parts_add_up_and_weights_count_as_copies() -> None:
    x, classes = data(1)
    whole = accumulate(x, classes)
    parts = accumulate(x[:70], classes[:70]) + accumulate(x[70:], classes[70:])
    np.testing.assert_allclose(parts.products, whole.products, rtol=1e-12)
    np.testing.assert_allclose(parts.sums, whole.sums, rtol=1e-10)
    copies = np.arange(len(x)) % 3
    weighted = LdaStatistics.zeros(6, 4)
    weighted.add(x, classes, copies.astype(np.float64))
    copied = accumulate(np.repeat(x, copies, axis=0), np.repeat(classes, copies))
    np.testing.assert_allclose(weighted.within, copied.within, rtol=1e-10)
    np.testing.assert_array_equal(weighted.counts, copied.counts)


def test_removing_the_mean_adds_a_column_that_centres_the_data() -> None:
    x, classes = data(2)
    affine = estimate_lda(accumulate(x, classes), 3, remove_mean=True)
    np.testing.assert_array_equal(affine[:, :-1], estimate_lda(accumulate(x, classes), 3))
    projected = x.astype(np.float64) @ affine[:, :-1].T + affine[:, -1]
    np.testing.assert_allclose(projected.mean(axis=0), 0, atol=1e-9)


def test_copied_and_constant_features_do_not_break_it() -> None:
    x, classes = data(3)
    spoiled = np.concatenate([x, x[:, :2], np.ones((len(x), 1), np.float32)], axis=1)
    matrix = estimate_lda(accumulate(spoiled, classes), 3)
    assert np.isfinite(matrix).all()
    one = spoiled @ matrix.T
    two = x @ estimate_lda(accumulate(x, classes), 3).T
    np.testing.assert_allclose(np.abs(np.corrcoef(one.T, two.T)[:3, 3:]).diagonal(), 1, atol=1e-4)


def test_no_frames_change_nothing() -> None:
    statistics = accumulate(*data(4))
    before = statistics.sums.copy()
    statistics.add(np.zeros((0, 6), np.float32), np.zeros(0, np.int64))
    np.testing.assert_array_equal(statistics.sums, before)


def test_what_cannot_be_estimated_is_refused() -> None:
    x, classes = data(5)
    statistics = accumulate(x, classes)
    with pytest.raises(ValueError, match="expected 1 to 6"):
        estimate_lda(statistics, 7)
    with pytest.raises(ValueError, match="0 frames are empty or not finite"):
        estimate_lda(LdaStatistics.zeros(6, 4), 2)
    x[3, 3] = np.nan
    with pytest.raises(ValueError, match="look for NaN"):
        estimate_lda(accumulate(x, classes), 2)
    with pytest.raises(ValueError, match="do not vary within any class"):
        estimate_lda(accumulate(np.ones((4, 6), np.float32), np.arange(4)), 2)


def test_frames_and_classes_that_do_not_fit_are_refused() -> None:
    x, classes = data(6)
    with pytest.raises(ValueError, match=r"expected \(frames, 6\) and a class for each frame"):
        accumulate(x, classes).add(x[:, :5], classes)
    with pytest.raises(ValueError, match="classes from 0 to 3; expected 0 to 2"):
        accumulate(x, classes, num_classes=3)
    with pytest.raises(ValueError, match="expected the same"):
        _ = accumulate(x, classes) + accumulate(x, classes, num_classes=5)
