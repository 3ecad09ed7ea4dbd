"""What OnlineFisher computes: as the literal version does, and what both promise."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim import OnlineFisher
from natgrad.optim import factor as factor_module
from natgrad.optim.factor import FisherFactor, eta_of, start
from tests.optim.literal import LiteralFisher
from tests.optim.samples import KINDS, minibatch, relative_error

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")

SCALES = (1e-13, 1e-6, 1.0, 1e4, 1e12)


def dense(factor: FisherFactor | None) -> Tensor:
    """Return F as a matrix: its R is only known up to signs and rotations."""
    assert factor is not None
    R = factor.R.double()
    return (R.T * factor.d.double()) @ R + factor.rho * torch.eye(R.shape[1], dtype=torch.float64)


def start_alike(literal: LiteralFisher, X: Tensor) -> None:
    """Start the literal version; what the first minibatch leaves open is as in the fast one.

    Where S_0 has less than `rank` eigenvalues worth the name, any orthonormal directions complete
    the top ones: d, rho and the others must agree, but F need not.
    """
    literal.start(X)
    rank = literal.R.shape[0]
    fast = start(X, rank)
    scale = float(literal.D[0, 0]) + literal.rho
    torch.testing.assert_close(fast.d, literal.D.diagonal(), rtol=1e-10, atol=1e-12 * scale)
    assert fast.rho == pytest.approx(literal.rho, rel=1e-9, abs=0.0)
    eigenvalues = torch.linalg.eigvalsh(X.T @ X / X.shape[0]).flip(0)
    known = eigenvalues[:rank] > 1e-6 * eigenvalues[0]
    if known.all():
        assert relative_error(dense(fast), literal.F()) < 1e-9
    else:
        top, literal_top = fast.R[known], literal.R[known]
        assert relative_error(top.T @ top, literal_top.T @ literal_top) < 1e-8
        assert relative_error(fast.R @ fast.R.T, torch.eye(rank)) < 1e-12
        literal.R = fast.R


@st.composite
def sequences(draw: st.DrawFn) -> list[Tensor]:
    """Minibatches (N, D) float64 of one dimension and scale, of varying sizes and kinds."""
    D = draw(st.integers(1, 40))
    scale = draw(st.sampled_from(SCALES))
    kind = draw(st.sampled_from(KINDS))
    length = draw(st.integers(1, 14))
    seed = draw(st.integers(0, 10**6))
    usual_size = draw(st.integers(1, 60))
    batches = []
    for t in range(length):
        # Mostly what it was before, as in training; sometimes something else.
        other = draw(st.integers(0, 4)) == 0
        N = draw(st.integers(1, 60)) if other else usual_size
        kind_t = draw(st.sampled_from(KINDS)) if other else kind
        batches.append(minibatch(kind_t, N, D, seed + t, space=seed) * scale)
    return batches


OPTIONS = {
    "rank": st.one_of(st.integers(0, 12), st.integers(0, 50)),
    "alpha": st.sampled_from((0.0, 0.1, 4.0, 1e3)),
    "num_samples_history": st.sampled_from((3.0, 50.0, 2000.0)),
    "update_period": st.sampled_from((1, 3, 4)),
}


@settings(deadline=None, max_examples=100)
@given(batches=sequences(), options=st.fixed_dictionaries(OPTIONS))
def test_fast_version_equals_the_literal_one(
    batches: list[Tensor], options: dict[str, Any]
) -> None:
    fast, literal = OnlineFisher(**options), LiteralFisher(**options)
    for X in batches:
        rank = min(literal.rank, X.shape[1] - 1)
        if not literal.started and rank > 0 and bool(X.any()):
            start_alike(literal, X)
        expected = literal.precondition(X)
        X_bar, squared_row_norms = fast.precondition(X)
        # The fast version decomposes Z, whose round-off its condition number amplifies: up to 1e8
        # where floors are active, and more where X grows a lot from one minibatch to the next.
        tolerance = min(1e-3, max(1e-9, 3e-15 * literal.condition))
        assert relative_error(X_bar, expected) < tolerance
        assert relative_error(squared_row_norms, expected.square().sum(dim=1)) < tolerance
        assert (fast.factor is None) == (not literal.started)
        if literal.started:
            assert relative_error(dense(fast.factor), literal.F()) < tolerance
            assert fast.t == literal.t


@settings(deadline=None, max_examples=100)
@given(batches=sequences(), options=st.fixed_dictionaries(OPTIONS))
def test_float32_keeps_the_norm_and_its_directions_orthonormal(
    batches: list[Tensor], options: dict[str, Any]
) -> None:
    fisher = OnlineFisher(**options)
    for X64 in batches:
        X = X64.float()
        rows, _ = copy.deepcopy(fisher).meet(X)
        X_bar, squared_row_norms = fisher.precondition(X)
        norm = float(X.double().norm())
        assert X_bar.isfinite().all()
        assert float(X_bar.double().norm()) == pytest.approx(norm, rel=1e-6, abs=0.0)
        total = float(squared_row_norms.double().sum())
        assert total == pytest.approx(norm**2, rel=1e-6, abs=0.0)
        # What the optimizer uses: gamma and the norms of rows are known before X_hat is formed,
        # from differences that may be down to 1e-2 of what they are made of, and as if R were
        # orthonormal, which it is to 1e-3. In 18682 random sequences the errors were up to 2.0e-4
        # and 1.3e-4.
        assert float(rows.dense().double().norm()) == pytest.approx(norm, rel=6e-4, abs=0.0)
        total = float(rows.squared_row_norms().double().sum())
        assert total == pytest.approx(norm**2, rel=6e-4, abs=0.0)
        if fisher.factor is not None:
            assert_valid(fisher.factor)


def assert_valid(factor: FisherFactor) -> None:
    R = factor.R.double()
    # R is repaired above 1e-3, as seen by float32.
    assert float((R @ R.T - torch.eye(R.shape[0])).abs().max()) < 1.01e-3
    assert factor.d.isfinite().all()
    assert (factor.d > 0.0).all()
    assert 0.0 < factor.rho < math.inf


@settings(deadline=None, max_examples=30)
@given(
    kind=st.sampled_from(("iid", "correlated", "zero rows")),
    D=st.integers(2, 40),
    rank=st.integers(1, 50),
    alpha=st.sampled_from((1.0, 4.0, 1e3)),
    scale=st.sampled_from(SCALES),
    seed=st.integers(0, 10**6),
)
def test_float32_is_close_to_the_literal_version(
    kind: str, D: int, rank: int, alpha: float, scale: float, seed: int
) -> None:
    fast = OnlineFisher(rank, alpha, 500.0, 4)
    literal = LiteralFisher(rank, alpha, 500.0, 4)
    for t in range(12):
        X = (minibatch(kind, 100, D, seed + t, space=seed) * scale).float()
        expected = literal.precondition(X)
        X_bar, squared_row_norms = fast.precondition(X)
        assert relative_error(X_bar, expected) < 3e-5
        assert relative_error(squared_row_norms, expected.square().sum(dim=1)) < 3e-5
        # The last directions of correlated data are below the resolution of float32, and any others
        # do as well: their d is at the floor, 5e-4 of the largest.
        assert relative_error(dense(fast.factor), literal.F()) < (
            1e-3 if kind == "correlated" else 3e-5
        )


@pytest.mark.parametrize("exponent", [-43, -20, 20, 40])  # 1e-13 ... 1e12
@pytest.mark.parametrize("kind", ["correlated", "low rank", "identical rows"])
def test_scaling_the_inputs_by_a_power_of_two_scales_the_output_to_the_bit(
    kind: str, exponent: int
) -> None:
    plain, scaled = OnlineFisher(rank=6), OnlineFisher(rank=6)
    for t in range(14):
        X = minibatch(kind, 12, 20, seed=t).float()
        X_bar, _ = plain.precondition(X)
        X_bar_scaled, _ = scaled.precondition(X * 2.0**exponent)
        assert torch.equal(X_bar_scaled, X_bar * 2.0**exponent)


@pytest.mark.parametrize("scale", SCALES)
def test_scaling_the_inputs_scales_the_output(scale: float) -> None:
    plain, scaled = OnlineFisher(rank=6), OnlineFisher(rank=6)
    for t in range(14):
        X = minibatch("correlated", 30, 20, seed=t).float()
        X_bar, _ = plain.precondition(X)
        X_bar_scaled, _ = scaled.precondition(X * scale)
        assert relative_error(X_bar_scaled.double() / scale, X_bar) < 2e-5
        assert relative_error(dense(scaled.factor) / scale**2, dense(plain.factor)) < 2e-5


@pytest.mark.parametrize("log_spread", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("history", [50.0, 2000.0])
@pytest.mark.parametrize("moving", [False, True])
def test_directions_stay_orthonormal_in_float32(
    log_spread: float, history: float, moving: bool
) -> None:
    N, D, rank = 16, 60, 24
    g = torch.Generator().manual_seed(1)
    basis = torch.linalg.qr(torch.randn(D, D, generator=g)).Q
    fisher = OnlineFisher(rank=rank, num_samples_history=history, update_period=1)
    for _ in range(300):
        if moving:
            basis = basis[torch.randperm(D, generator=g)]
        X = torch.randn(N, D, generator=g) * torch.logspace(0, -log_spread, D) @ basis
        fisher.precondition(X)
        assert fisher.factor is not None
        assert_valid(fisher.factor)


@pytest.mark.parametrize("scales", [(1e-13, 1.0), (1e-13, 1e12), (1e12, 1e-13), (1.0, 1e-9)])
@pytest.mark.parametrize("N", [4, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sudden_changes_of_scale_are_survived(
    scales: tuple[float, float], N: int, dtype: torch.dtype
) -> None:
    # At 1e-13 -> 1, what F knew is below the smallest number of float32 beside the new minibatch.
    fisher = OnlineFisher(rank=10, num_samples_history=100.0)
    for t in range(8):
        X = (minibatch("iid", N, 30, seed=t) * scales[t >= 2]).to(dtype)
        X_bar, _ = fisher.precondition(X)
        assert float(X_bar.double().norm()) == pytest.approx(
            float(X.double().norm()), rel=1e-6, abs=0.0
        )
        assert fisher.factor is not None
        assert_valid(fisher.factor)


def test_minibatch_outside_the_known_directions_is_survived_when_it_is_much_larger() -> None:
    fisher = OnlineFisher(rank=2)
    X = torch.zeros(5, 8)
    X[:, :2] = 1e-13 * minibatch("iid", 5, 2, seed=0).float()
    fisher.precondition(X)
    X = torch.zeros(5, 8)
    X[:, 6:] = minibatch("iid", 5, 2, seed=1).float()
    for _ in range(3):
        X_bar, _ = fisher.precondition(X)
        assert relative_error(X_bar.norm(), X.norm()) < 1e-6
        assert fisher.factor is not None
        assert_valid(fisher.factor)


def test_huge_alpha_is_plain_sgd() -> None:
    for alpha, tolerance in ((1e14, 1e-11), (math.inf, 1e-13)):
        fisher = OnlineFisher(rank=5, alpha=alpha)
        for t in range(12):
            X = minibatch("correlated", 20, 10, seed=t)
            assert relative_error(fisher.precondition(X)[0], X) < tolerance


def test_rank_zero_is_plain_sgd() -> None:
    fisher = OnlineFisher(rank=0)
    for t in range(3):
        X = minibatch("iid", 100, 33, seed=t).float()
        X_bar, squared_row_norms = fisher.precondition(X)
        assert torch.equal(X_bar, X)
        torch.testing.assert_close(squared_row_norms, X.square().sum(dim=1))
    assert fisher.state_dict() == {"t": 0}


def test_dimension_one_is_plain_sgd() -> None:
    X = minibatch("iid", 7, 1, seed=0)
    assert torch.equal(OnlineFisher(rank=20).precondition(X)[0], X)


def test_more_rank_than_dimensions_is_all_dimensions_but_one() -> None:
    X = minibatch("correlated", 30, 7, seed=0)
    outputs = []
    for rank in (6, 7, 50):
        fisher = OnlineFisher(rank=rank)
        fisher.precondition(X)
        outputs.append(fisher.precondition(X)[0])
        assert fisher.factor is not None
        assert fisher.factor.R.shape == (6, 7)
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_one_row_at_a_time_finds_the_directions() -> None:
    fisher = OnlineFisher(rank=2, num_samples_history=100.0, alpha=0.0, update_period=1)
    data = minibatch("iid", 600, 6, seed=0)
    data[:, 0] *= 30.0
    for row in data:
        fisher.precondition(row.unsqueeze(0))
    F = dense(fisher.factor)
    assert float(F[0, 0]) == pytest.approx(900.0, rel=0.5, abs=0.0)
    assert float(F[0, 0] / F.trace()) > 0.9


def test_dominant_direction_is_taken_down() -> None:
    fisher = OnlineFisher(rank=3, alpha=0.1)
    for t in range(5):
        X = minibatch("iid", 100, 8, seed=t)
        X[:, 0] *= 10.0
        X_bar, _ = fisher.precondition(X)
    before = float(X[:, 0].square().sum() / X.square().sum())
    after = float(X_bar[:, 0].square().sum() / X_bar.square().sum())
    assert before > 0.9
    assert after < 0.1


def test_minibatch_does_not_influence_the_factor_that_it_meets() -> None:
    first, second = OnlineFisher(rank=4), OnlineFisher(rank=4)
    for t in range(3):
        X = minibatch("correlated", 20, 9, seed=t)
        first.precondition(X)
        second.precondition(X)
    X, other = minibatch("correlated", 20, 9, seed=10), minibatch("iid", 20, 9, seed=11) * 50
    other[:5] = X[:5]
    shared, shared_other = first.precondition(X)[0][:5], second.precondition(other)[0][:5]
    # The same rows in different company differ by one scalar only: gamma, which keeps the norm of
    # all.
    ratio = float(shared_other.norm() / shared.norm())
    assert relative_error(shared_other, shared * ratio) < 1e-12
    # But the next minibatch meets what was learned.
    X = minibatch("correlated", 20, 9, seed=12)
    assert relative_error(first.precondition(X)[0], second.precondition(X)[0]) > 1e-3


@pytest.mark.parametrize(
    ("N", "D", "rank", "largest"),
    [(128, 12000, 80, 128), (16, 12000, 80, 80), (1500, 1200, 20, 1024), (1500, 300, 20, 300)],
)
def test_no_decomposition_is_larger_than_it_must_be(
    N: int, D: int, rank: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    names = ("eigh", "eigvalsh", "svd", "qr", "cholesky", "cholesky_ex", "inv", "solve", "eig")
    for name in names:
        original = getattr(torch.linalg, name)

        def wrapped(A: Tensor, *args: Any, original: Any = original, **kwargs: Any) -> Any:
            seen.append(min(A.shape[-2:]))
            assert seen[-1] <= largest  # before it is done: 12000 x 12000 would take an hour
            return original(A, *args, **kwargs)

        monkeypatch.setattr(torch.linalg, name, wrapped)
    fisher = OnlineFisher(rank=rank)
    X = torch.randn(N, D, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        fisher.precondition(X)
    assert max(seen) > 1, "no decomposition was seen"


@pytest.mark.parametrize("kind", ["iid", "last frames", "a few large rows"])
def test_start_from_sums_of_rows_is_close_to_the_start_from_all(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every k-th row, in their place, would leave out all rows that are not zero of the second."""
    X = minibatch("correlated", 2000, 40, seed=0)
    if kind == "last frames":
        X[torch.arange(2000) % 8 != 7] = 0.0
    if kind == "a few large rows":
        X[torch.arange(2000) % 7 != 0] *= 1e-3
    full = start(X, 10)
    monkeypatch.setattr(factor_module, "MAX_START_SIZE", 39)
    some = start(X, 10)
    assert_valid(some)
    assert some.trace == pytest.approx(full.trace, rel=1e-3)
    assert 1e-3 < relative_error(dense(some), dense(full)) < 0.5
    assert torch.equal(start(X, 10).R, some.R)  # what is drawn is always the same


