import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.nn import PriorScale, SumGroup

group_sizes = st.lists(st.integers(1, 5), min_size=1, max_size=7)


def literal_sum_group(scores: Tensor, sizes: list[int]) -> Tensor:
    """The definition, class by class."""
    return torch.stack([part.logsumexp(-1) for part in torch.split(scores, sizes, dim=-1)], -1)


@settings(max_examples=60, deadline=None)
@given(group_sizes, st.integers(1, 3), st.integers(-3, 3), st.integers(0, 2**30))
def test_each_class_is_the_logsumexp_of_its_consecutive_sub_classes(
    sizes: list[int], rows: int, exponent: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, sum(sizes), generator=generator) * 10.0**exponent
    expected = literal_sum_group(scores.double(), sizes)
    torch.testing.assert_close(SumGroup(sizes)(scores).double(), expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(group_sizes, st.integers(1, 3), st.integers(0, 2**30))
def test_gradient_matches_finite_differences(sizes: list[int], rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, sum(sizes), generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(SumGroup(sizes), scores.requires_grad_())


@settings(max_examples=30, deadline=None)
@given(group_sizes, st.integers(0, 2**30))
def test_softmax_may_come_before_or_after(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, sum(sizes), generator=generator, dtype=torch.float64) * 10
    layer = SumGroup(sizes)
    torch.testing.assert_close(layer(logits).log_softmax(-1), layer(logits.log_softmax(-1)))
    total = layer(logits.log_softmax(-1)).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_posteriors_far_below_the_range_of_floats_keep_their_logarithms() -> None:
    scores = torch.tensor([0.0, -500.0, -500.0, -3000.0], requires_grad=True)
    y = SumGroup([1, 2, 1])(scores)
    torch.autograd.backward(y.sum())
    torch.testing.assert_close(y, torch.tensor([0.0, -500 + math.log(2), -3000.0]))
    torch.testing.assert_close(scores.grad, torch.tensor([1.0, 0.5, 0.5, 1.0]))


def test_impossible_sub_classes_have_gradient_zero() -> None:
    scores = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf], requires_grad=True)
    y = SumGroup([2, 2])(scores)
    torch.autograd.backward(y[0])
    assert y.tolist() == [0.0, -math.inf]
    assert scores.grad is not None
    assert scores.grad.tolist() == [0, 1, 0, 0]


def test_the_papers_size_agrees_with_the_definition_across_row_blocks() -> None:
    generator = torch.Generator().manual_seed(0)
    extra = torch.rand(5000, generator=generator).square().multinomial(7000, replacement=True)
    sizes = torch.bincount(extra, minlength=5000) + 1
    scores = torch.randn(130, 12000, generator=generator)
    y = SumGroup(sizes.tolist())(scores)
    owners = torch.arange(5000).repeat_interleave(sizes)
    sums = torch.zeros(130, 5000, dtype=torch.float64)
    sums.index_add_(1, owners, scores.double().exp())
    torch.testing.assert_close(y.double(), sums.log(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(5,), (0, 5), (2, 3, 5)])
def test_any_leading_dimensions(shape: tuple[int, ...]) -> None:
    scores = torch.randn(shape, requires_grad=True)
    y = SumGroup([2, 3])(scores)
    torch.autograd.backward(y.sum())
    torch.testing.assert_close(y, literal_sum_group(scores, [2, 3]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    """Added up in bfloat16, a hundred sub-classes are wrong by 0.3, their gradient by a third."""
    scores = torch.randn(8, 100, generator=torch.Generator().manual_seed(0)).to(dtype)
    scores.requires_grad_()
    y = SumGroup([100])(scores)
    assert y.dtype == dtype
    assert torch.equal(y, literal_sum_group(scores.detach().float(), [100]).to(dtype))
    torch.autograd.backward(y.sum())
    assert scores.grad is not None
    assert scores.grad.dtype == dtype
    total = scores.grad.float().sum(-1)
    torch.testing.assert_close(total, torch.ones(8), rtol=2e-3, atol=0.0)


def test_whole_numbers_are_refused_instead_of_rounded() -> None:
    with pytest.raises(TypeError, match=r"SumGroup got a tensor of torch\.int64"):
        SumGroup([2])(torch.tensor([[1, 2]]))


def test_a_second_derivative_is_refused_instead_of_wrong() -> None:
    scores = torch.randn(2, 5, requires_grad=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(SumGroup([2, 3])(scores).sum(), scores, create_graph=True)


@pytest.mark.parametrize("sizes", [[], [1, 0], [2, -1]])
def test_a_class_without_sub_classes_is_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="at least one sub-class"):
        SumGroup(sizes)


def test_scores_of_the_wrong_width_are_named() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 6\); the last dimension must be 5"):
        SumGroup([2, 3])(torch.ones(2, 6))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20))
def test_prior_scales_average_to_one_and_follow_the_power_of_the_count(counts: list[int]) -> None:
    scales = PriorScale(torch.tensor(counts)).scales.double()
    assert abs(scales.mean().item() - 1) < 1e-6
    ratio = scales / torch.tensor(counts).double().pow(-0.25)
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-5, atol=0)


def test_prior_scale_is_saved_but_not_trained() -> None:
    layer = PriorScale(torch.tensor([1.0, 16.0]))
    assert not list(layer.parameters())
    assert list(layer.state_dict()) == ["scales"]


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_count_without_a_scale_is_refused_and_its_class_named(bad: float) -> None:
    with pytest.raises(ValueError, match=r"classes \[1\].*clamp\(min=1\)"):
        PriorScale(torch.tensor([3.0, bad, 5.0]))
