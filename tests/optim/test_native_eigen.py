"""The compiled eigendecompositions: of any symmetric matrices, to the last digits of float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim import factor as factor_file
from natgrad.optim.factor import eigh
from natgrad.optim.native import Kernels
from tests.optim.native import LinAlgError, by_avx2, by_threads, calls_of, needs_avx512

SPREAD = (
    "iid",
    "graded",
    "steep",
    "middle",
    "nearly diagonal",
    "one and next to nothing",
    "two blocks",
)
EQUAL = ("low rank", "shifted", "identity", "zeros", "one")  # many eigenvalues are the same
EPS = torch.finfo(torch.float64).eps


def symmetric(kind: str, size: int, seed: int) -> Tensor:
    """A symmetric matrix (size, size) of about unit scale."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(size, size, generator=generator, dtype=torch.float64)
    identity = torch.eye(size, dtype=torch.float64)
    if kind == "iid":
        return X + X.t()
    if kind == "graded":
        scale = torch.logspace(0, -12, size, dtype=torch.float64)
        return (X + X.t()) * torch.outer(scale, scale)
    if kind == "steep":  # products of its smallest elements underflow
        scale = torch.logspace(0, -170, size, dtype=torch.float64)
        return (X + X.t()) * torch.outer(scale, scale)
    if kind == "middle":
        scale = torch.linspace(-4, 4, size, dtype=torch.float64).square().neg().exp()
        return (X + X.t()) * torch.outer(scale, scale)
    low_rank: Tensor = X[:, :2] @ X[:, :2].t()
    if kind == "low rank":
        return low_rank
    if kind == "shifted":
        return low_rank + 1e-6 * identity
    if kind == "identity":
        return identity
    if kind == "nearly diagonal":
        diagonal: Tensor = torch.diag(X[0])
        return diagonal + 1e-9 * (X + X.t())
    if kind == "one and next to nothing":
        nothing = 1e-161 * (X + X.t())
        nothing[0, 0] = 1.0
        return nothing
    if kind == "two blocks":
        half = size // 2
        blocks: Tensor = torch.block_diag(
            X[:half, :half] + X[:half, :half].t(), identity[half:, half:]
        )
        return blocks
    if kind == "zeros":
        return 0.0 * identity
    assert kind == "one"
    return torch.ones(size, size, dtype=torch.float64)


@given(
    kind=st.sampled_from(SPREAD + EQUAL),
    size=st.one_of(st.integers(1, 40), st.sampled_from([63, 64, 80, 81])),
    count=st.integers(0, 3),
    scale=st.sampled_from([1.0, 1e-290, 1e290, -1.0]),
    is_turned=st.booleans(),
    num_threads=st.sampled_from([1, 2]),
)
@settings(max_examples=200, deadline=None)
def test_eigenvalues_and_eigenvectors_make_up_the_matrix(
    kind: str,
    size: int,
    count: int,
    scale: float,
    is_turned: bool,
    num_threads: int,
    kernels: Kernels,
) -> None:
    A = torch.empty(count, size, size, dtype=torch.float64)
    for number in range(count):
        A[number] = scale * symmetric(kind, size, seed=number)
    if is_turned:
        A = A.flip(1, 2)
    before = A.clone()
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_threads(num_threads, monkeypatch)
        values, Ut = kernels.eigh(A)
    assert torch.equal(A, before)
    assert bool((values.diff(dim=1) >= 0.0).all())
    identity = torch.eye(size, dtype=torch.float64)
    for number in range(count):
        norm = float(torch.linalg.matrix_norm(A[number] / abs(scale)))
        own_values, own_Ut = values[number] / abs(scale), Ut[number]
        assert float((own_Ut @ own_Ut.t() - identity).abs().max()) < 8.0 * EPS * size
        rebuilt = own_Ut.t() * own_values @ own_Ut
        assert float((rebuilt - A[number] / abs(scale)).abs().max()) <= 8.0 * EPS * size * norm
        expected = torch.linalg.eigvalsh(A[number] / abs(scale))
        assert float((own_values - expected).abs().max()) <= 8.0 * EPS * size * norm


def test_bits_are_the_same_together_and_alone(
    kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = torch.stack([symmetric("iid", 80, seed) for seed in range(5)])
    by_threads(2, monkeypatch)
    values, Ut = kernels.eigh(A)
    by_threads(1, monkeypatch)
    for number in range(5):
        own_values, own_Ut = kernels.eigh(A[number : number + 1])
        assert torch.equal(own_values[0], values[number])
        assert torch.equal(own_Ut[0], Ut[number])


@needs_avx512
def test_other_instructions_give_the_same_bits(kernels: Kernels, tmp_path: Path) -> None:
    A = symmetric("iid", 75, seed=1).unsqueeze(0)
    others = by_avx2(tmp_path)
    assert all(map(torch.equal, kernels.eigh(A), others.eigh(A)))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("size", [1, 2, 30])
def test_what_is_not_finite_is_an_error(size: int, bad: float, kernels: Kernels) -> None:
    A = torch.eye(size, dtype=torch.float64).repeat(3, 1, 1)
    A[1, size - 1, 0] = A[1, 0, size - 1] = bad
    with pytest.raises(LinAlgError, match=rf"of {size} rows \(number 1\) were not found"):
        kernels.eigh(A)


def test_matrices_of_nothing_have_no_eigenvalues(kernels: Kernels) -> None:
    values, Ut = kernels.eigh(torch.empty(3, 0, 0, dtype=torch.float64))
    assert values.shape == (3, 0)
    assert Ut.shape == (3, 0, 0)


@pytest.mark.usefixtures("native_kernels")
def test_factors_use_it_up_to_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK takes over from there, and gives the same, but for rounding and signs."""
    seen = calls_of("eigh", monkeypatch)
    monkeypatch.setattr(factor_file, "MAX_NATIVE_RANK", 20)
    for size, calls in ((20, 1), (21, 1)):
        Z = symmetric("iid", size, seed=1)
        [values], [Ut] = eigh(Z.unsqueeze(0))
        assert len(seen) == calls
        assert float((Ut.t() * values @ Ut - Z).abs().max()) < 1e-13
