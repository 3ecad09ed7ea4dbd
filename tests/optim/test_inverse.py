from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim import inverse as inverse_file
from natgrad.optim.inverse import (
    MAX_LAPACK_SIZE,
    MAX_UNPADDED_SIZE,
    MIN_PADDED_SIZE,
    inverse,
)
from tests.optim.samples import relative_error


def positive_definite(size: int, num_directions: int, weight: float) -> Tensor:
    """The identity, plus so much of a matrix that has only so many directions."""
    generator = torch.Generator().manual_seed(size)
    X = torch.randn(size, num_directions, generator=generator, dtype=torch.float64)
    return torch.eye(size, dtype=torch.float64) + weight * X @ X.t()


@given(
    size=st.integers(1, 70),
    num_directions=st.integers(0, 80),
    weight=st.sampled_from([1e-6, 1.0, 1e6]),
    max_lapack_size=st.integers(1, 20),
    max_triangle_size=st.integers(1, 20),
)
@settings(max_examples=150, deadline=None)
def test_inverse_is_that_of_lapack(
    size: int, num_directions: int, weight: float, max_lapack_size: int, max_triangle_size: int
) -> None:
    matrix = positive_definite(size, num_directions, weight)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(inverse_file, "MAX_LAPACK_SIZE", max_lapack_size)
        monkeypatch.setattr(inverse_file, "MAX_TRIANGLE_SIZE", max_triangle_size)
        result = inverse(matrix)
    condition = float(torch.linalg.cond(matrix))
    assert relative_error(result, torch.linalg.inv(matrix)) < 1e-14 * condition
    assert relative_error(result, result.t()) < 1e-14 * condition


SIZES = [
    MAX_UNPADDED_SIZE,
    MAX_UNPADDED_SIZE + 1,
    MIN_PADDED_SIZE - 1,
    MIN_PADDED_SIZE,
    MAX_LAPACK_SIZE,
    MAX_LAPACK_SIZE + 1,
    351,
    512,
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_the_lower_triangle_is_read_and_nothing_is_written(
    size: int, dtype: torch.dtype
) -> None:
    matrix = positive_definite(size, size // 2, 1.0 / size)
    given_matrix = (matrix.tril() + torch.full_like(matrix, float("nan")).triu(1)).to(dtype)
    before = given_matrix.clone()
    result = inverse(given_matrix)
    assert result.dtype == dtype
    assert result.is_contiguous()  # or products with it would begin with a copy
    tolerance = 1e-13 if dtype == torch.float64 else 1e-6
    assert relative_error(result, torch.linalg.inv(matrix)) < tolerance
    torch.testing.assert_close(given_matrix, before, rtol=0.0, atol=0.0, equal_nan=True)


def test_decompositions_are_computed_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noting(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def noted(*arguments: Any, **options: Any) -> Tensor:
            seen.append(torch.get_num_threads())
            return function(*arguments, **options)

        return noted

    for module, name in (
        (torch.linalg, "cholesky"),
        (torch.linalg, "solve_triangular"),
        (torch, "cholesky_inverse"),
    ):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inverse(positive_definite(MAX_LAPACK_SIZE + 10, 5, 1.0))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(num_threads)
    assert len(seen) > 3
    assert set(seen) == {1}


@pytest.mark.parametrize("size", [2, 100, MAX_LAPACK_SIZE, 2 * MAX_LAPACK_SIZE])
def test_a_matrix_that_is_not_positive_definite_is_refused(size: int) -> None:
    matrix = torch.eye(size)
    matrix[-1, -1] = -1.0
    with pytest.raises(RuntimeError, match="positive-definite"):
        inverse(matrix)
