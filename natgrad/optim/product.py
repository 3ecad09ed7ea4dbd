"""Matrix products, by whatever is fastest for them: native kernels, oneDNN or torch's BLAS.

The kernels are natgrad's own (`natgrad.optim.native`). Where they are not in use, products of
float32 on the CPU go to oneDNN, which torch carries beside its BLAS: torch gives `F.linear` and `@`
to the BLAS, which is MKL. oneDNN is ahead of it on nearly all products of a layer: by up to 40 % on
one AMD EPYC, and by a factor of two on a later one, where MKL does no more than 256-bit units could
(LOG.md has the times). torch reaches it by an operator that its own compiler uses. Where that
operator is not there, on other devices and in other precisions, and where
`torch.backends.mkldnn.enabled` is False, products go to the BLAS as ever.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from natgrad.optim.native import kernels_in_use
from natgrad.optim.native.kernels import PLAIN

# With fewer multiplications, the BLAS is the faster one: a call takes 12 us, not 2.
MIN_MULTIPLICATIONS_PER_THREAD = 2**20
# oneDNN divides a result of few rows and fewer columns badly among threads; its transpose, well.
MAX_TRANSPOSED_ROWS = 256


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input weight^T + bias: input (..., K), weight (M, K), bias (M,); no derivatives.

    >>> linear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
    tensor([[11., 17.]])
    """
    kernels = kernels_in_use()
    if kernels is not None:
        rows = input.flatten(0, -2) if input.dim() > 2 else input
        if kernels.suit(rows, weight.t()) and (
            bias is None or kernels.suit_vector(bias, weight.shape[0])
        ):
            output = kernels.multiply(rows, weight.t(), added=bias)
            return output.view(*input.shape[:-1], -1)
    if input.shape[-1:] != weight.shape[1:]:
        return F.linear(input, weight, bias)  # which says so; oneDNN has no words for it
    if bias is None:
        return linear_in_any_order(input, weight).contiguous()
    is_whole = bias.shape == weight.shape[:1]  # else torch would repeat it, or refuse it
    if is_whole and _onednn is not None and _suits_onednn(input, weight, weight.shape[0], bias):
        return _onednn.linear(input, weight, bias)
    return F.linear(input, weight, bias)


def linear_in_any_order(input: Tensor, weight: Tensor) -> Tensor:
    """Return input weight^T, in memory row by row or column by column, whichever is faster."""
    kernels = kernels_in_use()
    if kernels is not None and kernels.suit(input, weight.t()):
        return kernels.multiply(input, weight.t())
    if _onednn is not None and _suits_onednn(input, weight, weight.shape[0], None):
        if _is_better_transposed(input, weight):
            return _onednn.linear(weight, input, None).t()
        return _onednn.linear(input, weight, None)
    return F.linear(input, weight)


def times(A: Tensor, B: Tensor) -> Tensor:
    """Return A B: A (..., K), B (K, M); no derivatives."""
    return linear(A, B.t())


def add_times(C: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """Return C + A B: C (N, M), A (N, K), B (K, M); no derivatives.

    >>> add_times(torch.tensor([[1.0]]), torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0], [4.0]]))
    tensor([[12.]])
    """
    kernels = kernels_in_use()
    if C.shape != (A.shape[0], B.shape[1]):
        return torch.addmm(C, A, B)  # which repeats it, or refuses it; the others just read on
    if kernels is not None and kernels.suit(A, B) and kernels.suit_added(C):
        return kernels.multiply(A, B, added=C)
    if _onednn is not None and _suits_onednn(A, B, B.shape[1], C):
        return _onednn.add_linear(C, A, B.t())
    return torch.addmm(C, A, B)


def minus_transposed(A: Tensor, out: Tensor | None = None) -> Tensor:
    """Return -A^T, (K, N) of A (N, K), in memory of its own, row by row.

    torch copies a transposed matrix with one thread and no vectors, but negates it with all of
    both: 1.4 times as fast with one thread, 2.5 times with two.

    >>> minus_transposed(torch.tensor([[1.0, 2.0]]))
    tensor([[-1.],
            [-2.]])
    """
    return torch.neg(A.t(), out=A.new_empty(A.shape[1], A.shape[0]) if out is None else out)


def goes_to_onednn(A: Tensor, B: Tensor) -> bool:
    """Whether oneDNN forms A B, or A^T B, whichever of them there is."""
    return _onednn is not None and _suits_onednn(A, B, B.shape[1], None)


def _suits_onednn(left: Tensor, right: Tensor, num_results: int, added: Tensor | None) -> bool:
    """Whether a product is one for oneDNN; each element of `left` goes into so many results.

    `right`, and `left` too, may be the transpose of what is multiplied.
    """
    return (
        type(left) in PLAIN
        and type(right) in PLAIN
        and left.dtype == right.dtype == torch.float32
        and left.numel() * num_results >= MIN_MULTIPLICATIONS_PER_THREAD * torch.get_num_threads()
        and left.device.type == right.device.type == "cpu"
        and (added is None or added.dtype == torch.float32)
        # For other strides oneDNN falls back on a loop that takes a thousand times as long.
        and (right.is_contiguous() or right.stride() == (1, right.shape[0]))
        and bool(torch.backends.mkldnn.enabled)
    )


def _is_better_transposed(input: Tensor, weight: Tensor) -> bool:
    return (
        input.dim() == 2
        and weight.shape[0] < input.shape[0] <= MAX_TRANSPOSED_ROWS
        and torch.get_num_threads() > 1
        and input.is_contiguous()
        and weight.is_contiguous()
    )


@dataclass(frozen=True)
class OneDNN:
    """oneDNN's product, as torch's operators give it, with and without something added to it."""

    product: Any
    sum: Any

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return input weight^T + bias."""
        if bias is not None:
            bias = bias.contiguous()  # else what lies between its elements would be taken for them
        result: Tensor = self.product(input, weight, bias, "none", [], "")
        return result

    def add_linear(self, C: Tensor, input: Tensor, weight: Tensor) -> Tensor:
        """Return C + input weight^T."""
        result: Tensor = self.sum(input, C, weight, None, "add")
        return result


def _find_onednn() -> OneDNN | None:
    """Return oneDNN's product, if this torch has it and it gives what it should."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        operator = torch.ops.mkldnn._linear_pointwise
        found = OneDNN(operator.default, operator.binary)
    except AttributeError:
        return None
    example = torch.arange(6.0).view(2, 3)
    square = example @ example.t()
    try:
        result = found.linear(example, example, None)
        added = found.add_linear(result, example, example)
        is_right = torch.equal(result, square) and torch.equal(added, 2.0 * square)
        problem = "" if is_right else "its result is another"
    except (RuntimeError, TypeError, ValueError) as error:
        problem = str(error)
    if problem:
        warnings.warn(
            f"torch {torch.__version__} has oneDNN's product, but not as NGSGD calls it; it uses "
            f"the BLAS instead, which may be slower: {problem}",
            stacklevel=2,
        )
        return None
    return found


_onednn = _find_onednn()