@pytest.mark.parametrize("other", [1.0, -1.0, 1.0 + 1e-7, -1.0 - 1e-7])
def test_start_from_rows_that_cancel_knows_their_direction(
    other: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factor_module, "MAX_START_SIZE", 1)
    row = minibatch("iid", 1, 6, seed=0)
    factor = start(torch.cat([row, other * row]), 3)
    assert_valid(factor)
    assert abs(float(factor.R[0] @ row[0])) == pytest.approx(float(row.norm()))
    assert factor.trace == pytest.approx(float(row.square().sum()), rel=1e-2)


def test_start_is_the_covariance_of_the_first_minibatch() -> None:
    # With R = D - 1 nothing is left out, and no floor is active on well-conditioned data.
    X = minibatch("iid", 50, 6, seed=0)
    torch.testing.assert_close(dense(start(X, 5)), X.T @ X / 50, rtol=1e-12, atol=1e-13)


def test_steady_state_holds_the_top_eigenpairs_of_the_covariance() -> None:
    D, rank = 12, 4
    basis = torch.linalg.qr(minibatch("iid", D, D, seed=0)).Q
    spectrum = 0.5 ** torch.arange(D).double()
    X = math.sqrt(D) * basis * spectrum.sqrt() @ torch.linalg.qr(minibatch("iid", D, D, seed=1)).Q
    fisher = OnlineFisher(rank=rank, num_samples_history=20.0, update_period=1)
    fisher.precondition(minibatch("iid", 30, D, seed=2))  # knows nothing of the directions
    for _ in range(400):
        fisher.precondition(X)
    assert fisher.factor is not None
    S = X.T @ X / D
    eigenvalues = torch.linalg.eigvalsh(S).flip(0)
    torch.testing.assert_close(eigenvalues, spectrum)
    found = fisher.factor.d + fisher.factor.rho
    torch.testing.assert_close(found, spectrum[:rank], rtol=1e-8, atol=0.0)
    assert fisher.factor.rho == pytest.approx(float(spectrum[rank:].mean()), rel=1e-8, abs=0.0)
    assert fisher.factor.trace == pytest.approx(float(S.trace()), rel=1e-10, abs=0.0)
    R = fisher.factor.R
    torch.testing.assert_close(R @ S @ R.T, torch.diag(spectrum[:rank]), rtol=0.0, atol=1e-8)


