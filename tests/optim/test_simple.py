from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.optim import inverse as inverse_file
from natgrad.optim import precondition_simple
from natgrad.optim.rows import NonFiniteError, PlainRows
from natgrad.optim.simple import GRAM_STRIP, MAX_LOSS, lower_gram, simple_rows
from tests.optim.literal import precondition_simple_literally
from tests.optim.samples import KINDS, minibatch, relative_error

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")

SCALES = (1e-13, 1e-6, 1.0, 1e4, 1e12)


@settings(deadline=None, max_examples=80)
@given(
    kind=st.sampled_from(KINDS),
    N=st.integers(1, 24),
    D=st.integers(1, 24),
    alpha=st.sampled_from((1e-2, 0.3, 4.0, 100.0, 1e6)),
    scale=st.sampled_from(SCALES),
    seed=st.integers(0, 10**6),
)
def test_equals_brute_force_hold_one_out(
    kind: str, N: int, D: int, alpha: float, scale: float, seed: int
) -> None:
    X = minibatch(kind, N, D, seed) * scale
    expected = precondition_simple_literally(X, alpha)
    rows = simple_rows(X, alpha)
    assert relative_error(rows.dense(), expected) < 1e-10
    # The norms come from a difference; where few digits are left, from fewer than float64 has.
    assert relative_error(rows.squared_row_norms(), expected.square().sum(dim=1)) < 1e-9

    single = precondition_simple(X.float(), alpha).double()
    assert float(single.norm()) == pytest.approx(float(X.norm()), rel=2e-6, abs=0.0)
    # Condition up to D / alpha = 2400: round-off of float32 times as much.
    assert relative_error(single, precondition_simple_literally(X.float(), alpha)) < max(
        1e-5, 2e-6 * D / alpha
    )


@pytest.mark.parametrize(("N", "D"), [(12, 20), (20, 20), (21, 20), (70, 20)])
@pytest.mark.parametrize("alpha", [1e-2, 1.0, 4.0, 50.0])
def test_equals_brute_force_in_row_and_in_column_space(N: int, D: int, alpha: float) -> None:
    X = minibatch("correlated", N, D, seed=0)
    assert (
        relative_error(precondition_simple(X, alpha), precondition_simple_literally(X, alpha))
        < 1e-10
    )


@pytest.mark.parametrize("size", [64, 128])
def test_a_square_minibatch_keeps_its_digits_in_float32(size: int) -> None:
    """In row space, where 1 / M_ii loses them, errors were up to 2e-5."""
    X = minibatch("correlated", size, size, seed=0).float()
    expected = precondition_simple_literally(X, 0.015)
    assert relative_error(precondition_simple(X, 0.015).double(), expected) < 1e-6


@pytest.mark.parametrize("alpha", [1e-16, 1e-12, 1e-8])
def test_a_square_minibatch_has_the_digits_of_float64_whatever_alpha(alpha: float) -> None:
    """In column space, x^T q / unit would be 1 but for round-off."""
    X = minibatch("iid", 30, 30, seed=0)
    X_hat = torch.empty_like(X)
    for i, x in enumerate(X):  # G_i^-1 x_i by singular values: to invert G_i would lose digits
        _, s, Vt = torch.linalg.svd(torch.cat([X[:i], X[i + 1 :]]))
        eigenvalues = torch.cat([s.square(), s.new_zeros(1)]) / 29 + alpha * X.square().sum() / 900
        X_hat[i] = Vt.t() @ (Vt @ x / eigenvalues)
    expected = X_hat * (X.norm() / X_hat.norm())
    assert relative_error(precondition_simple(X, alpha), expected) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("N", "D"), [(20, 30), (30, 30), (31, 30), (90, 30)])
