import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.nn import PNorm, pnorm


def literal_pnorm(x: Tensor, num_groups: int, p: float) -> Tensor:
    """The definition, group by group, in float64."""
    x = x.double()
    columns = []
    for g in range(num_groups):
        members = x[..., g::num_groups]
        columns.append(members.abs().pow(p).sum(-1).pow(1 / p))
    return torch.stack(columns, -1)


shapes = st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6))
exponents = st.sampled_from([1.0, 1.5, 2.0, 2.5, 3.0, 7.0])


@settings(max_examples=60, deadline=None)
@given(shapes, exponents, st.integers(0, 2**30))
def test_pnorm_is_the_definition_group_by_group(
    shape: tuple[int, int, int], p: float, seed: int
) -> None:
    rows, groups, group_size = shape
    x = torch.randn(rows, groups * group_size, generator=torch.Generator().manual_seed(seed))
    y = PNorm(groups * group_size, groups, p)(x)
    torch.testing.assert_close(y.double(), literal_pnorm(x, groups, p), rtol=3e-6, atol=0)


@settings(max_examples=30, deadline=None)
@given(shapes, exponents, st.integers(0, 2**30))
def test_gradient_matches_finite_differences(
    shape: tuple[int, int, int], p: float, seed: int
) -> None:
    rows, groups, group_size = shape
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, groups * group_size, generator=generator, dtype=torch.float64)
    x += x.sign() * 0.1  # |x|^p has a kink at 0
    assert torch.autograd.gradcheck(lambda t: pnorm(t, groups, p), x.requires_grad_())


@settings(max_examples=40, deadline=None)
@given(exponents, st.integers(-36, 36), st.integers(0, 2**30))
def test_scaling_the_input_scales_the_norm_and_leaves_the_gradient(
    p: float, exponent: int, seed: int
) -> None:
    x = torch.randn(3, 12, generator=torch.Generator().manual_seed(seed))
    small = x.clone().requires_grad_()
    scaled = (x * 10.0**exponent).requires_grad_()
    expected, y = pnorm(small, 4, p), pnorm(scaled, 4, p)
    (slope,) = torch.autograd.grad(y.sum(), scaled)
    (expected_slope,) = torch.autograd.grad(expected.sum(), small)
    torch.testing.assert_close(y / 10.0**exponent, expected, rtol=1e-4, atol=0)
    torch.testing.assert_close(slope, expected_slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-22, 1e-21, 1e-20, 1e19, 1e25])
def test_squares_that_leave_the_range_of_floats_cost_no_precision(scale: float) -> None:
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(0)) * scale
    torch.testing.assert_close(pnorm(x, 4).double(), literal_pnorm(x, 4, 2.0), rtol=1e-6, atol=0)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 50.0])
def test_an_all_zero_group_has_norm_zero_and_gradient_zero(p: float) -> None:
    x = torch.tensor([[0.0, 3.0, 0.0, 4.0], [0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    y = pnorm(x, 2, p)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert y[:, 0].tolist() == [0, 0]
    assert grad[:, 0::2].abs().sum() == 0
    assert grad[1].abs().sum() == 0
    torch.testing.assert_close(y[0, 1].double(), literal_pnorm(x, 2, p)[0, 1], rtol=1e-6, atol=0)
    assert grad[0, 1] > 0


def test_one_zero_group_does_not_change_the_gradient_of_the_others() -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    with_zero = torch.cat([x, torch.zeros(1, 6)]).requires_grad_()
    alone = x.clone().requires_grad_()
    (slow,) = torch.autograd.grad(pnorm(with_zero, 3).square().sum(), with_zero)
    (fast,) = torch.autograd.grad(pnorm(alone, 3).square().sum(), alone)
    torch.testing.assert_close(slow[:4], fast)


def test_p_of_one_is_the_sum_of_magnitudes() -> None:
    x = torch.tensor([1.0, -2.0, 0.0, 4.0], requires_grad=True)
    y = pnorm(x, 2, 1.0)
    torch.autograd.backward(y.sum())
    assert y.tolist() == [1.0, 6.0]
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, -1.0, 0.0, 1.0]


@pytest.mark.parametrize("p", [100.0, 1000.0, 1e6])
def test_a_large_p_approaches_the_maximum(p: float) -> None:
    x = torch.tensor([1e30, 5e-20, -2e30, 3e-20], requires_grad=True)
    y = pnorm(x, 2, p)
    torch.autograd.backward(y.sum())
    torch.testing.assert_close(y, torch.tensor([2e30, 5e-20]))
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 1.0, -1.0, 0.0]))


def test_the_gradient_of_groups_of_one_is_the_sign_for_any_p() -> None:
    x = torch.tensor([3.7, -0.3], requires_grad=True)
    for p in (1.0, 2.0, 3.0, 1e6):
        (grad,) = torch.autograd.grad(pnorm(x, 2, p).sum(), x)
        torch.testing.assert_close(grad, torch.tensor([1.0, -1.0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    x = torch.tensor([300.0, 400.0], dtype=dtype, requires_grad=True)
    y = pnorm(x, 1)
    torch.autograd.backward(y.sum())
    assert y.dtype == dtype
    assert x.grad is not None
    torch.testing.assert_close(y, torch.tensor([500.0], dtype=dtype))
    torch.testing.assert_close(x.grad, torch.tensor([0.6, 0.8], dtype=dtype))


@pytest.mark.parametrize("shape", [(6,), (0, 6), (2, 3, 6), (2, 0, 3, 6)])
def test_any_leading_dimensions(shape: tuple[int, ...]) -> None:
    for p in (2.0, 3.0):
        x = torch.randn(shape, requires_grad=True)
        y = PNorm(6, 3, p)(x)
        torch.autograd.backward(y.sum())
        assert y.shape == (*shape[:-1], 3)
        torch.testing.assert_close(y.double(), literal_pnorm(x, 3, p))


def test_an_input_that_is_not_contiguous_is_the_same_as_its_copy() -> None:
    x = torch.randn(6, 4).T
    assert torch.equal(pnorm(x, 3), pnorm(x.contiguous(), 3))


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_a_second_derivative_is_refused_instead_of_wrong(p: float) -> None:
    x = torch.randn(2, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(pnorm(x, 3, p).sum(), x, create_graph=True)


@pytest.mark.parametrize(("inputs", "outputs"), [(10, 3), (3, 10), (0, 1), (4, 0), (4, -2)])
def test_group_sizes_that_do_not_fit_are_named(inputs: int, outputs: int) -> None:
    with pytest.raises(ValueError, match=f"{inputs} units in {outputs} groups; .* must divide"):
        PNorm(inputs, outputs)
    with pytest.raises(ValueError, match=f"{inputs} units in {outputs} groups; .* must divide"):
        pnorm(torch.ones(2, inputs), outputs)


@pytest.mark.parametrize("p", [0.5, 0.0, -1.0, math.inf, math.nan])
def test_a_p_outside_its_range_is_named(p: float) -> None:
    with pytest.raises(ValueError, match=r"1 <= p < inf"):
        PNorm(4, 2, p)
    with pytest.raises(ValueError, match=r"1 <= p < inf"):
        pnorm(torch.ones(4), 2, p)


def test_an_input_of_the_wrong_width_is_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 5\); its last dimension must be 4"):
        PNorm(4, 2)(torch.ones(2, 5))


def test_whole_numbers_are_refused_instead_of_rounded() -> None:
    with pytest.raises(TypeError, match=r"pnorm got a tensor of torch.int64; .* x.float\(\)"):
        pnorm(torch.tensor([1, 1]), 1)