def test_trace_follows_the_data() -> None:
    # rho' is chosen so that tr(F) = tr(T), where no floor is active (before eqn:rhodash).
    fisher = OnlineFisher(rank=4, num_samples_history=60.0, update_period=1)
    trace = None
    for t in range(6):
        X = minibatch("iid", 30, 10, seed=t)
        X[:, :4] *= torch.tensor([20.0, 15.0, 10.0, 7.0])
        eta = 1.0 - math.exp(-0.5)
        S_trace = float(X.square().sum()) / 30
        fisher.precondition(X)
        trace = eta * S_trace + (1.0 - eta) * (S_trace if trace is None else trace)
        assert fisher.factor is not None
        assert fisher.factor.trace == pytest.approx(trace, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        (4, [*range(10), 12, 16, 20, 24]),
        (3, [*range(10), 12, 15, 18, 21, 24]),
        (1, [*range(26)]),
        (100, [*range(10)]),
    ],
)
def test_factor_changes_on_its_schedule_only(period: int, expected: list[int]) -> None:
    fisher = OnlineFisher(rank=3, update_period=period)
    # Zeros before the first real minibatch do not count.
    for _ in range(3):
        fisher.precondition(torch.zeros(20, 8, dtype=torch.float64))
    assert fisher.state_dict() == {"t": 0}
    changed = []
    previous = dense(start(minibatch("iid", 20, 8, seed=0), 3))
    for t in range(26):
        fisher.precondition(minibatch("iid", 20, 8, seed=t))
        if not torch.equal(dense(fisher.factor), previous):
            changed.append(t)
        previous = dense(fisher.factor)
    assert changed == expected


