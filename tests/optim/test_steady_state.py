"""Where the online update goes (section 5.3): fixed points, rates and noise against simulation."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim.diagnose import dense
from natgrad.optim.factor import FisherFactor
from natgrad.optim.steady_state import (
    best_factor,
    convergence_rate,
    distance,
    exact_minibatch,
    expected_noise,
    limit_factor,
    step,
)
from tests.optim.literal import LiteralFisher
from tests.optim.samples import relative_error

ETAS = st.floats(0.02, 0.9)


@st.composite
def spectra(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Eigenvalues in descending order, of any scale, and a rank."""
    D = draw(st.integers(3, 12))
    rank = draw(st.integers(1, D - 1))
    values = draw(st.lists(st.floats(0.01, 10.0), min_size=D, max_size=D))
    scale = draw(st.sampled_from([1e-6, 1.0, 1e6]))
    return scale * torch.tensor(sorted(values, reverse=True), dtype=torch.float64), rank


def random_factor(D: int, rank: int, mean: float, seed: int) -> FisherFactor:
    g = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(D, rank, generator=g, dtype=torch.float64)).Q
    d = mean * torch.rand(rank, generator=g, dtype=torch.float64)
    return FisherFactor(Q.T.contiguous(), d, 0.5 * mean)


def gap(D: int, rank: int) -> Tensor:
    top = torch.linspace(8.0, 4.0, rank, dtype=torch.float64)
    return torch.cat([top, torch.ones(D - rank, dtype=torch.float64)])


@given(spectrum=spectra(), seed=st.integers(0, 100))
@settings(max_examples=50, deadline=None)
def test_no_factor_of_this_form_is_closer_than_the_best(
    spectrum: tuple[Tensor, int], seed: int
) -> None:
    eigenvalues, rank = spectrum
    other = random_factor(len(eigenvalues), rank, float(eigenvalues.mean()), seed)
    found = distance(other, eigenvalues)
    assert found.excess >= -1e-12
    assert found.divergence >= -1e-9
    at_best = distance(best_factor(eigenvalues, rank), eigenvalues)
    for value in (at_best.space, at_best.factor, at_best.values, at_best.trace, at_best.excess):
        assert abs(value) < 1e-12


@given(spectrum=spectra(), eta=ETAS)
@settings(max_examples=50, deadline=None)
def test_limit_is_a_fixed_point_of_the_update_with_its_floors(
    spectrum: tuple[Tensor, int], eta: float
) -> None:
    eigenvalues, rank = spectrum
    limit = limit_factor(eigenvalues, rank, eta)
    after = step(limit, exact_minibatch(eigenvalues), eta)
    assert relative_error(dense(after), dense(limit)) < 1e-9
    best = best_factor(eigenvalues, rank)
    floor = 5.1e-4 * float(eigenvalues[0])
    assert (
        relative_error(dense(limit), dense(best)) * float(dense(best).norm())
        <= 2 * math.sqrt(len(eigenvalues)) * floor
    )


@pytest.mark.parametrize("eta", [0.1, 0.9])
@pytest.mark.parametrize("seed", [1, 2])
def test_infinite_minibatches_lead_to_the_best_factor(eta: float, seed: int) -> None:
    eigenvalues = gap(10, 3)
    factor = random_factor(10, 3, 2.0, seed)
    X = exact_minibatch(eigenvalues)
    for _ in range(round(60 / eta)):
        factor = step(factor, X, eta)
    found = distance(factor, eigenvalues)
    for value in (found.largest_sine, found.factor, found.trace, found.values, found.rho):
        assert value < 1e-10


def test_ties_at_the_cut_lead_to_one_of_the_best_factors() -> None:
    eigenvalues = torch.tensor([9.0, 4.0, 4.0, 4.0, 1.0, 1.0], dtype=torch.float64)
    factor = random_factor(6, 2, 3.0, seed=3)
    for _ in range(400):
        factor = step(factor, exact_minibatch(eigenvalues), 0.3)
    found = distance(factor, eigenvalues)
    assert found.space > 0.01  # not the one along the axes
    assert abs(found.excess) < 1e-12
    assert abs(found.divergence) < 1e-12


def test_floors_hold_what_would_be_smaller() -> None:
    eigenvalues = 10.0 ** -torch.arange(8, dtype=torch.float64)
    limit = limit_factor(eigenvalues, 3, 0.2)
    assert limit.rho == pytest.approx(5e-4, rel=1e-2)
    factor = random_factor(8, 3, 0.1, seed=4)
    for _ in range(500):
        factor = step(factor, exact_minibatch(eigenvalues), 0.2)
    assert relative_error(dense(factor), dense(limit)) < 1e-10


