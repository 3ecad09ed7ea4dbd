import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.gmm.split import share_gaussians, split
from tests.speech.mixtures import draw_mixtures


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 10**6)), min_size=1, max_size=10),
    st.integers(0, 60),
    st.sampled_from([0.0, 0.2, 0.25, 1.0]),
)
def test_gaussians_are_shared_out_up_to_the_number_asked_for(
    pdfs: list[tuple[int, int]], extra: int, power: float
) -> None:
    sizes, occupancy = (np.array(column) for column in zip(*pdfs, strict=True))
    asked = int(sizes.sum()) + extra
    shared = share_gaussians(sizes, occupancy.astype(np.float64), asked, power, least_count=20)
    assert (shared >= sizes).all()
    has_grown = shared > sizes
    assert (occupancy[has_grown] >= 20 * shared[has_grown]).all()
    has_room = occupancy >= 20 * (shared + 1)
    assert shared.sum() == asked or (shared.sum() < asked and not has_room.any())


def test_many_gaussians_are_proportional_to_a_power_of_the_frames() -> None:
    occupancy = np.array([1e4, 16e4, 81e4])
    shared = share_gaussians(np.ones(3, dtype=np.int64), occupancy, 600, power=0.25)
    np.testing.assert_allclose(shared, [100, 200, 300], atol=1)


def test_split_keeps_the_likelihood_close() -> None:
    gmms = draw_mixtures([1, 2, 3], 10, seed=1)
    features = np.random.default_rng(2).standard_normal((200, 10)).astype(np.float32)
    grown = split(gmms, np.full(3, 1e5), 40)
    assert grown.num_gaussians == 40
    change = grown.log_likelihoods(features) - gmms.log_likelihoods(features)
    assert 0 < np.abs(change).max() < 0.05
    assert np.abs(change.mean()) < 0.001


def test_halves_have_the_weights_and_means_of_the_whole_between_them() -> None:
    gmms = draw_mixtures([2], 3, seed=3)
    heaviest = int(np.argmax(gmms.log_weights))
    grown = split(gmms, np.array([1e5]), 3)
    weights = np.exp(grown.log_weights)
    np.testing.assert_allclose(weights[[heaviest, 2]], np.exp(gmms.log_weights[heaviest]) / 2)
    np.testing.assert_allclose(grown.means[[heaviest, 2]].mean(axis=0), gmms.means[heaviest])
    np.testing.assert_array_equal(grown.variances[[heaviest, 2]], gmms.variances[[heaviest] * 2])
    assert not np.array_equal(grown.means[2], grown.means[heaviest])
    np.testing.assert_array_equal(grown.means[1 - heaviest], gmms.means[1 - heaviest])


def test_split_twice_gives_the_same_bits_and_leaves_its_argument_alone() -> None:
    gmms = draw_mixtures([1, 2], 4, seed=4)
    before = gmms.means.copy()
    one, other = (split(gmms, np.array([1e4, 2e4]), 12) for _ in range(2))
    np.testing.assert_array_equal(one.means, other.means)
    np.testing.assert_array_equal(gmms.means, before)


def test_pdfs_with_too_few_frames_are_not_split() -> None:
    gmms = draw_mixtures([1, 1], 4, seed=5)
    assert np.diff(split(gmms, np.array([39.0, 1e6]), 9).first).tolist() == [1, 8]
    assert split(gmms, np.array([39.0, 39.0]), 9).num_gaussians == 2
    assert split(gmms, np.array([1e6, 1e6]), 1).num_gaussians == 2