def test_weight_of_a_minibatch_grows_with_its_size_up_to_the_cap() -> None:
    assert eta_of(128, 2000.0) == pytest.approx(1.0 - math.exp(-0.064))
    assert eta_of(128, 50.0) == 0.9
    assert eta_of(1, 1e18) == pytest.approx(1e-18, abs=0.0)  # 1 - exp would give zero


def test_zero_minibatches_let_the_factor_fade_and_leave_it_usable() -> None:
    fisher = OnlineFisher(rank=3, num_samples_history=10.0, update_period=1)
    X = minibatch("correlated", 20, 8, seed=0).float()
    fisher.precondition(X)
    before = dense(fisher.factor)
    zeros = torch.zeros(20, 8)
    X_bar, squared_row_norms = fisher.precondition(zeros)
    assert not X_bar.any()
    assert not squared_row_norms.any()
    # eta = 1 - exp(-2)
    assert relative_error(dense(fisher.factor), before * math.exp(-2.0)) < 1e-5
    for _ in range(300):
        fisher.precondition(zeros)
        assert fisher.factor is not None
        assert_valid(fisher.factor)
    assert relative_error(fisher.precondition(X)[0].norm(), X.norm()) < 1e-6


@pytest.mark.parametrize("scale", [1e-13, 1.0, 1e12])
@pytest.mark.parametrize(("N", "D"), [(200, 600), (480, 1000), (300, 120)])
@pytest.mark.parametrize("every", [3, 10])
@pytest.mark.parametrize("of", ["rows", "columns"])
def test_first_minibatch_may_be_mostly_zero(
    N: int, D: int, every: int, of: str, scale: float
) -> None:
    """As with padded sequences; LAPACK in float32 fails on many of these, or returns NaN."""
    for seed in range(3):
        X = scale * minibatch("iid", N, D, seed=seed).float()
        kept = torch.arange(N if of == "rows" else D) % every == 0
        X = X * (kept.unsqueeze(1) if of == "rows" else kept)
        fisher = OnlineFisher(rank=20)
        for _ in range(2):
            X_bar, _ = fisher.precondition(X)
            assert X_bar.isfinite().all()
            assert math.isclose(float(X_bar.norm()), float(X.norm()), rel_tol=1e-5)


