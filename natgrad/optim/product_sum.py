"""A sum of matrix products, added to weights block by block, each while it is in the cache."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.optim.product import times

# Weights of up to so many elements are changed at once (4 MiB of float32: they are in the cache).
MAX_WHOLE_ELEMENTS = 2**20
# Larger ones by blocks of rows. For each thread, neither a block of left^T nor its product has more
# elements than this: they stay near the core until they are used. LOG.md: so the natural gradient
# is added to the weights in less time than torch takes for a gradient and its own addition.
BLOCK_ELEMENTS = 2**19
MIN_BLOCK_ROWS = 256


class Term(NamedTuple):
    """One term (left - V R)^T right of a product; left^T right, if there is no `less`.

    left: (K, D)
    right: (K, any)
    less: V (K, rank) and R (rank, D)
    """

    left: Tensor
    right: Tensor
    less: tuple[Tensor, Tensor] | None = None


class _Scratch(threading.local):
    """Memory that is used again and again: fresh memory would cost a page fault per 4 KiB."""

    def __init__(self) -> None:
        self.memory: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def matrix(self, like: Tensor, num_rows: int, num_columns: int) -> Tensor:
        """Return a (num_rows, num_columns) matrix of the type and on the device of `like`."""
        key, size = (like.dtype, like.device), num_rows * num_columns
        memory = self.memory.get(key)
        if memory is None or memory.numel() < size:
            memory = self.memory[key] = like.new_empty(size)
        return memory[:size].view(num_rows, num_columns)


_memory = _Scratch()


def add_products_(
    weight: Tensor,
    biases: Sequence[Tensor],
    terms: Sequence[Term],
    *,
    scale: float = 1.0,
    keep: bool = True,
) -> None:
    """Set [weight biases] to keep * [weight biases] + scale * the sum of the terms, in place.

    The last columns of `right` belong to the biases, one to each; usually there is one, or none.
    `keep=False` overwrites whatever the memory held.
    """
    add = _add_whole_ if weight.numel() <= MAX_WHOLE_ELEMENTS else _add_by_blocks_
    add(weight, biases, terms, scale, keep)


def _add_whole_(
    weight: Tensor, biases: Sequence[Tensor], terms: Sequence[Term], scale: float, keep: bool
) -> None:
    for number, (left, right, less) in enumerate(terms):
        if less is not None:
            V, R = less
            left = torch.addmm(left, V, R, alpha=-1.0, out=_memory.matrix(left, *left.shape))
        beta = float(keep or number > 0)
        # A column between others, or a matrix with one more column, makes products far slower.
        matrix, vectors = _split(right, weight.shape[1])
        weight.addmm_(left.t(), matrix, alpha=scale, beta=beta)
        for bias, vector in zip(biases, vectors, strict=True):
            bias.addmv_(left.t(), vector.contiguous(), alpha=scale, beta=beta)


def _add_by_blocks_(
    weight: Tensor, biases: Sequence[Tensor], terms: Sequence[Term], scale: float, keep: bool
) -> None:
    """Form each block of left^T, multiply it, and add the product while it is in the cache.

    The sum of all terms is one product, of [left_1^T left_2^T ...] and all right matrices one below
    the other.
    """
    matrices, vectors_of_terms = zip(
        *(_split(right, weight.shape[1]) for _, right, _ in terms), strict=True
    )
    matrix = torch.cat(matrices)
    vectors = [torch.cat(of_bias) for of_bias in zip(*vectors_of_terms, strict=True)]
    step = _block_rows(weight.shape[0], max(matrix.shape))
    for begin in range(0, weight.shape[0], step):
        end = min(begin + step, weight.shape[0])
        block = _block(terms, begin, end, num_columns=matrix.shape[0])
        product = times(block, matrix)
        # Products straight into weights that are not in the cache would fetch them many times.
        if keep:
            weight[begin:end].add_(product, alpha=scale)
        else:
            torch.mul(product, scale, out=weight[begin:end])
        for bias, vector in zip(biases, vectors, strict=True):
            bias[begin:end].addmv_(block, vector, alpha=scale, beta=float(keep))


def _block(terms: Sequence[Term], begin: int, end: int, num_columns: int) -> Tensor:
    """Return rows begin to end of [left_1^T left_2^T ...], in memory that the next call overwrites.

    Their columns are those of `left`, one K after the other: (end - begin, num_columns).
    """
    block = _memory.matrix(terms[0].left, end - begin, num_columns)
    column = 0
    for left, _, less in terms:
        part = block[:, column : column + left.shape[0]].copy_(left[:, begin:end].t())
        if less is not None:
            V, R = less
            part.addmm_(R[:, begin:end].t(), V.t(), alpha=-1.0)
        column += left.shape[0]
    return block


def _split(right: Tensor, num_inputs: int) -> tuple[Tensor, list[Tensor]]:
    """Return the columns that belong to the weights, and each of those that belong to biases."""
    if right.shape[1] == num_inputs:
        return right, []
    return right[:, :num_inputs], [right[:, i] for i in range(num_inputs, right.shape[1])]


def _block_rows(num_rows: int, elements_per_row: int) -> int:
    """Return how many rows of the weights to take at once, for blocks of about one size."""
    rows_in_cache = BLOCK_ELEMENTS * torch.get_num_threads() // elements_per_row
    num_blocks = -(-num_rows // max(MIN_BLOCK_ROWS, rows_in_cache))
    return -(-num_rows // num_blocks)
