"""Taps: hand the inputs and the output derivatives of each layer to its weight matrix.

The only file that knows `nn.Linear`, `nn.Conv1d` and `nn.Conv2d`. A tapped layer computes what it
always did, but in the backward pass its weight gradient X^T Y is left to the `WeightMatrix`, which
forms X_bar^T Y_bar in its place.

A tapped layer has another `forward`, which looks up the layer's tap in a weak dictionary. What is
copied of it (`copy.deepcopy`, pickle) has its own again, and a model whose optimizer is gone finds
no tap: both run as if never tapped.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.grad import conv1d_input, conv2d_input
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from natgrad.optim.matrix import WeightMatrix, accumulate_grad
from natgrad.optim.other_forward import give_forward, own_class, take_forward_back
from natgrad.optim.product import linear, times

_taps: weakref.WeakKeyDictionary[nn.Module, weakref.ref[WeightMatrix]]
_taps = weakref.WeakKeyDictionary()

# As they are now: what is put in their place later may compute something else.
LINEAR_FORWARD = nn.Linear.forward
CONVOLUTION_FORWARDS = (nn.Conv1d.forward, nn.Conv2d.forward)


def can_tap(module: nn.Module) -> bool:
    """Whether the layer is one whose weight gradient we know how to form from rows."""
    weight = module._parameters.get("weight")
    if not isinstance(weight, nn.Parameter):
        return False  # no weight, or one that is computed, by a parametrization
    if not weight.is_floating_point() or (not is_lazy(weight) and 0 in weight.shape):
        return False  # complex, or no numbers at all
    if getattr(module, "bias", None) is not module._parameters.get("bias"):
        return False
    if "forward" in vars(module):
        return False  # this one layer has been given another forward
    forward = own_class(module).forward
    if forward is LINEAR_FORWARD:
        return True
    return forward in CONVOLUTION_FORWARDS and bool(module.groups == 1)


def install(module: nn.Module, matrix: WeightMatrix) -> None:
    """Let `module` hand its rows to `matrix`, and to no other from now on."""
    _taps[module] = weakref.ref(matrix)
    give_forward(module, _forward)


def remove(module: nn.Module, matrix: WeightMatrix) -> None:
    """Undo `install`, unless another matrix has taken the layer over since."""
    if tapped_by(module) is matrix:
        del _taps[module]
        take_forward_back(module)


def tapped_by(module: nn.Module) -> WeightMatrix | None:
    """Return the weight matrix that the layer hands its rows to."""
    reference = _taps.get(module)
    return None if reference is None else reference()


def _forward(self: nn.Module, input: Tensor) -> Tensor:
    matrix = tapped_by(self)
    if (
        matrix is None
        or self.weight is not matrix.weight
        or not (self.bias is None or any(self.bias is bias for bias in matrix.biases))
        or not matrix.weight.requires_grad
        or not matrix.shared.tapped
        or not torch.is_grad_enabled()
        or torch._C._are_functorch_transforms_active()  # derivatives are not those of a minibatch
        or forward_ad._current_level >= 0
        or input.layout != torch.strided  # sparse or nested: no matrix of rows
        or input.is_nested
    ):
        output: Tensor = own_class(self).forward(self, input)
        return output
    if matrix.shared.fused and getattr(DistributedDataParallel, "_active_ddp_module", None):
        raise RuntimeError(
            f"layer '{matrix.name}' is in a DistributedDataParallel, which averages gradients, and "
            "NGSGD with fused=True leaves none: each process would train alone. Use fused=False"
        )
    if torch.is_autocast_enabled(input.device.type) and input.dtype != torch.float64:
        input = input.to(torch.get_autocast_dtype(input.device.type))
    if isinstance(self, nn.Linear):
        return _TappedLinear.apply(input, self.weight, self.bias, matrix)  # type: ignore[no-any-return, no-untyped-call]
    return _tapped_convolution(self, input, matrix)


def _collect(ctx: Any, X: Tensor, Y: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Hand the rows over in full precision; return what autograd shall see of the gradients."""
    matrix: WeightMatrix = ctx.matrix
    if not _is_backward_to_weight(ctx):
        weight = (X.t() @ Y.to(X.dtype)).reshape(matrix.weight.shape)
        bias = None if ctx.call.bias is None else X.sum(dim=0).to(matrix.weight.dtype)
        return weight.to(matrix.weight.dtype), bias
    gradient = matrix.collect(X, Y, ctx.call)
    if gradient is None:
        return None, None
    own_bias = gradient.biases.pop(ctx.call.bias, None)
    for bias, grad in gradient.biases.items():  # of other layers with the same weight
        accumulate_grad(bias, grad)
    return gradient.weight, own_bias


