from __future__ import annotations

import pytest
import torch
from torch import Tensor

from natgrad.optim import rows as rows_module
from natgrad.optim.factor import start
from natgrad.optim.online import LowRankRows
from natgrad.optim.rows import (
    NonFiniteError,
    PlainRows,
    Rows,
    Term,
    add_product_,
    squared_frobenius_norm,
)
from natgrad.optim.simple import simple_rows
from tests.optim.samples import minibatch, relative_error

METHODS = ("plain", "low rank", "simple in row space", "simple in column space")


def make_rows(method: str, num_columns: int = 17, dtype: torch.dtype = torch.float64) -> Rows:
    num_rows = num_columns + 9 if method == "simple in column space" else num_columns - 6
    X = minibatch("correlated", num_rows, num_columns, seed=1).to(dtype)
    if method == "plain":
        return PlainRows(X)
    if method == "low rank":
        factor = start(minibatch("correlated", 30, num_columns, seed=2).to(dtype), 5)
        return LowRankRows(X, factor, factor.removed(4.0), squared_frobenius_norm(X))
    return simple_rows(X, 4.0)


def make_target(rows: Rows, num_biases: int, fill: float) -> tuple[Tensor, list[Tensor], Tensor]:
    num_rows, num_columns = rows.X.shape
    Y = minibatch("iid", num_rows, 6 + num_biases, seed=3).to(rows.X.dtype)
    weight = torch.full((num_columns, 6), fill, dtype=rows.X.dtype)
    return weight, [weight[:, 0].clone() for _ in range(num_biases)], Y


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "many blocks":
        monkeypatch.setattr(rows_module, "BLOCK_ELEMENTS", 40)
        monkeypatch.setattr(rows_module, "MIN_BLOCK_COLUMNS", 3)
    return str(request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("num_biases", [0, 1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_add_product_equals_the_plain_product(method: str, num_biases: int, keep: bool) -> None:
    rows = make_rows(method)
    # Garbage in the memory must not matter where nothing of it is kept.
    weight, biases, Y = make_target(rows, num_biases, fill=1.5 if keep else float("nan"))
    add_product_(weight, biases, rows, Y, scale=-0.3, keep=keep)
    expected = -0.3 * rows.dense().T @ Y + (1.5 if keep else 0.0)
    torch.testing.assert_close(weight, expected[:, :6], rtol=1e-12, atol=1e-12)
    for column, bias in enumerate(biases, start=6):
        torch.testing.assert_close(bias, expected[:, column], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_outputs", [4, 200])
@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_all_sizes_are_the_product_with_the_dense_rows(
    method: str, num_outputs: int
) -> None:
    """Whatever is formed on the way is in memory that all blocks of all rows share."""
    for rows in (make_rows(method, 17), make_rows(method, 150), make_rows(method, 17)):
        num_rows, num_columns = rows.X.shape
        Y = minibatch("iid", num_rows, num_outputs, seed=5)
        expected = rows.dense().T @ Y
        terms = rows.terms(Y)
        for begin, end in ((num_columns - 2, num_columns), (0, num_columns), (3, 5)):
            product = sum(left(begin, end).T @ right for left, right in terms)
            torch.testing.assert_close(
                rows.gamma * product, expected[begin:end], rtol=1e-12, atol=1e-12
            )


def test_no_rows_add_nothing() -> None:
    for keep, expected in ((True, 1.5), (False, 0.0)):
        weight, bias = torch.full((4, 3), 1.5), torch.full((4,), 1.5)
        rows = PlainRows(torch.zeros(0, 4))
        add_product_(weight, [bias], rows, torch.zeros(0, 4), scale=1.0, keep=keep)
        assert torch.equal(weight, torch.full((4, 3), expected))
        assert torch.equal(bias, torch.full((4,), expected))


def blocks_seen(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    seen: list[tuple[int, int]] = []
    original = rows.terms

    def terms(Y: Tensor) -> list[Term]:
        (left, right), *others = original(Y)

        def first(begin: int, end: int) -> Tensor:
            seen.append((begin, end))
            return left(begin, end)

        return [Term(first, right), *others]

    monkeypatch.setattr(rows, "terms", terms)
    return seen


def test_many_blocks_are_really_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_ELEMENTS", 40)
    monkeypatch.setattr(rows_module, "MIN_BLOCK_COLUMNS", 3)
    rows = make_rows("low rank")
    seen = blocks_seen(rows, monkeypatch)
    weight, biases, Y = make_target(rows, 1, fill=0.0)
    add_product_(weight, biases, rows, Y, scale=1.0, keep=True)
    assert seen == [(0, 3), (3, 6), (6, 9), (9, 12), (12, 15), (15, 17)]


@pytest.mark.parametrize(("num_rows", "num_inputs"), [(10, 1), (2, 10)])
def test_neither_a_block_nor_its_product_outgrows_the_cache(
    num_rows: int, num_inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_ELEMENTS", 100)
    monkeypatch.setattr(rows_module, "MIN_BLOCK_COLUMNS", 1)
    rows = PlainRows(torch.ones(num_rows, 25))
    seen = blocks_seen(rows, monkeypatch)
    Y = torch.ones(num_rows, num_inputs)
    add_product_(torch.zeros(25, num_inputs), [], rows, Y, scale=1.0, keep=True)
    assert seen == [(0, 10), (10, 20), (20, 25)]


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
