"""Matrix products of float32 on the CPU by oneDNN, which torch carries beside its BLAS.

torch gives `F.linear` and `@` to the BLAS. On the one processor that we could measure, an AMD EPYC,
oneDNN is ahead of it on nearly all products of a layer, by up to 40 % (LOG.md has the times). torch
reaches it by an operator that its own compiler uses. Where that operator is not there, on other
devices and in other precisions, and where `torch.backends.mkldnn.enabled` is False, products go to
the BLAS as ever.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

# With fewer elements of the result for each thread, the BLAS is the faster one: oneDNN seems to
# divide the result among the threads, and not the sums that lead to it; a call takes 15 us, not 3.
MIN_RESULT_ELEMENTS = 2**13
PLAIN = (Tensor, Parameter)  # of others, such as tensors in pieces on several machines, torch knows


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input weight^T + bias: input (..., K), weight (M, K), bias (M,); no derivatives.

    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
    tensor([[11., 17.]])
    """
    if _onednn is not None and _suits_onednn(input, weight, bias):
        return _onednn(input, weight, bias)
    return F.linear(input, weight, bias)


def times(A: Tensor, B: Tensor) -> Tensor:
    """Return A B: A (..., K), B (K, M); no derivatives."""
    return linear(A, B.t())


def _suits_onednn(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return (
        type(input) in PLAIN
        and type(weight) in PLAIN
        and input.dtype == weight.dtype == torch.float32
        and weight.shape[1] > 0
        and input.numel() // weight.shape[1] * weight.shape[0]
        >= MIN_RESULT_ELEMENTS * torch.get_num_threads()
        and input.device.type == weight.device.type == "cpu"
        and (bias is None or bias.dtype == torch.float32)
        # For other strides oneDNN falls back on a loop that takes a thousand times as long.
        and (weight.is_contiguous() or weight.t().is_contiguous())
        and bool(torch.backends.mkldnn.enabled)
    )


def _find_onednn() -> Callable[[Tensor, Tensor, Tensor | None], Tensor] | None:
    """Return oneDNN's product, if this torch has it and it gives what it should."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise.default
    except AttributeError:
        return None

    def product(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = operator(input, weight, bias, "none", [], "")
        return result

    example = torch.arange(6.0).view(2, 3)
    try:
        result = product(example, example, None)
        problem = "" if torch.equal(result, example @ example.t()) else "its result is another"
    except (RuntimeError, TypeError, ValueError) as error:
        problem = str(error)
    if problem:
        warnings.warn(
            f"torch {torch.__version__} has oneDNN's product, but not as NGSGD calls it; it uses "
            f"the BLAS instead, which may be slower: {problem}",
            stacklevel=2,
        )
        return None
    return product


_onednn = _find_onednn()
