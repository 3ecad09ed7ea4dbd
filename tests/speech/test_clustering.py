import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.gmm.clustering import log_likelihood, merge_least_losses
from tests.speech.contexts import Doubles, literal_log_likelihood


def moments_of(frames: Doubles) -> Doubles:
    return np.concatenate([[len(frames)], frames.sum(axis=0), (frames**2).sum(axis=0)])


def draw_clusters(num_clusters: int, dim: int, seed: int) -> list[Doubles]:
    random = np.random.default_rng(seed)
    return [
        random.normal(random.normal(0, 2, dim), 1, (random.integers(2, 20), dim))
        for _ in range(num_clusters)
    ]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(1, 6), st.integers(0, 2**30))
def test_log_likelihood_of_moments_is_that_of_the_frames(
    num_frames: int, dim: int, seed: int
) -> None:
    frames = np.random.default_rng(seed).normal(3, 2, (num_frames, dim))
    assert log_likelihood(moments_of(frames)) == pytest.approx(literal_log_likelihood(frames))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**30))
def test_every_merging_is_the_one_that_loses_the_least(
    num_clusters: int, dim: int, seed: int
) -> None:
    clusters = dict(enumerate(draw_clusters(num_clusters, dim, seed)))
    merged = list(merge_least_losses(np.stack([moments_of(x) for x in clusters.values()])))
    assert len(merged) == num_clusters - 1
    for pair in merged:
        losses = {
            (i, j): literal_log_likelihood(clusters[i])
            + literal_log_likelihood(clusters[j])
            - literal_log_likelihood(np.concatenate([clusters[i], clusters[j]]))
            for i in clusters
            for j in clusters
            if i < j
        }
        assert losses[pair] == pytest.approx(min(losses.values()))
        clusters[pair[0]] = np.concatenate([clusters[pair[0]], clusters.pop(pair[1])])


def test_merging_ends_before_the_loss_that_is_too_large() -> None:
    near = draw_clusters(1, 2, seed=1)[0]
    far = near + 100
    moments = np.stack([moments_of(x) for x in (near, far, near + 0.1, far + 0.1)])
    assert set(merge_least_losses(moments, largest_loss=10.0)) == {(0, 2), (1, 3)}
    assert list(merge_least_losses(moments, largest_loss=0.0)) == []
    assert len(list(merge_least_losses(moments))) == 3


def test_arguments_are_left_alone() -> None:
    moments = np.stack([moments_of(x) for x in draw_clusters(5, 2, seed=2)])
    before = moments.copy()
    list(merge_least_losses(moments))
    np.testing.assert_array_equal(moments, before)