@pytest.mark.parametrize("scale", [1e-19, 1e-21, 3e-23, 1e-23, 1e-25, 1e-38])
def test_rows_too_small_for_their_squares_are_finite_and_do_not_spoil_what_follows(
    scale: float,
) -> None:
    fisher = OnlineFisher(rank=3)
    X = minibatch("correlated", 20, 9, seed=0).float()
    for tiny in (scale * X, scale * X, X, scale * X):
        X_bar, squared_row_norms = fisher.precondition(tiny)
        ratio = float(X_bar.double().norm() / tiny.double().norm())
        # Below, squares in float32 have no digits any more.
        assert math.isclose(ratio, 1.0, rel_tol=1e-4 if scale > 1e-22 else 0.5)
        assert squared_row_norms.isfinite().all()
    expected = OnlineFisher(rank=3)
    expected.precondition(X)
    assert relative_error(fisher.precondition(X)[0], expected.precondition(X)[0]) < 1e-2


def test_autocast_does_not_round_what_is_preconditioned() -> None:
    plain, within = OnlineFisher(rank=3), OnlineFisher(rank=3)
    for t in range(3):
        X = minibatch("correlated", 20, 9, seed=t).float()
        with torch.autocast("cpu", torch.bfloat16):
            found, _ = within.precondition(X)
        assert torch.equal(found, plain.precondition(X)[0])