@pytest.mark.parametrize("alpha", [1e-8, 1e-6, 1e-3, 3e-3])
def test_tiny_alpha_keeps_the_norm_and_the_digits_in_float32(
    kind: str, N: int, D: int, alpha: float
) -> None:
    X = minibatch(kind, N, D, seed=4)
    X_bar = precondition_simple(X.float(), alpha).double()
    assert float(X_bar.norm()) == pytest.approx(float(X.norm()), rel=2e-6, abs=0.0)
    # alpha = 3e-3 at D = 30 is still computed in float32 in row space, with condition 1e4.
    assert relative_error(X_bar, precondition_simple(X.float().double(), alpha)) < 1e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("N", "D"), [(300, 400), (400, 300)])
@pytest.mark.parametrize("condition", [100.0, 3e3, MAX_LOSS])
def test_an_inverse_made_of_products_loses_hardly_more_than_lapack(
    kind: str, N: int, D: int, condition: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, alpha = minibatch(kind, N, D, seed=4).float(), D / condition
    exact = precondition_simple(X.double(), alpha)
    by_products = relative_error(precondition_simple(X, alpha), exact)
    monkeypatch.setattr(inverse_file, "MAX_LAPACK_SIZE", max(N, D))
    by_lapack = relative_error(precondition_simple(X, alpha), exact)
    # Twice as much of identical rows, of which the least is left; of others no more than 1.2 times.
    assert by_products <= 3.0 * by_lapack + 1e-6


def test_huge_alpha_is_plain_sgd() -> None:
    for N, D in ((6, 9), (9, 6)):
        X = minibatch("iid", N, D, seed=0)
        torch.testing.assert_close(precondition_simple(X, 1e14), X, rtol=1e-11, atol=0.0)
        torch.testing.assert_close(precondition_simple(X, float("inf")), X, rtol=1e-12, atol=0.0)
        single = X.float()
        torch.testing.assert_close(precondition_simple(single, 1e9), single, rtol=1e-6, atol=0.0)


def test_a_direction_shared_by_many_samples_is_taken_down() -> None:
    X = minibatch("iid", 50, 8, seed=0)
    X[:, 0] += 10.0
    X_bar = precondition_simple(X, 0.1)
    before = float(X[:, 0].square().sum() / X.square().sum())
    after = float(X_bar[:, 0].square().sum() / X_bar.square().sum())
    assert before > 0.9
    assert after < 0.2


def test_one_row_and_zeros_and_no_rows_are_returned_as_they_are() -> None:
    one = minibatch("iid", 1, 5, seed=0)
    assert torch.equal(precondition_simple(one), one)
    assert torch.equal(precondition_simple(torch.zeros(4, 5)), torch.zeros(4, 5))
    assert precondition_simple(torch.zeros(0, 5)).shape == (0, 5)
    assert isinstance(simple_rows(one, 4.0), PlainRows)


def test_zero_rows_stay_zero() -> None:
    for N, D in ((6, 9), (9, 6)):
        X_bar = precondition_simple(minibatch("zero rows", N, D, seed=0))
        assert not X_bar[::2].any()
        assert X_bar[1::2].all()


@pytest.mark.parametrize("alpha", [0.0, 1e-300, -1.0, float("nan"), "4", None])
def test_alpha_that_is_not_positive_is_refused(alpha: Any) -> None:
    with pytest.raises(ValueError, match=f"needs alpha > 0.*singular; but got {alpha!r}"):
        precondition_simple(torch.ones(3, 2), alpha)


def test_what_is_not_a_matrix_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"got shape \(2, 3, 4\): use X.reshape\(-1"):
        precondition_simple(torch.ones(2, 3, 4))


def test_what_is_not_finite_is_refused() -> None:
    X = torch.ones(3, 2)
    X[1, 1] = float("nan")
    with pytest.raises(NonFiniteError, match="1 NaN and 0 infinite values of 6"):
        precondition_simple(X)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_its_dtype(dtype: torch.dtype) -> None:
    X = minibatch("correlated", 10, 12, seed=0).to(dtype)
    X_bar = precondition_simple(X)
    assert X_bar.dtype == dtype
    assert relative_error(X_bar, precondition_simple_literally(X, 4.0)) < 5e-3