def _is_backward_to_weight(ctx: Any) -> bool:
    """Whether this pass is to change the weight's `.grad`.

    It is not in `torch.autograd.grad`, which returns values (plain gradients) and must leave no
    trace, nor in a `backward(inputs=...)` to something else.
    """
    accumulator, _ = ctx.next_functions[1]
    try:
        return bool(torch._C._will_engine_execute_node(accumulator))
    except RuntimeError:  # torch has no answer for a tensor that was given to torch.autograd.grad
        return False


def _refuse_what_cannot_be(ctx: Any) -> None:
    """Raise RuntimeError for a backward pass that would be wrong, before tensors are unpacked."""
    if ctx.matrix.has_changed and _is_backward_to_weight(ctx):
        ctx.matrix.refuse_second_pass()
    # torch's once_differentiable stays silent where the incoming derivative is a constant.
    if torch.is_grad_enabled():
        raise RuntimeError(
            f"layer '{ctx.matrix.name}' is tapped by NGSGD and has no second derivatives: call "
            "without create_graph=True, or make the forward pass within optimizer.untapped()"
        )


class _TappedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: nn.Parameter | None, matrix: WeightMatrix
    ) -> Tensor:
        ctx.matrix, ctx.call = matrix, matrix.open_call(bias, ctx)
        ctx.save_for_backward(input, weight)
        output = linear(input, weight, bias)
        # What a Function returns must be no view, or it could not be changed in place.
        return torch.ops.aten._unsafe_view(output, output.shape) if output._is_view() else output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_what_cannot_be(ctx)
        input, weight = ctx.saved_tensors
        grad_input = None
        if ctx.needs_input_grad[0]:
            like = weight if weight.dtype == grad_output.dtype else weight.to(grad_output.dtype)
            grad_input = times(grad_output, like)
        if input.dim() != 2:
            grad_output = grad_output.reshape(-1, weight.shape[0])
            input = input.reshape(-1, weight.shape[1])
        return grad_input, *_collect(ctx, grad_output.contiguous(), input), None


def _tapped_convolution(module: Any, input: Tensor, matrix: WeightMatrix) -> Tensor:
    """A convolution is a linear layer on patches; each output position of each sample is a row."""
    if input.dim() == module.weight.dim() - 1:  # one sample without a batch dimension
        return _tapped_convolution(module, input.unsqueeze(0), matrix).squeeze(0)
    padding = module.padding
    if isinstance(padding, str) or module.padding_mode != "zeros":
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        input = F.pad(input, module._reversed_padding_repeated_twice, mode=mode)
        padding = (0,) * len(module.kernel_size)
    geometry = (module.stride, padding, module.dilation)
    return _TappedConvolution.apply(  # type: ignore[no-any-return, no-untyped-call]
        input, module.weight, module.bias, matrix, geometry
    )


class _TappedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight: Tensor,
        bias: nn.Parameter | None,
        matrix: WeightMatrix,
        geometry: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    ) -> Tensor:
        ctx.matrix, ctx.call, ctx.geometry = matrix, matrix.open_call(bias, ctx), geometry
        ctx.save_for_backward(input, weight)
        convolve = F.conv1d if weight.dim() == 3 else F.conv2d
        return convolve(input, weight, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_what_cannot_be(ctx)
        input, weight = ctx.saved_tensors
        stride, padding, dilation = ctx.geometry
        grad_input = None
        if ctx.needs_input_grad[0]:
            gradient = conv1d_input if weight.dim() == 3 else conv2d_input
            grad_input = gradient(  # type: ignore[no-untyped-call]
                input.shape, weight.to(grad_output.dtype), grad_output, stride, padding, dilation
            )
        X = grad_output.movedim(1, -1).reshape(-1, weight.shape[0])
        kernel_size = tuple(weight.shape[2:])
        if weight.dim() == 3:  # F.unfold knows images only: a signal is one of height 1
            input = input.unsqueeze(2)
            kernel_size, stride, padding, dilation = (
                (1, *kernel_size), (1, *stride), (0, *padding), (1, *dilation),
            )  # fmt: skip
        patches = F.unfold(input, kernel_size, dilation, padding, stride)
        Y = patches.transpose(1, 2).reshape(-1, patches.shape[1])
        return grad_input, *_collect(ctx, X, Y), None, None
