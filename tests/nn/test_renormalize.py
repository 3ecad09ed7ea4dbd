import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.nn import Renormalize, renormalize


def literal_renormalize(x: Tensor, floor: float = 2.0**-66) -> Tensor:
    """The definition, left to autograd."""
    return x / x.square().mean(-1, keepdim=True).clamp_min(floor).sqrt()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), st.integers(1, 20), st.integers(-9, 37), st.integers(0, 2**30))
def test_every_row_gets_a_root_mean_square_of_one_at_any_scale(
    rows: int, width: int, exponent: int, seed: int
) -> None:
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)).clamp(-9, 9)
    x = (x.sign() * (x.abs() + 0.5)) * 10.0**exponent
    rms = Renormalize()(x).square().mean(-1).sqrt()
    torch.testing.assert_close(rms, torch.ones(rows))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(-3, 3), st.integers(0, 2**30))
def test_forward_and_gradient_are_those_of_the_definition(
    rows: int, width: int, exponent: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=generator, dtype=torch.float64) * 10.0**exponent
    grad = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    y, expected = renormalize(ours), literal_renormalize(theirs)
    torch.autograd.backward(y, grad)
    torch.autograd.backward(expected, grad)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-9 * 10.0**-exponent)


def test_gradient_matches_finite_differences_also_below_the_floor() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[1] *= 0.01
    x[2] = 0
    assert torch.autograd.gradcheck(lambda t: renormalize(t, 0.1), x.requires_grad_())


def test_rows_of_zeros_stay_zero_with_finite_gradients() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    y = renormalize(x)
    torch.autograd.backward(y.sum())
    assert y.abs().sum() == 0
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e-13, 1e-9, 1.0, 1e12, 1e20, 1e37])
def test_output_and_gradient_are_finite_at_every_scale(scale: float) -> None:
    x = (torch.randn(8, 350, generator=torch.Generator().manual_seed(0)) * scale).requires_grad_()
    y = renormalize(x)
    torch.autograd.backward(y.square().sum())
    assert y.isfinite().all()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    torch.testing.assert_close(y.double(), literal_renormalize(x.detach().double()))


def test_half_precision_rows_of_zeros_stay_zero() -> None:
    x = torch.tensor([[0.0, 0.0], [300.0, -300.0]], dtype=torch.float16)
    assert renormalize(x).tolist() == [[0, 0], [1, -1]]


def test_float64_rows_at_the_end_of_the_range_get_a_root_mean_square_of_one() -> None:
    x = torch.full((2, 1000), 1e308, dtype=torch.float64)
    torch.testing.assert_close(renormalize(x), torch.ones_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 3, 6), (5, 0)])
def test_any_dimensions(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    y = renormalize(x)
    torch.autograd.backward(y.sum())
    torch.testing.assert_close(y, literal_renormalize(x))


def test_a_second_derivative_is_refused_instead_of_wrong() -> None:
    x = torch.randn(2, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(renormalize(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("exponent", [-8, 0, 100, 160, 307])
def test_float64_rows_get_a_root_mean_square_of_one_at_any_scale(exponent: int) -> None:
    x = torch.tensor([[0.5, -1.5, 0.25]], dtype=torch.float64) * 10.0**exponent
    x.requires_grad_()
    y = renormalize(x)
    torch.testing.assert_close(y.square().mean(-1), torch.ones(1, dtype=torch.float64))
    torch.autograd.backward(y[0, 0])
    expected = x.detach()[0].div(10.0**exponent).requires_grad_()
    torch.autograd.backward(literal_renormalize(expected)[0])
    assert x.grad is not None
    torch.testing.assert_close(x.grad[0] * 10.0**exponent, expected.grad)


@pytest.mark.parametrize("floor", [0.0, -1.0, 1e-80, float("nan"), float("inf")])
def test_a_floor_that_would_not_keep_rows_of_zeros_is_named(floor: float) -> None:
    with pytest.raises(ValueError, match="mean_square_floor="):
        Renormalize(floor)
    with pytest.raises(ValueError, match="mean_square_floor="):
        renormalize(torch.ones(3), floor)


def test_the_least_floor_keeps_rows_of_zeros() -> None:
    assert renormalize(torch.zeros(2, 3), 2.0**-252).tolist() == [[0.0] * 3] * 2


def test_whole_numbers_are_refused_instead_of_rounded() -> None:
    with pytest.raises(TypeError, match=r"renormalize got a tensor of torch.int64"):
        renormalize(torch.tensor([1, 2]))
