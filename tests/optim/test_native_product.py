"""The compiled products and inverses are those of float64, to the last digits of float32."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from natgrad import NGSGD
from natgrad.optim.native import Kernels, use_native_kernels
from natgrad.optim.native import kernels as kernels_file
from natgrad.optim.product import add_times, linear, times
from natgrad.optim.product_sum import Term, add_products_
from tests.optim.models import seeded
from tests.optim.native import LinAlgError, by_avx2, by_threads, needs_avx512
from tests.optim.samples import relative_error
from tests.optim.test_product import matrix

LAYOUTS = ("rows", "columns", "gaps", "every other column")
# Tiles have up to 12 rows and 32 columns; blocks, up to 480 rows and 384 summands.
SIZES = (1, 2, 11, 12, 13, 24, 31, 32, 33, 48, 65, 130, 383, 384, 385, 480, 481, 500, 800)
ROUNDING = 2.0**-24


def drawn_matrix(num_rows: int, num_columns: int, seed: int, layout: str) -> Tensor:
    if layout == "every other column":
        return matrix(num_rows, 2 * num_columns, seed)[:, ::2]
    return matrix(num_rows, num_columns, seed, layout=layout)


def assert_close(result: Tensor, expected: Tensor, magnitude: Tensor, num_summands: int) -> None:
    """Each element is within the bound for sums in any order, which is far above what is seen."""
    assert bool(((result - expected).abs() <= (num_summands + 4) * ROUNDING * magnitude).all())


@dataclass(frozen=True)
class Case:
    left: Tensor
    right: Tensor
    added: Tensor | None
    is_in_place: bool
    alpha: float
    has_last: bool


sizes = st.one_of(st.integers(1, 70), st.sampled_from(SIZES))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    num_rows, depth, num_columns = draw(sizes), draw(sizes | st.just(0)), draw(sizes)
    layouts = st.sampled_from(LAYOUTS)
    left = drawn_matrix(num_rows, depth, 1, draw(layouts))
    right = drawn_matrix(depth, num_columns, 2, draw(layouts))
    has_last = num_columns > 1 and draw(st.booleans())
    kind = draw(st.sampled_from(["nothing", "a row", "rows", "rows with gaps", "out"]))
    shape = (num_rows, num_columns - has_last)
    added = None
    if kind == "a row":
        added = torch.randn(shape[1])
    elif kind != "nothing":
        added = drawn_matrix(*shape, 3, "gaps" if kind == "rows with gaps" else "rows")
    return Case(left, right, added, kind == "out", draw(st.sampled_from([1.0, -0.3])), has_last)


@given(case=cases(), num_threads=st.sampled_from([1, 2, 3]))
@settings(max_examples=400, deadline=None)
def test_products_are_those_of_float64(case: Case, num_threads: int, kernels: Kernels) -> None:
    left, right, added = case.left, case.right, case.added
    num_rows, num_columns = left.shape[0], right.shape[1]
    last = torch.full((num_rows,), 0.7) if case.has_last else None
    product = case.alpha * left.double() @ right.double()
    magnitude = abs(case.alpha) * left.double().abs() @ right.double().abs()
    whole = torch.zeros(num_rows, num_columns, dtype=torch.float64)
    if added is not None:
        whole[:, : num_columns - case.has_last] = added
        whole[:, num_columns - case.has_last :] = 0.7
    expected, magnitude = product + whole, magnitude + whole.abs()
    # What stands around the result has to stay; what is in it must not matter unless it is added.
    frame = torch.full((num_rows + 2, num_columns - case.has_last + 5), torch.nan)
    out = frame[1:-1, 2:-3]
    if case.is_in_place:
        assert added is not None
        added = out.copy_(added)
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_threads(num_threads, monkeypatch)
        result = kernels.multiply(left, right, out, added=added, alpha=case.alpha, last=last)
    assert result is out
    if last is not None:
        result = torch.cat([result, last.unsqueeze(1)], dim=1)
    assert_close(result, expected, magnitude, left.shape[1])
    frame[1:-1, 2:-3] = torch.nan
    assert bool(frame.isnan().all())


@given(
    num_rows=sizes, depth=sizes, layout=st.sampled_from(LAYOUTS), threads=st.sampled_from([1, 2])
)
@settings(max_examples=100, deadline=None)
def test_lower_triangles_are_those_of_the_whole_product(
    num_rows: int, depth: int, layout: str, threads: int, kernels: Kernels
) -> None:
    X = drawn_matrix(num_rows, depth, 1, layout)
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_threads(threads, monkeypatch)
        gram = kernels.multiply(X, X.t(), is_lower=True)
    assert torch.equal(gram.tril(), kernels.multiply(X, X.t()).tril())


@pytest.mark.parametrize("shape", [(128, 200, 1000), (1000, 128, 201), (37, 800, 45)])
def test_bits_are_the_same_whatever_the_number_of_threads_and_the_layout(
    shape: tuple[int, int, int], kernels: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows, depth, num_columns = shape
    left, right = matrix(num_rows, depth, 1), matrix(depth, num_columns, 2)
    added, bias = matrix(num_rows, num_columns - 1, 3), torch.randn(num_rows)
    results = []
    for num_threads in (1, 2, 3, 7):
        by_threads(num_threads, monkeypatch)
        for a, b in ((left, right), (left.t().contiguous().t(), right.t().contiguous().t())):
            last = bias.clone()
            product = kernels.multiply(a, b, added.clone(), added=added, alpha=0.3, last=last)
            results.append(torch.cat([product, last.unsqueeze(1)], dim=1))
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.usefixtures("native_kernels")
def test_layers_go_to_the_kernels_whatever_lies_in_memory_how(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As torch computes them: transposed weights, and biases that are every other number."""
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    input, weight, bias = matrix(9, 7).reshape(3, 3, 7), matrix(5, 7), torch.randn(10)
    for own_weight in (weight, weight.t().contiguous().t(), matrix(5, 14)[:, ::2]):
        for own_bias in (None, bias[:5], bias[::2]):
            expected = F.linear(input, own_weight, own_bias)
            torch.testing.assert_close(linear(input, own_weight, own_bias), expected)


