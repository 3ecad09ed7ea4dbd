from __future__ import annotations

import pytest
import torch

from natgrad.optim import product_sum
from natgrad.optim.factor import start
from natgrad.optim.low_rank_rows import low_rank_rows, removals
from natgrad.optim.product_sum import add_products_
from natgrad.optim.rows import NonFiniteError, PlainRows, Rows, squared_frobenius_norm
from natgrad.optim.simple import simple_rows
from tests.optim.samples import minibatch, relative_error

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")

METHODS = ("plain", "low rank", "simple in row space", "simple in column space")


def make_rows(method: str, num_columns: int = 17, dtype: torch.dtype = torch.float64) -> Rows:
    num_rows = num_columns + 9 if method == "simple in column space" else num_columns - 6
    X = minibatch("correlated", num_rows, num_columns, seed=1).to(dtype)
    if method == "plain":
        return PlainRows(X)
    if method == "low rank":
        factor = start(minibatch("correlated", 30, num_columns, seed=2).to(dtype), 5)
        [removal] = removals([factor], [4.0])
        return low_rank_rows(X, squared_frobenius_norm(X), X @ factor.R.t(), removal)
    return simple_rows(X, 4.0)


@pytest.mark.parametrize("max_whole_elements", [0, 2**20])
@pytest.mark.parametrize("num_outputs", [4, 200])
@pytest.mark.parametrize("method", METHODS)
def test_terms_are_the_product_with_the_dense_rows(
    method: str, num_outputs: int, max_whole_elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is formed on the way is in memory that all blocks of all rows share."""
    monkeypatch.setattr(product_sum, "MAX_WHOLE_ELEMENTS", max_whole_elements)
    for rows in (make_rows(method, 17), make_rows(method, 150), make_rows(method, 17)):
        num_rows, num_columns = rows.X.shape
        Y = minibatch("iid", num_rows, num_outputs, seed=5)
        product = torch.empty(num_columns, num_outputs, dtype=Y.dtype)
        add_products_(product, [], rows.terms(Y), scale=rows.gamma, keep=False)
        torch.testing.assert_close(product, rows.dense().T @ Y, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_know_their_norms_without_being_formed(method: str, dtype: torch.dtype) -> None:
    rows = make_rows(method, dtype=dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    dense = rows.dense().double()
    assert relative_error(rows.squared_row_norms(), dense.square().sum(dim=1)) < tolerance
    X = rows.X.double()
    assert float(dense.square().sum()) == pytest.approx(
        float(X.square().sum()), rel=tolerance, abs=0.0
    )
    assert rows.squared_norm == pytest.approx(float(X.square().sum()), rel=tolerance, abs=0.0)
    assert rows.dense().dtype == dtype


def test_norm_of_a_large_float32_matrix_is_accurate() -> None:
    # torch.linalg.vector_norm of the whole matrix is wrong by 2e-4 here, and by 5e-3 where elements
    # are alike.
    X = torch.full((512, 12000), 0.1)
    assert squared_frobenius_norm(X) == pytest.approx(512 * 12000 * 0.1**2, rel=2e-5, abs=0.0)
    X = torch.randn(256, 12000, generator=torch.Generator().manual_seed(0))
    assert squared_frobenius_norm(X) == pytest.approx(
        float(X.double().square().sum()), rel=1e-6, abs=0.0
    )


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[1.0, float("nan")], [float("inf"), float("nan")]], "2 NaN and 1 infinite values of 4"),
        ([[1e30, 0.0]], "values up to 1e\\+30, whose squares overflow torch.float32"),
    ],
)
def test_norm_of_what_is_not_finite_says_what_it_found(X: list[list[float]], message: str) -> None:
    with pytest.raises(NonFiniteError, match=message):
        squared_frobenius_norm(torch.tensor(X))


def test_plain_rows_are_the_rows() -> None:
    X = minibatch("iid", 4, 3, seed=0)
    rows = PlainRows(X)
    assert rows.dense() is X
    assert rows.gamma == 1.0
    torch.testing.assert_close(rows.squared_row_norms(), X.square().sum(dim=1))