@given(eta=st.floats(0.05, 0.8), ratio=st.floats(0.2, 0.8), seed=st.integers(0, 20))
@settings(max_examples=20, deadline=None)
def test_angles_fall_at_the_derived_rate(eta: float, ratio: float, seed: int) -> None:
    eigenvalues = torch.tensor([5.0, 2.0, 2.0 * ratio, 0.1, 0.1], dtype=torch.float64)
    factor = best_factor(eigenvalues, 2)
    g = torch.Generator().manual_seed(seed)
    tilted = factor.R + 1e-7 * torch.randn(2, 5, generator=g, dtype=torch.float64)
    tilted[1, 2] += 1e-5  # the slowest direction: all others die out sooner
    factor = FisherFactor(torch.linalg.qr(tilted.T).Q.T.contiguous(), factor.d, factor.rho)
    X, sines = exact_minibatch(eigenvalues), []
    for _ in range(math.ceil(4 / eta)):
        factor = step(factor, X, eta)
        sines.append(distance(factor, eigenvalues).largest_sine)
    expected = convergence_rate(eigenvalues, 2, eta)
    assert expected == pytest.approx(1 - eta * (1 - ratio))
    assert sines[-1] / sines[-2] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("eta", [0.1, 0.6])
def test_a_wrong_fixed_point_is_left_when_disturbed_and_only_then(eta: float) -> None:
    eigenvalues = gap(8, 2)
    wrong = torch.eye(8, dtype=torch.float64)[3:5]
    d = torch.full((2,), 1e-3, dtype=torch.float64)
    X = exact_minibatch(eigenvalues)
    still = FisherFactor(wrong, d, 1.0)
    disturbed = FisherFactor(
        torch.linalg.qr((wrong + 1e-9 * minus_one_powers(2, 8)).T).Q.T.contiguous(), d, 1.0
    )
    for _ in range(round(150 / eta)):
        still, disturbed = step(still, X, eta), step(disturbed, X, eta)
    assert distance(still, eigenvalues).space == pytest.approx(2.0)
    assert distance(disturbed, eigenvalues).factor < 1e-9


def minus_one_powers(rows: int, columns: int) -> Tensor:
    i, j = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    return 1.0 - 2.0 * ((i * j + j // 2) % 2).double()


def test_a_step_with_an_exact_minibatch_is_the_literal_update_with_the_covariance() -> None:
    eigenvalues = gap(7, 2)
    factor = random_factor(7, 2, 2.0, seed=5)
    literal = LiteralFisher(rank=2, alpha=4.0, num_samples_history=1.0, update_period=1)
    literal.R, literal.D, literal.rho = factor.R, torch.diag(factor.d), factor.rho
    for _ in range(5):
        T = 0.3 * torch.diag(eigenvalues) + 0.7 * literal.F()
        literal.update(T, 0.3)
        factor = step(factor, exact_minibatch(eigenvalues), 0.3)
        assert relative_error(dense(factor), literal.F()) < 1e-10


def test_the_update_commutes_with_rotations() -> None:
    """So that it is enough to look at diagonal covariances."""
    g = torch.Generator().manual_seed(6)
    Q = torch.linalg.qr(torch.randn(7, 7, generator=g, dtype=torch.float64)).Q
    factor = random_factor(7, 3, 2.0, seed=7)
    turned = FisherFactor(factor.R @ Q.T, factor.d, factor.rho)
    for _ in range(10):
        X = torch.randn(20, 7, generator=g, dtype=torch.float64) * gap(7, 3).sqrt()
        factor, turned = step(factor, X, 0.2), step(turned, X @ Q.T, 0.2)
    assert relative_error(dense(turned), Q @ dense(factor) @ Q.T) < 1e-10


@pytest.mark.parametrize(("eta", "N"), [(0.02, 40), (0.1, 200)])
def test_expected_noise_is_what_simulation_shows(eta: float, N: int) -> None:
    eigenvalues, rank = gap(8, 2), 2
    g = torch.Generator().manual_seed(8)
    factor = best_factor(eigenvalues, rank)
    best = dense(factor)
    spaces, errors = [], []
    for t in range(round(400 / eta)):
        X = torch.randn(N, 8, generator=g, dtype=torch.float64) * eigenvalues.sqrt()
        factor = step(factor, X, eta)
        if t > 10 / eta:
            spaces.append(float(factor.R[:, rank:].square().sum()))
            errors.append(float((dense(factor) - best).square().sum()))
    expected = expected_noise(eigenvalues, rank, eta, N)
    assert fmean(spaces) == pytest.approx(expected.space, rel=0.15)
    assert fmean(errors) == pytest.approx(expected.factor, rel=0.15)


def test_noise_without_a_gap_is_infinite() -> None:
    noise = expected_noise(torch.ones(4), 2, 0.1, 10)
    assert (noise.space, noise.factor) == (math.inf, math.inf)


def test_distance_from_a_singular_factor_is_refused() -> None:
    eigenvalues = torch.tensor([5.0, 4.0, 0.0, 0.0], dtype=torch.float64)
    with pytest.raises(ValueError, match="all eigenvalues but the first 2 are zero"):
        distance(limit_factor(eigenvalues, 2, 0.1), eigenvalues)


@pytest.mark.parametrize(
    ("eigenvalues", "rank", "message"),
    [
        (torch.ones(3), 3, "rank from 1 to one less"),
        (torch.ones(3), 0, "rank from 1 to one less"),
        (torch.ones(3, 3), 1, "a vector of eigenvalues"),
        (torch.tensor([1.0, 2.0, 3.0]), 1, "from the largest to the least"),
        (torch.tensor([1.0, 0.0, -1.0]), 1, "none below zero"),
    ],
)
def test_what_is_not_a_spectrum_is_refused(eigenvalues: Tensor, rank: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        best_factor(eigenvalues, rank)
