"""Products by oneDNN: where they are used, and that they are products."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim import NGSGD, product
from natgrad.optim.product import (
    MIN_MULTIPLICATIONS_PER_THREAD,
    OneDNN,
    add_times,
    goes_to_onednn,
    linear,
    minus_transposed,
    times,
)
from tests.optim.samples import relative_error

needs_onednn = pytest.mark.skipif(product._onednn is None, reason="this torch has no oneDNN")


def matrix(num_rows: int, num_columns: int, seed: int = 0, *, layout: str = "rows") -> Tensor:
    """A matrix whose rows, or columns, are next to each other in memory, or neither."""
    generator = torch.Generator().manual_seed(seed)
    if layout == "columns":
        return torch.randn(num_columns, num_rows, generator=generator).t()
    if layout == "gaps":
        return torch.randn(num_rows, num_columns + 3, generator=generator)[:, :num_columns]
    return torch.randn(num_rows, num_columns, generator=generator)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the results of oneDNN."""
    shapes: list[torch.Size] = []

    def seen_by(operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def onednn(*arguments: object) -> Tensor:
            result = operator(*arguments)
            shapes.append(result.shape)
            return result

        return onednn

    onednn = product._onednn
    assert onednn is not None
    seen_onednn = OneDNN(seen_by(onednn.product), seen_by(onednn.sum))
    monkeypatch.setattr(product, "_onednn", seen_onednn)
    return shapes


@given(
    num_rows=st.integers(1, 300),
    num_columns=st.integers(1, 300),
    num_summed=st.integers(0, 400),
    layouts=st.tuples(*[st.sampled_from(["rows", "columns", "gaps"])] * 2),
    has_bias=st.booleans(),
    min_multiplications=st.sampled_from([1, MIN_MULTIPLICATIONS_PER_THREAD]),
)
@settings(max_examples=150, deadline=None)
def test_products_are_those_of_float64(
    num_rows: int,
    num_columns: int,
    num_summed: int,
    layouts: tuple[str, str],
    has_bias: bool,
    min_multiplications: int,
) -> None:
    A = matrix(num_rows, num_summed, 1, layout=layouts[0])
    B = matrix(num_columns, num_summed, 2, layout=layouts[1])
    bias = matrix(1, num_columns, 3)[0] if has_bias else None
    expected = A.double() @ B.double().t() + (bias.double() if bias is not None else 0.0)
    # Of numbers that cancel, little is left but round-off: it is small beside what was summed.
    summed = A.double().abs() @ B.double().abs().t() + 1.0
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(product, "MIN_MULTIPLICATIONS_PER_THREAD", min_multiplications)
        for result in (linear(A, B, bias), *([] if has_bias else [times(A, B.t())])):
            assert result.shape == (num_rows, num_columns)
            assert float(((result - expected).abs() / summed).max()) < 1e-6


@pytest.mark.parametrize("has_bias", [False, True])
def test_shapes_that_do_not_fit_are_named(has_bias: bool) -> None:
    """Of a product this large oneDNN would only say that it has no primitive."""
    bias = torch.ones(250) if has_bias else None
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(400x120 and 110x250\)"):
        linear(matrix(400, 120), matrix(250, 110), bias)


@given(
    num_rows=st.integers(1, 200),
    num_columns=st.integers(1, 200),
    num_summed=st.integers(0, 300),
    layouts=st.tuples(*[st.sampled_from(["rows", "columns", "gaps"])] * 3),
    min_multiplications=st.sampled_from([1, MIN_MULTIPLICATIONS_PER_THREAD]),
)
@settings(max_examples=150, deadline=None)
def test_a_product_is_added_to_a_matrix_that_stays_as_it_is(
    num_rows: int,
    num_columns: int,
    num_summed: int,
    layouts: tuple[str, str, str],
    min_multiplications: int,
) -> None:
    C = matrix(num_rows, num_columns, 1, layout=layouts[0])
    A = matrix(num_rows, num_summed, 2, layout=layouts[1])
    B = matrix(num_summed, num_columns, 3, layout=layouts[2])
    before = C.clone()
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(product, "MIN_MULTIPLICATIONS_PER_THREAD", min_multiplications)
        result = add_times(C, A, B)
    assert torch.equal(C, before)
    expected = C.double() + A.double() @ B.double()
    summed = C.double().abs() + A.double().abs() @ B.double().abs() + 1.0
    assert float(((result - expected).abs() / summed).max()) < 1e-6


@pytest.mark.parametrize("shape", [(1, 250), (400, 1)])
@pytest.mark.parametrize("min_multiplications", [1, 2**40])
@pytest.mark.usefixtures("without_and_with_kernels")
def test_one_row_or_column_is_added_to_all(
    shape: tuple[int, int],
    min_multiplications: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(product, "MIN_MULTIPLICATIONS_PER_THREAD", min_multiplications)
    A, B, C = matrix(400, 120, 1), matrix(120, 250, 2), matrix(*shape, 3)
    torch.testing.assert_close(add_times(C, A, B), C + A @ B)


@pytest.mark.usefixtures("without_and_with_kernels")
def test_what_cannot_be_added_is_refused() -> None:
    """oneDNN would read what lies behind it in memory."""
    with pytest.raises(RuntimeError, match="size"):
        add_times(matrix(400, 100), matrix(400, 120), matrix(120, 250))


@pytest.mark.usefixtures("without_and_with_kernels")
@pytest.mark.parametrize(
    "bias",
    [
        torch.randn(1),
        torch.randn(1).expand(250),
        torch.randn(500)[::2],
        torch.randn(250, 301)[:, -1],
        torch._neg_view(torch.randn(250)),
    ],
    ids=["one", "one for all", "every other", "column", "negated"],
)
def test_a_bias_may_lie_in_memory_how_it_likes(
    bias: Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(product, "MIN_MULTIPLICATIONS_PER_THREAD", 1)
    input, weight = matrix(400, 120), matrix(250, 120)
    torch.testing.assert_close(linear(input, weight, bias), F.linear(input, weight, bias))


@pytest.mark.parametrize("layout", ["rows", "columns", "gaps"])
def test_minus_transposed_is_written_row_by_row(layout: str) -> None:
    A = matrix(70, 90, layout=layout)
    result = minus_transposed(A)
    assert torch.equal(result, -A.t())
    assert result.is_contiguous()
    memory = torch.zeros(90, 80)
    minus_transposed(A, out=memory[:, 5:75])
    assert torch.equal(memory[:, 5:75], -A.t())
    assert not memory[:, :5].any()
    assert not memory[:, 75:].any()


def test_input_may_have_any_number_of_leading_dimensions() -> None:
    A, B = torch.randn(4, 40, 30), torch.randn(200, 30)
    result = linear(A, B)
    assert result.shape == (4, 40, 200)
    assert relative_error(result, A.double() @ B.double().t()) < 1e-6


def large() -> int:
    """Return how many columns of B make the product of (128, 64) and B just large enough."""
    return MIN_MULTIPLICATIONS_PER_THREAD * torch.get_num_threads() // (128 * 64)


@needs_onednn
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_large_products_of_float32_go_to_onednn(layout: str, seen: list[torch.Size]) -> None:
    A, B = matrix(128, 64), matrix(large(), 64, layout=layout)
    assert goes_to_onednn(A, B.t())
    linear(A, B)
    add_times(torch.ones(128, large()), A, B.t())
    assert seen == [(128, large())] * 2


@needs_onednn
@pytest.mark.parametrize(
    ("A", "B"),
    [
        (matrix(128, 64), matrix(100, 64)),
        (matrix(128, 64).double(), matrix(large(), 64).double()),
        (matrix(128, 64).bfloat16(), matrix(large(), 64).bfloat16()),
        (matrix(128, 64), matrix(large(), 64, layout="gaps")),
        (matrix(128, 0), matrix(500, 0)),
    ],
    ids=["small", "float64", "bfloat16", "with gaps", "empty"],
)
def test_other_products_go_to_the_blas(A: Tensor, B: Tensor, seen: list[torch.Size]) -> None:
    assert not goes_to_onednn(A, B.t())
    assert torch.equal(linear(A, B), torch.nn.functional.linear(A, B))
    C = torch.ones(len(A), len(B), dtype=A.dtype)
    assert torch.equal(add_times(C, A, B.t()), torch.addmm(C, A, B.t()))
    assert seen == []


@needs_onednn
@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_few_rows_and_fewer_columns_are_divided_among_threads_by_their_transpose(
    num_threads: int, layout: str, seen: list[torch.Size]
) -> None:
    A, B = matrix(128, 1000, 1, layout=layout), matrix(80, 1000, 2)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        result = linear(A, B)
    finally:
        torch.set_num_threads(before)
    is_transposed = num_threads > 1 and layout == "rows"  # else a copy would cost what is gained
    assert seen == [(80, 128) if is_transposed else (128, 80)]
    assert result.is_contiguous()
    assert relative_error(result, A.double() @ B.double().t()) < 1e-6


@needs_onednn
def test_torchs_own_switch_turns_onednn_off(seen: list[torch.Size]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of TF32, whatever is switched
        with torch.backends.mkldnn.flags(enabled=False):
            linear(matrix(128, 64), matrix(large(), 64))
    assert seen == []
    linear(matrix(128, 64), matrix(large(), 64))
    assert seen == [(128, large())]


@needs_onednn
def test_what_is_not_finite_stays_so() -> None:
    A, B = torch.zeros(128, 64), torch.ones(large(), 64)
    A[3, 4], B[7, 8] = float("nan"), float("inf")
    is_finite = linear(A, B).isfinite()
    assert not is_finite[3].any()
    assert not is_finite[:, 7].any()
    assert is_finite.sum() == 127 * (large() - 1)


@needs_onednn
def test_the_same_product_gives_the_same_bits() -> None:
    A, B = matrix(200, 3000, 1), matrix(300, 3000, 2)
    assert torch.equal(linear(A, B), linear(A, B))


@needs_onednn
def test_threads_may_multiply_at_the_same_time() -> None:
    pairs = [(matrix(130, 700, seed), matrix(300, 700, seed + 100)) for seed in range(4)]
    expected = [linear(A, B) for A, B in pairs]

    def multiply(number: int) -> bool:
        A, B = pairs[number % len(pairs)]
        return torch.equal(linear(A, B), expected[number % len(pairs)])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(multiply, range(200)))


def refuse(*arguments: object) -> Tensor:
    raise TypeError("expected 7 arguments")


def add_instead(input: Tensor, weight: Tensor, *arguments: object) -> Tensor:
    return input[:, :2] + weight[:, :2]


@needs_onednn
@pytest.mark.parametrize("name", ["default", "binary"])
@pytest.mark.parametrize(
    ("operator", "problem"),
    [(refuse, "expected 7 arguments"), (add_instead, "its result is another")],
)
def test_a_torch_whose_operator_is_another_is_said_to_be_slower(
    operator: Callable[..., Tensor], problem: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = torch.ops.mkldnn._linear_pointwise
    changed = SimpleNamespace(**{"default": own.default, "binary": own.binary, name: operator})
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", changed)
    with pytest.warns(UserWarning, match=f"not as NGSGD calls it.*{problem}"):
        assert product._find_onednn() is None


class Special(Tensor):
    """A tensor with products of its own."""


@needs_onednn
def test_products_of_special_tensors_are_left_to_torch(seen: list[torch.Size]) -> None:
    A, B = matrix(128, 64).as_subclass(Special), torch.nn.Parameter(matrix(large(), 64))
    with torch.no_grad():
        assert isinstance(linear(A, B), Special)
        assert seen == []
        linear(A.as_subclass(Tensor), B)
    assert seen == [(128, large())]


def test_without_onednn_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert product._find_onednn() is None


def train(method: str, fused: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(90, 1200), torch.nn.Tanh(), torch.nn.Linear(1200, 1000)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.03, generator=generator)
    optimizer = NGSGD(model, lr=0.01, method=method, fused=fused)
    for _ in range(3):
        x = torch.randn(40, 90, generator=generator)
        y = torch.randint(1000, (40,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


@needs_onednn
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("method", ["online", "simple", "none"])
def test_training_is_the_same_by_either_library(
    method: str, fused: bool, seen: list[torch.Size], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_onednn = train(method, fused)
    # Outputs and derivatives at the inputs of both layers, and the changes of their weights.
    assert {(40, 1200), (40, 1000), (334, 1201), (1200, 91)} <= set(seen)
    monkeypatch.setattr(product, "_onednn", None)
    for found, expected in zip(by_onednn, train(method, fused), strict=True):
        assert relative_error(found, expected) < 1e-5
