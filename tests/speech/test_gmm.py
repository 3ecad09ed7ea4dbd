import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.run.model_file import ModelFileError, write_model
from natgrad.speech.gmm.mixtures import GmmSet
from tests.speech.mixtures import draw_mixtures, literal_scores

Floats = NDArray[np.float32]


def draw_features(num_frames: int, dim: int, seed: int, centre: float = 0.0) -> Floats:
    random = np.random.default_rng(seed)
    return (centre + 2 * random.standard_normal((num_frames, dim))).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(
    num_frames=st.sampled_from([0, 1, 63, 64, 65, 150]),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    dim=st.integers(1, 12),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    seed=st.integers(0, 2**30),
)
def test_log_likelihoods_are_those_of_the_definition(
    num_frames: int, sizes: list[int], dim: int, scale: float, seed: int
) -> None:
    gmms = draw_mixtures(sizes, dim, seed, scale=scale)
    features = (scale * draw_features(num_frames, dim, seed)).astype(np.float32)
    found = gmms.log_likelihoods(features)
    assert found.dtype == np.float32
    assert found.shape == (num_frames, len(sizes))
    expected = np.logaddexp.reduceat(literal_scores(gmms, features), gmms.first[:-1], axis=1)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-4)


def test_features_far_from_zero_lose_no_precision() -> None:
    gmms = draw_mixtures([2, 3], 20, seed=1, centre=1000.0)
    features = draw_features(50, 20, seed=2, centre=1000.0)
    expected = np.logaddexp.reduceat(literal_scores(gmms, features), gmms.first[:-1], axis=1)
    np.testing.assert_allclose(gmms.log_likelihoods(features), expected, rtol=1e-4, atol=1e-3)


def test_frames_far_from_all_gaussians_have_finite_log_likelihoods() -> None:
    gmms = draw_mixtures([1, 4], 5, seed=1)
    features = np.full((3, 5), 1e6, dtype=np.float32)
    assert np.isfinite(gmms.log_likelihoods(features)).all()
    posteriors = gmms.posteriors(features, np.array([0, 1, 1]))
    assert np.isfinite(posteriors.log_likelihood).all()
    assert posteriors.posterior.sum() == pytest.approx(3)


@settings(max_examples=40, deadline=None)
@given(
    num_frames=st.integers(0, 30),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8),
    dim=st.integers(1, 12),
    is_weighted=st.booleans(),
    seed=st.integers(0, 2**30),
)
def test_posteriors_are_those_of_the_definition(
    num_frames: int, sizes: list[int], dim: int, is_weighted: bool, seed: int
) -> None:
    gmms = draw_mixtures(sizes, dim, seed)
    features = draw_features(num_frames, dim, seed)
    random = np.random.default_rng(seed)
    pdfs = random.integers(0, len(sizes), num_frames).astype(np.int32)
    weights = random.random(num_frames) if is_weighted else None
    frame, gaussian, posterior, log_likelihood = gmms.posteriors(features, pdfs, weights)
    scores = literal_scores(gmms, features)
    rows = []
    for t, pdf in enumerate(pdfs):
        own = range(gmms.first[pdf], gmms.first[pdf + 1])
        total = float(np.logaddexp.reduce(scores[t, list(own)]))
        assert log_likelihood[t] == pytest.approx(total, rel=1e-12, abs=1e-9)
        weight = 1.0 if weights is None else weights[t]
        rows += [(t, g, weight * math.exp(scores[t, g] - total)) for g in own]
    found = list(zip(frame.tolist(), gaussian.tolist(), posterior.tolist(), strict=True))
    assert [row[:2] for row in found] == [row[:2] for row in rows]
    np.testing.assert_allclose(posterior, [row[2] for row in rows], rtol=1e-9, atol=1e-12)


def test_restricted_mixtures_score_as_their_columns_of_all() -> None:
    gmms = draw_mixtures([1, 3, 2, 4], 6, seed=3)
    features = draw_features(20, 6, seed=4)
    pdfs = np.array([3, 0, 1], dtype=np.int32)
    found = gmms.restricted_to(pdfs).log_likelihoods(features)
    np.testing.assert_allclose(found, gmms.log_likelihoods(features)[:, pdfs], rtol=1e-5)


def test_file_keeps_every_bit(tmp_path: Path) -> None:
    gmms = draw_mixtures([1, 3, 2], 4, seed=5)
    gmms.write(tmp_path / "gmms.safetensors")
    read = GmmSet.read(tmp_path / "gmms.safetensors")
    for name, array in gmms.to_arrays().items():
        np.testing.assert_array_equal(read.to_arrays()[name], array)
        assert read.to_arrays()[name].dtype == array.dtype


def test_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    write_model(path, {"weight": torch.ones(2)}, {"kind": "network"})
    with pytest.raises(ModelFileError, match=r"other.safetensors has 'network' in it; expected"):
        GmmSet.read(path)


def test_pickled_mixtures_leave_behind_what_can_be_computed_again() -> None:
    gmms = draw_mixtures([2] * 50, 40, seed=6)
    size = len(pickle.dumps(gmms))
    features = draw_features(2, 40, seed=7)
    scores = gmms.log_likelihoods(features)
    assert len(pickle.dumps(gmms)) == size
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(gmms)).log_likelihoods(features), scores
    )


def test_flat_mixtures_are_all_alike() -> None:
    gmms = GmmSet.flat(np.array([1.0, 2.0]), np.array([3.0, 4.0]), num_pdfs=3)
    scores = gmms.log_likelihoods(draw_features(5, 2, seed=8))
    np.testing.assert_array_equal(scores, scores[:, [1, 2, 0]])


def test_features_of_another_dimension_are_refused() -> None:
    gmms = draw_mixtures([1], 4, seed=9)
    with pytest.raises(ValueError, match=r"shape \(7, 5\) given to mixtures of dimension 4"):
        gmms.log_likelihoods(draw_features(7, 5, seed=9))


@pytest.mark.parametrize("pdfs", [[0, 1], [0, 1, 2], [0, -1, 1]])
def test_pdfs_that_do_not_fit_are_refused(pdfs: list[int]) -> None:
    gmms = draw_mixtures([1, 1], 4, seed=9)
    with pytest.raises(ValueError, match="from 0 to before 2: are they of another model"):
        gmms.posteriors(draw_features(3, 4, seed=9), np.array(pdfs, dtype=np.int32))


def test_pdf_without_gaussians_is_refused() -> None:
    first = np.array([0, 1, 1, 2])
    with pytest.raises(ValueError, match="1 of 3 pdfs are empty"):
        GmmSet(first, np.zeros(2), np.zeros((2, 3)), np.ones((2, 3)))