@pytest.mark.usefixtures("native_kernels")
def test_parameters_change_whatever_lies_in_memory_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    left, right = matrix(6, 9), matrix(6, 5)
    for weight in (torch.ones(9, 4), torch.ones(4, 9).t(), torch.ones(9, 8)[:, ::2]):
        for bias in (torch.ones(9), torch.ones(18)[::2]):
            add_products_(weight, [bias], [Term(left, right)], scale=0.5)
            expected = 1.0 + 0.5 * left.t() @ right
            torch.testing.assert_close(weight, expected[:, :4])
            torch.testing.assert_close(bias, expected[:, 4])
            weight.fill_(1.0)
    weight, bias = torch.empty(9, 0), torch.ones(9)
    add_products_(weight, [bias], [Term(left, right[:, :1])], scale=0.5)
    torch.testing.assert_close(bias, 1.0 + 0.5 * (left.t() @ right[:, :1])[:, 0])


@pytest.mark.usefixtures("native_kernels")
@pytest.mark.parametrize("shape", [(4, 12), (4, 7), (2, 2, 12)])
def test_an_input_of_another_dimension_is_refused(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not multiplied by what lies behind the weights in memory, or by a part of them."""
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    layer = nn.Linear(10, 5)
    optimizer = NGSGD(layer)
    with pytest.raises(RuntimeError, match=r"cannot be multiplied \(4x\d+ and 10x5\)"):
        layer(torch.ones(shape))
    optimizer.release()


@pytest.mark.usefixtures("native_kernels")
def test_rows_from_which_something_is_taken_may_lie_in_memory_how_they_like(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Derivatives of one image lie in columns; those of a sum are one number, told many times."""
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    right, taken = matrix(6, 5), (matrix(6, 2, 1), matrix(9, 2, 2))
    for left in (matrix(6, 9), matrix(6, 9, layout="columns"), torch.ones(1, 1).expand(6, 9)):
        weight = torch.ones(9, 5)
        add_products_(weight, [], [Term(left, right, taken)], scale=0.5)
        expected = 1.0 + 0.5 * (left - taken[0] @ taken[1].t()).t() @ right
        torch.testing.assert_close(weight, expected)


@pytest.mark.usefixtures("native_kernels")
def test_views_that_negate_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    left, right = matrix(6, 9), matrix(6, 5)
    for a, b in ((torch._neg_view(left), right), (left, torch._neg_view(right))):
        torch.testing.assert_close(times(a.t(), b), -left.t() @ right)
    added = torch._neg_view(matrix(9, 5, 3))
    torch.testing.assert_close(add_times(added, left.t(), right), added + left.t() @ right)
    weight = torch._neg_view(torch.ones(9, 5))
    add_products_(weight, [], [Term(left, right)])
    torch.testing.assert_close(weight, left.t() @ right - 1.0)


@pytest.mark.usefixtures("native_kernels")
def test_many_derivatives_at_once_are_those_one_by_one() -> None:
    """torch then has tensors that stand for many, and have no memory of their own."""
    layer = nn.Linear(90, 80)
    optimizer = NGSGD(layer)
    x = matrix(70, 90).requires_grad_()
    grads = torch.randn(3, 70, 80)
    output = layer(x)
    (found,) = torch.autograd.grad(output, x, grads, is_grads_batched=True, retain_graph=True)
    for grad, own in zip(grads, found, strict=True):
        torch.testing.assert_close(own, torch.autograd.grad(output, x, grad, retain_graph=True)[0])
    optimizer.release()


@pytest.mark.usefixtures("native_kernels")
def test_a_recorded_layer_computes_what_it_did() -> None:
    layer = nn.Linear(90, 80)
    optimizer = NGSGD(layer)
    recorded = make_fx(layer)(torch.zeros(70, 90))
    torch.testing.assert_close(recorded(matrix(70, 90)), layer(matrix(70, 90)))
    optimizer.release()


@pytest.mark.usefixtures("native_kernels")
def test_products_of_nothing_are_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 0)
    for shape in ((0,), (4, 0), (2, 3, 0)):
        result = linear(torch.ones(shape), torch.ones(5, 0))
        assert torch.equal(result, torch.zeros(*shape[:-1], 5))