def test_norm_of_many_rows_with_a_mean_has_its_digits() -> None:
    """What is taken out of them is a sum of N rank squares: in float32, not in one go."""
    X = 1.0 + 0.3 * torch.randn(50_000, 32, generator=torch.Generator().manual_seed(0))
    rows, _ = OnlineFisher(rank=20).meet(X)
    norm = float(rows.hat().double().norm()) * rows.gamma
    assert norm == pytest.approx(float(X.double().norm()), rel=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(12))
def test_directions_stay_orthonormal_where_derivatives_come_and_go(
    seed: int, dtype: torch.dtype
) -> None:
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    wide, narrow = OnlineFisher(90), OnlineFisher(10, num_samples_history=200.0)
    few = draw(2, 1500)
    for _ in range(2):
        wide.precondition(0.05 * draw(1, 1500))
        wide.precondition(draw(1, 2) @ few)
    narrow.precondition(1.3e-3 * draw(64, 20))
    narrow.precondition(draw(64, 3) @ draw(3, 20))
    for fisher in (wide, narrow):
        assert fisher.factor is not None
        R = fisher.factor.R.double()
        error = (R @ R.t() - torch.eye(len(R), dtype=torch.float64)).abs().max()
        assert float(error) < 0.3 * math.sqrt(torch.finfo(dtype).eps)  # 1e-4, 4e-9


@pytest.mark.parametrize("rank", [0, 2])
def test_what_is_returned_is_not_the_callers_matrix(rank: int) -> None:
    for X in (torch.zeros(3, 4), torch.ones(3, 4)):
        before = X.clone()
        OnlineFisher(rank).precondition(X)[0].mul_(2.0)
        assert torch.equal(X, before)
