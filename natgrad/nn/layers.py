"""The layers of the paper's networks that torch lacks: p-norm, renormalise, and two fixed ones.

The first two follow every hidden matrix of a p-norm network (Zhang et al. 2014, cited in section
6.1), so they are written with few passes over memory and their own backward passes; each is a
function first, then a thin module. Sum-group has a file of its own.
"""

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

__all__ = ["FixedAffine", "PNorm", "PriorScale", "Renormalize", "pnorm", "renormalize"]

# nnet2's floor. It only has to keep rows of zeros at zero; real rows are far above it.
MEAN_SQUARE_FLOOR = 2.0**-66
LEAST_MEAN_SQUARE_FLOOR = 2.0**-252  # one over its root is still a float32


def pnorm(x: Tensor, num_groups: int, p: float = 2.0) -> Tensor:
    """The p-norm of each group: ``y[g] = (sum_j |x[j * num_groups + g]|^p)^(1/p)``.

    The members of a group are ``num_groups`` apart, so that the sum runs over whole contiguous
    slices. The gradient of an all-zero group is zero. Nothing overflows or underflows unless the
    result itself does.

    Cost for p = 2: one read of ``x`` forward; one read of ``x`` and one write of its gradient
    backward. Other values of p, and the odd p = 2 minibatch with a group that is zero or whose
    squares leave the range of floats, take about three times as long.

    >>> pnorm(torch.tensor([3.0, 5.0, 4.0, 12.0]), num_groups=2)
    tensor([ 5., 13.])
    """
    _check_pnorm(x.shape[-1], num_groups, p)
    check_floating("pnorm", x)
    groups = at_least_float32(x).reshape(*x.shape[:-1], x.shape[-1] // num_groups, num_groups)
    if p == 2:
        norms = cast(Tensor, _PlainEuclidean.apply(groups))  # type: ignore[no-untyped-call]
        if _squares_were_exact(norms):
            return norms.to(x.dtype)
    return cast(Tensor, _ScaledPNorm.apply(groups, p)).to(x.dtype)  # type: ignore[no-untyped-call]


class PNorm(nn.Module):
    """The p-norm nonlinearity as a layer; see `pnorm` for the formula and the layout of groups.

    >>> PNorm(6, 3, p=1.0)(torch.tensor([1.0, 2.0, 3.0, -10.0, 20.0, -30.0]))
    tensor([11., 22., 33.])
    """

    def __init__(self, in_features: int, out_features: int, p: float = 2.0) -> None:
        super().__init__()
        _check_pnorm(in_features, out_features, p)
        self.in_features, self.out_features, self.p = in_features, out_features, p

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        _check_last_dimension(self, x, self.in_features)
        return pnorm(x, self.out_features, self.p)

    def extra_repr(self) -> str:
        """What print shows between the brackets."""
        return f"{self.in_features}, {self.out_features}, p={self.p:g}"


def _check_pnorm(num_units: int, num_groups: int, p: float) -> None:
    if num_groups < 1 or num_units < 1 or num_units % num_groups:
        raise ValueError(
            f"a p-norm got {num_units} units in {num_groups} groups; the number of groups must "
            "divide that of units, as every output is the norm of a group of the same size. The "
            "paper's networks use e.g. 3500 units in 350 groups."
        )
    if not 1 <= p < math.inf:
        raise ValueError(f"a p-norm got p={p}; it needs 1 <= p < inf (2 is the usual choice).")


class _PlainEuclidean(torch.autograd.Function):
    """Root of the sum of squares over dimension -2; right where no square over- or underflows."""

    @staticmethod
    def forward(ctx: Any, groups: Tensor) -> Tensor:
        first, *others = groups.unbind(-2)
        norms = first.square()
        # Accumulating slice by slice needs no temporary of the input's size.
        for member in others:
            norms.addcmul_(member, member)
        norms.sqrt_()
        ctx.save_for_backward(groups, norms)
        return norms

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        refuse_second_derivative()
        groups, norms = ctx.saved_tensors
        return cast(Tensor, groups * (grad / norms).unsqueeze(-2))


def _squares_were_exact(norms: Tensor) -> bool:
    """Whether each group's sum of squares was far from the ends of the range of floats."""
    if norms.numel() == 0:
        return True
    smallest, largest = norms.detach().aminmax()
    info = torch.finfo(norms.dtype)
    return bool((smallest > math.sqrt(info.tiny / info.eps)) & (largest < math.inf))


class _ScaledPNorm(torch.autograd.Function):
    """The p-norm over dimension -2 for any p and any scale.

    With u = |x| / max|x| and s = sum u^p, y = max|x| s^(1/p) and
    dy/dx = sign(x) u^(p-1) / s^((p-1)/p): as u <= 1 <= s <= group size, nothing can overflow.
    """

    @staticmethod
    def forward(ctx: Any, groups: Tensor, p: float) -> Tensor:
        sizes = groups.abs()
        largest = sizes.amax(-2, keepdim=True)
        largest.masked_fill_(largest == 0, 1)
        power_sums = sizes.div_(largest).pow_(p).sum(-2, keepdim=True)
        ctx.save_for_backward(groups, largest, power_sums.clamp_min(1))
        ctx.p = p
        return (largest * power_sums.pow(1 / p)).squeeze(-2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_derivative()
        groups, largest, power_sums = ctx.saved_tensors
        slopes = (groups.abs() / largest).pow_(ctx.p - 1).mul_(groups.sign())
        return slopes.mul_(grad.unsqueeze(-2) * power_sums.pow((1 - ctx.p) / ctx.p)), None


def renormalize(x: Tensor, mean_square_floor: float = MEAN_SQUARE_FLOOR) -> Tensor:
    """Each row scaled, down or up, to a root-mean-square of one: ``y = x / sqrt(mean(x^2))``.

    A mean square below the floor is replaced by the floor, so that rows of zeros stay zero, and
    their gradients finite.

    >>> renormalize(torch.tensor([[3.0, -3.0], [1e-5, 0.0], [0.0, 0.0]]))
    tensor([[ 1.0000, -1.0000],
            [ 1.4142,  0.0000],
            [ 0.0000,  0.0000]])
    """
    _check_floor(mean_square_floor)
    check_floating("renormalize", x)
    wide = at_least_float32(x)
    y = _Renormalize.apply(wide, math.sqrt(mean_square_floor))  # type: ignore[no-untyped-call]
    return cast(Tensor, y).to(x.dtype)


class Renormalize(nn.Module):
    """The layer that follows each p-norm; see `renormalize` for the formula.

    >>> Renormalize()(torch.tensor([2.0, 2.0, -2.0]))
    tensor([ 1.,  1., -1.])
    """

    def __init__(self, mean_square_floor: float = MEAN_SQUARE_FLOOR) -> None:
        super().__init__()
        _check_floor(mean_square_floor)
        self.mean_square_floor = mean_square_floor

    def forward(self, x: Tensor) -> Tensor:
        """(..., features) -> (..., features)."""
        return renormalize(x, self.mean_square_floor)


def _check_floor(mean_square_floor: float) -> None:
    if not LEAST_MEAN_SQUARE_FLOOR <= mean_square_floor < math.inf:
        raise ValueError(
            f"Renormalize got mean_square_floor={mean_square_floor}; it must be at least 2^-252, "
            "or a row of zeros would be multiplied by infinity (the default is 2^-66)."
        )


class _Renormalize(torch.autograd.Function):
    """With r = 1 / rms(x) and y = r x, the gradient is r (g - y mean(g y)); x is not kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rms_floor: float) -> Tensor:
        rms = _root_mean_squares(x).clamp_min_(rms_floor)
        y: Tensor = x * rms.reciprocal().to(x.dtype)
        ctx.save_for_backward(y, rms)
        ctx.rms_floor = rms_floor
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_derivative()
        y, rms = ctx.saved_tensors
        along_y = (grad * y).mean(-1, keepdim=True)
        # At the floor the scale is a constant, so nothing is projected out.
        along_y.masked_fill_(rms <= ctx.rms_floor, 0)
        return torch.addcmul(grad, y, along_y, value=-1).mul_(rms.reciprocal().to(y.dtype)), None


def _root_mean_squares(x: Tensor) -> Tensor:
    """That of each row, (..., 1), in float64, because squares of float32 above 1e19 overflow.

    Those of float64 above 1e154 do too, so such rows are brought down to ones first.
    """
    count = x.shape[-1]
    if x.dtype != torch.float64 or count == 0:
        norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float64)
        return cast(Tensor, norms).div_(math.sqrt(count) or 1.0)
    largest = x.abs().amax(-1, keepdim=True).clamp_min_(1.0)
    norms = torch.linalg.vector_norm(x / largest, dim=-1, keepdim=True)
    return cast(Tensor, norms).div_(math.sqrt(count)).mul_(largest)


class PriorScale(nn.Module):
    """A fixed scale per class between the final weight matrix and the softmax (end of C.5).

    The scales are ``count^power``, divided by their average. They are a buffer: saved, not trained.
    Every count must be positive: a class never seen has no scale that the formula could give it.

    >>> PriorScale(torch.tensor([16.0, 1.0])).scales
    tensor([0.6667, 1.3333])
    """

    scales: Tensor

    def __init__(self, class_counts: Tensor, power: float = -0.25) -> None:
        super().__init__()
        counts = torch.as_tensor(class_counts)
        bad = torch.nonzero(~((counts > 0) & (counts < math.inf))).flatten().tolist()
        if counts.ndim != 1 or bad:
            raise ValueError(
                f"PriorScale got class_counts of shape {tuple(counts.shape)}, in which {len(bad)} "
                f"counts are not positive and finite (classes {bad[:10]}); expected one positive "
                "count per class. Pass class_counts.clamp(min=1) to treat classes that were never "
                "seen like those seen once."
            )
        scales = counts.double().pow(power)
        self.register_buffer("scales", (scales / scales.mean()).to(torch.get_default_dtype()))

    def forward(self, logits: Tensor) -> Tensor:
        """(..., classes) -> (..., classes)."""
        return logits * self.scales


class FixedAffine(nn.Module):
    """``x -> weight x + bias`` in buffers, so that no optimizer sees it: for C.6's transform.

    >>> FixedAffine(torch.tensor([[1.0, 1.0]]), torch.tensor([10.0]))(torch.tensor([1.0, 2.0]))
    tensor([13.])
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise ValueError(
                f"FixedAffine got a weight of shape {tuple(weight.shape)} and a bias of shape "
                f"{tuple(bias.shape)}; expected (outputs, inputs) and (outputs,), as "
                "natgrad.nn.input_transform returns them."
            )
        self.register_buffer("weight", weight.to(torch.get_default_dtype(), copy=True))
        self.register_buffer("bias", bias.to(torch.get_default_dtype(), copy=True))

    def forward(self, x: Tensor) -> Tensor:
        """(..., inputs) -> (..., outputs)."""
        return nn.functional.linear(x, self.weight, self.bias)


def refuse_second_derivative() -> None:
    """For hand-written backward passes, whose results autograd would take for constants.

    torch's once_differentiable is not enough: it stays silent where the incoming gradient is itself
    a constant, as below ``y.sum()``, and then leaves the second derivative out.

    >>> x = torch.ones(2, 4, requires_grad=True)
    >>> torch.autograd.grad(pnorm(x, 2).sum(), x, create_graph=True)
    Traceback (most recent call last):
    RuntimeError: natgrad.nn layers have no second derivatives; call without create_graph=True.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "natgrad.nn layers have no second derivatives; call without create_graph=True."
        )


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision cannot hold squares and sums; float32 and float64 pass through untouched.

    >>> at_least_float32(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_floating(name: str, x: Tensor) -> None:
    """Refuse whole numbers, to which the result would be rounded.

    >>> check_floating("pnorm", torch.tensor([3, 4]))
    Traceback (most recent call last):
    TypeError: pnorm got a tensor of torch.int64; it needs one of a floating-point type: x.float().
    """
    if not x.is_floating_point():
        raise TypeError(
            f"{name} got a tensor of {x.dtype}; it needs one of a floating-point type: x.float()."
        )


def _check_last_dimension(layer: nn.Module, x: Tensor, expected: int) -> None:
    if x.shape[-1] != expected:
        raise ValueError(
            f"{type(layer).__name__} got an input of shape {tuple(x.shape)}; "
            f"its last dimension must be {expected}."
        )