@pytest.mark.parametrize(("N", "D"), [(11, 16), (16, 11)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_with_the_rows_do_not_need_the_rows(N: int, D: int, dtype: torch.dtype) -> None:
    X = minibatch("correlated", N, D, seed=0).to(dtype)
    Y = minibatch("iid", N, 7, seed=1).to(dtype)
    rows = simple_rows(X, 4.0)
    product = torch.as_tensor(sum(left.T @ right for left, right, _ in rows.terms(Y)))
    assert relative_error(rows.gamma * product, rows.dense().T @ Y) < (
        1e-12 if dtype == torch.float64 else 2e-6
    )
    norms = rows.dense().square().sum(dim=1)
    assert relative_error(rows.squared_row_norms(), norms) < (
        1e-12 if dtype == torch.float64 else 5e-6
    )


@pytest.mark.parametrize(("kind", "alpha"), [("iid", 1e5), ("identical rows", 1e4), ("iid", 1e-3)])
def test_row_norms_keep_their_digits_where_their_difference_would_not(
    kind: str, alpha: float
) -> None:
    # M is close to I, or to zero: M_ii - sum_j M_ij^2 has few digits left in float32.
    rows = simple_rows(minibatch(kind, 20, 24, seed=0).float(), alpha)
    norms = rows.dense().double().square().sum(dim=1)
    assert relative_error(rows.squared_row_norms(), norms) < 2e-5
    assert float(norms.sum()) == pytest.approx(
        float(rows.X.double().square().sum()), rel=2e-5, abs=0.0
    )


@pytest.mark.parametrize("N", [1, 2, 127, 128, 129, 255, 256, 257, 400])
def test_only_the_lower_triangle_of_the_gram_matrix_is_computed(N: int) -> None:
    X = minibatch("iid", N, 5, seed=N)
    gram = lower_gram(X)
    expected = X @ X.T
    torch.testing.assert_close(gram.tril(), expected.tril(), rtol=1e-13, atol=1e-13)
    assert gram.shape == (N, N)
    if N > 2 * GRAM_STRIP:
        assert not gram[0, GRAM_STRIP:].any(), "work was done above the strips on the diagonal"


@pytest.mark.parametrize("scale", [1e-15, 1e-19, 1e-21, 1e-25, 1e-38])
@pytest.mark.parametrize(("N", "D"), [(5, 9), (20, 9)])
def test_rows_too_small_for_their_squares_are_finite(N: int, D: int, scale: float) -> None:
    X = (scale * minibatch("correlated", N, D, seed=0)).float()
    X_bar = precondition_simple(X)
    assert X_bar.isfinite().all()
    # Some of 1e-38 are too small for float32 to have all their digits.
    tolerance = 1e-5 if scale > 1e-30 else 0.1
    assert relative_error(X_bar, precondition_simple(X.double())) < tolerance


def test_autocast_does_not_round_what_is_preconditioned() -> None:
    X = minibatch("correlated", 20, 9, seed=0).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = precondition_simple(X)
    assert torch.equal(found, precondition_simple(X))


@pytest.mark.parametrize(("N", "D"), [(2, 1000), (2, 100), (8, 250), (16, 125), (32, 64), (64, 64)])
@pytest.mark.parametrize("alpha", [0.4, 4.0])
def test_norm_of_few_rows_that_are_nearly_parallel_has_its_digits(
    N: int, D: int, alpha: float
) -> None:
    """It follows from a difference of elements of M, which are nearly equal then."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        X = torch.randn(N, 1, generator=generator) @ torch.randn(1, D, generator=generator)
        rows = simple_rows(X, alpha)
        norm = float(rows.hat().double().norm()) * rows.gamma
        assert norm == pytest.approx(float(X.double().norm()), rel=5e-5)