def trained_on_images(
    num_images: int, method: str, fused: bool, loss_of: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return all that a convolutional network has learned from so many images at a time."""
    model = seeded(lambda: nn.Sequential(nn.Conv2d(3, 20, 3), nn.Tanh(), nn.Conv2d(20, 4, 3)))
    optimizer = NGSGD(model, lr=0.01, method=method, fused=fused)
    generator = torch.Generator().manual_seed(1)
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model(torch.randn(num_images, 3, 6, 6, generator=generator))).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("num_images", [1, 3])
@pytest.mark.parametrize("method", ["online", "simple", "none"])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("loss_of", [torch.sum, lambda output: output.square().sum()])
def test_convolutions_learn_the_same_as_without(
    num_images: int,
    method: str,
    fused: bool,
    loss_of: Callable[[Tensor], Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS", 1)
    learned = []
    for use in (False, True):
        use_native_kernels(use)
        learned.append(trained_on_images(num_images, method, fused, loss_of))
    use_native_kernels(False)
    torch.testing.assert_close(learned[1], learned[0], rtol=1e-4, atol=1e-5)


def test_threads_that_multiply_at_once_do_not_disturb_each_other(kernels: Kernels) -> None:
    matrices = [(matrix(150, 400, seed), matrix(400, 90, seed + 50)) for seed in range(40)]
    expected = [kernels.multiply(left, right) for left, right in matrices]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda pair: kernels.multiply(*pair), matrices))
    assert all(map(torch.equal, results, expected))


def test_autograd_knows_that_a_result_was_overwritten(kernels: Kernels) -> None:
    weight = torch.ones(3, 3, requires_grad=True)
    doubled = weight * 2.0
    squared = doubled * doubled
    with torch.no_grad():
        kernels.multiply(matrix(3, 2), matrix(2, 3), doubled, added=doubled)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


inverted_sizes = st.one_of(st.integers(1, 70), st.sampled_from([64, 65, 128, 129, 192, 300, 512]))


@given(
    size=inverted_sizes,
    rank=st.integers(0, 80),
    weight=st.sampled_from([1e-6, 1.0, 10.0]),
    num_threads=st.sampled_from([1, 2]),
)
@settings(max_examples=100, deadline=None)
def test_inverses_are_those_of_float64(
    size: int, rank: int, weight: float, num_threads: int, kernels: Kernels
) -> None:
    X = matrix(size, rank, 1)
    gram = (X @ X.t()).tril() + torch.full((size, size), torch.nan).triu(1)
    whole = gram.tril().double() + gram.tril(-1).double().t()
    sum_of_both = torch.eye(size, dtype=torch.float64) + weight * whole
    with pytest.MonkeyPatch.context() as monkeypatch:
        by_threads(num_threads, monkeypatch)
        inverse = kernels.inverse_with_identity(gram, weight)
    expected = torch.linalg.inv(sum_of_both)
    condition = float(torch.linalg.cond(sum_of_both))
    assert relative_error(inverse, expected) < 8.0 * ROUNDING * condition
    assert torch.equal(inverse, inverse.t())


@pytest.mark.parametrize("size", [1, 30, 64, 65, 200])
@pytest.mark.parametrize("bad", [-2.0, torch.nan])
def test_a_matrix_that_is_not_positive_definite_is_an_error_that_names_the_minor(
    size: int, bad: float, kernels: Kernels
) -> None:
    for row in {0, size // 2, size - 1}:
        matrix = torch.eye(size)
        matrix[row, row] = bad
        with pytest.raises(LinAlgError, match=f"minor of order {row + 1} is not"):
            kernels.inverse_with_identity(matrix, 1.0)


@needs_avx512
def test_other_instructions_give_the_same_bits(kernels: Kernels, tmp_path: Path) -> None:
    """A sum is taken in the order of its terms, with a rounding each, by vectors of any length."""
    others = by_avx2(tmp_path)
    left, right = matrix(130, 800, 1), matrix(800, 77, 2, layout="columns")
    assert torch.equal(kernels.multiply(left, right), others.multiply(left, right))
    gram = left @ left.t()
    inverse = kernels.inverse_with_identity(gram, 1.0)
    assert torch.equal(inverse, others.inverse_with_identity(gram, 1.0))
