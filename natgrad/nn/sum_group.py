"""Sum-group: from the posteriors of sub-classes to those of classes (appendix C.5)."""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from natgrad.nn.layers import at_least_float32, check_floating, refuse_second_derivative

__all__ = ["SumGroup"]

# The scratch memory of so many rows stays in cache instead of being fetched from the system anew
# for each minibatch, which cost more than the arithmetic (backward of 512 x 12000: 36 ms, now 13).
ROWS_PER_BLOCK = 64


class SumGroup(nn.Module):
    """Sums the posteriors of consecutive sub-classes into class posteriors, in logarithms.

    Class c owns the next ``group_sizes[c]`` inputs, and its output is their logsumexp. Inputs may
    be log posteriors, and then so are the outputs; but as softmax and sum-group commute, they may
    as well be the logits of a softmax:

        log_softmax(SumGroup(logits)) = SumGroup(log_softmax(logits)),

    and so a network needs no softmax before this layer. Cost: one exponential per input each way.

    >>> posteriors = torch.tensor([0.1, 0.2, 0.3, 0.4])
    >>> SumGroup([1, 2, 1])(posteriors.log()).exp()
    tensor([0.1000, 0.5000, 0.4000])
    """

    by_rank: Tensor
    class_position: Tensor
    class_of: Tensor

    def __init__(self, group_sizes: Sequence[int]) -> None:
        super().__init__()
        self.group_sizes = tuple(int(size) for size in group_sizes)
        if not self.group_sizes or min(self.group_sizes) < 1:
            raise ValueError(
                f"SumGroup got {len(self.group_sizes)} group sizes, the smallest of them "
                f"{min(self.group_sizes, default=None)}; every class needs at least one sub-class."
            )
        sizes = torch.tensor(self.group_sizes)
        starts = sizes.cumsum(0) - sizes
        # Largest groups first: then the classes that have an r-th member are a prefix, for every r.
        by_size = sizes.argsort(descending=True, stable=True)
        self.rank_widths = [int((sizes > rank).sum()) for rank in range(max(self.group_sizes))]
        members = [starts[by_size[:n]] + rank for rank, n in enumerate(self.rank_widths)]
        self.register_buffer("by_rank", torch.cat(members), persistent=False)
        self.register_buffer("class_position", by_size.argsort(), persistent=False)
        owners = torch.arange(len(sizes)).repeat_interleave(sizes)
        self.register_buffer("class_of", owners, persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """(..., sub-classes) -> (..., classes)."""
        if scores.shape[-1] != len(self.class_of):
            raise ValueError(
                f"SumGroup got scores of shape {tuple(scores.shape)}; the last dimension must be "
                f"{len(self.class_of)}, the sub-classes of its {len(self.group_sizes)} classes."
            )
        check_floating("SumGroup", scores)
        rows = at_least_float32(scores).reshape(-1, scores.shape[-1])
        classes = cast(Tensor, _GroupLogSumExp.apply(rows, self))  # type: ignore[no-untyped-call]
        return classes.reshape(*scores.shape[:-1], len(self.group_sizes)).to(scores.dtype)

    def extra_repr(self) -> str:
        """What print shows between the brackets."""
        return f"{len(self.class_of)} -> {len(self.group_sizes)}"


class _GroupLogSumExp(torch.autograd.Function):
    """With y_c = log sum_{i in c} exp x_i, dy_c/dx_i = exp(x_i - y_c)."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, groups: SumGroup) -> Tensor:
        y = rows.new_empty(len(rows), len(groups.group_sizes))
        blocks = (torch.split(tensor, ROWS_PER_BLOCK) for tensor in (rows, y))
        for row_block, y_block in zip(*blocks, strict=True):
            by_rank = row_block.index_select(-1, groups.by_rank)
            first, *others = torch.split(by_rank, groups.rank_widths, dim=-1)
            for rank in others:
                so_far = first[:, : rank.shape[-1]]
                torch.logaddexp(so_far, rank, out=so_far)
            torch.index_select(first, -1, groups.class_position, out=y_block)
        ctx.save_for_backward(rows, y)
        ctx.class_of = groups.class_of
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        refuse_second_derivative()
        rows, y = ctx.saved_tensors
        # A class whose sub-classes are all impossible gets a gradient of 0, not of exp(-inf + inf).
        y = y.clamp_min(torch.finfo(y.dtype).min)
        out = torch.empty_like(rows)
        blocks = (torch.split(tensor, ROWS_PER_BLOCK) for tensor in (rows, y, grad, out))
        for row_block, y_block, grad_block, out_block in zip(*blocks, strict=True):
            torch.sub(row_block, y_block.index_select(-1, ctx.class_of), out=out_block)
            out_block.exp_().mul_(grad_block.index_select(-1, ctx.class_of))
        return out, None
