"""A sum of matrix products, added to weights block by block, each while it is in the cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.optim.native import Kernels, kernels_in_use
from natgrad.optim.native.kernels import is_plain
from natgrad.optim.product import add_times, goes_to_onednn, minus_transposed, times

# Small weights are changed at once by the BLAS (4 MiB of float32: they are in the cache).
MAX_WHOLE_ELEMENTS = 2**20
# Others by blocks of rows. For each thread, neither a block of left^T nor its product has more
# elements than this: they stay near the core until they are used. LOG.md: so the natural gradient
# is added to the weights in less time than torch takes for a gradient and its own addition.
BLOCK_ELEMENTS = 2**19
MIN_BLOCK_ROWS = 256


class Term(NamedTuple):
    """One term (left - H E^T)^T right of a product; left^T right, if nothing is `taken` from left.

    left: (K, D)
    right: (K, any)
    taken: H (K, rank) and E (D, rank)
    """

    left: Tensor
    right: Tensor
    taken: tuple[Tensor, Tensor] | None = None

    def columns(self, chosen: slice) -> Term:
        """Return what makes only these rows of the product."""
        if self.taken is None:
            return Term(self.left[:, chosen], self.right)
        H, E = self.taken
        return Term(self.left[:, chosen], self.right, (H, E[chosen]))

    def minus_left_transposed(self, out: Tensor) -> Tensor:
        """Return -(left - H E^T)^T, in `out`, or else in memory of its own."""
        minus = minus_transposed(self.left, out=out)
        if self.taken is None:
            return minus
        H, E = self.taken
        return add_times(minus, E, H.t())


class _Scratch(threading.local):
    """Memory that is used again and again: fresh memory would cost a page fault per 4 KiB."""

    def __init__(self) -> None:
        self.memory: dict[tuple[torch.dtype, torch.device], Tensor] = {}
        self.latest = torch.empty(0, 0)

    def matrix(self, like: Tensor, num_rows: int, num_columns: int) -> Tensor:
        """Return a (num_rows, num_columns) matrix of the type and on the device of `like`."""
        latest = self.latest
        if (
            latest.shape == (num_rows, num_columns)
            and latest.dtype == like.dtype
            and latest.device == like.device
        ):
            return latest
        if torch.is_inference_mode_enabled():  # later, memory from there could not be written to
            with torch.inference_mode(False):
                return self.matrix(like, num_rows, num_columns)
        key, size = (like.dtype, like.device), num_rows * num_columns
        memory = self.memory.get(key)
        if memory is None or memory.numel() < size:
            memory = self.memory[key] = like.new_empty(size)
        self.latest = memory[:size].view(num_rows, num_columns)
        return self.latest


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
    kernels = kernels_in_use()
    if kernels is not None and _are_for(kernels, weight, biases, terms):
        _add_natively_(kernels, weight, biases, terms, scale, keep)
        return
    is_small = weight.numel() <= MAX_WHOLE_ELEMENTS
    is_left_to_blas = is_small and not goes_to_onednn(terms[0].left, terms[0].right)
    add = _add_whole_ if is_left_to_blas else _add_by_blocks_
    add(weight, biases, terms, scale, keep)


def _are_for(
    kernels: Kernels, weight: Tensor, biases: Sequence[Tensor], terms: Sequence[Term]
) -> bool:
    left, right, _ = terms[0]
    return (
        kernels.suit(left.t(), right)
        and is_plain(weight)
        and weight.numel() > 0
        and weight.stride(1) == 1
        # To what is taken, `left` is added row by row; derivatives of one image lie in columns.
        and all(term.taken is None or term.left.stride(1) == 1 for term in terms)
        and len(biases) <= 1
        and all(kernels.suit_vector(bias, weight.shape[0]) for bias in biases)
    )


def _add_natively_(
    kernels: Kernels,
    weight: Tensor,
    biases: Sequence[Tensor],
    terms: Sequence[Term],
    scale: float,
    keep: bool,
) -> None:
    """Let the kernels add each product to the weights, which they do as fast as they write it.

    Where there is one term of which nothing is taken, at once; else by blocks, so that the weights
    or the matrix from which something has been taken stay in the cache.
    """
    num_rows = weight.shape[0]
    step = num_rows
    if len(terms) > 1 or terms[0].taken is not None:
        step = _block_rows(num_rows, max(terms[0].left.shape[0], weight.shape[1]))
    for out, vectors, parts in _blocks(weight, biases, terms, step):
        for number, (left, right, taken) in enumerate(parts):
            if taken is not None:
                H, E = taken
                memory = _memory.matrix(left, *left.shape)
                left = kernels.multiply(H, E.t(), memory, added=left, alpha=-1.0)
            added = out if keep or number > 0 else None
            bias = vectors[0] if vectors else None
            kernels.multiply(left.t(), right, out, added=added, alpha=scale, last=bias)


def _add_whole_(
    weight: Tensor, biases: Sequence[Tensor], terms: Sequence[Term], scale: float, keep: bool
) -> None:
    """Let the BLAS add each product to the weights."""
    for number, (left, right, taken) in enumerate(terms):
        if taken is not None:
            H, E = taken
            memory = _memory.matrix(left, *left.shape)
            left = torch.addmm(left, H, E.t(), alpha=-1.0, out=memory)
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
    the other; one more column, for a bias, costs oneDNN nearly nothing.
    """
    right = terms[0].right if len(terms) == 1 else torch.cat([term.right for term in terms])
    step = _block_rows(weight.shape[0], max(right.shape))
    for block in _blocks(weight, biases, terms, step):
        _add_block_(*block, right, scale, keep)


def _add_block_(
    weight: Tensor,
    biases: Sequence[Tensor],
    terms: Sequence[Term],
    right: Tensor,
    scale: float,
    keep: bool,
) -> None:
    # Products straight into weights that are not in the cache would fetch them many times.
    minus_product = times(_minus_transposed_lefts(terms, right.shape[0]), right)
    matrix, vectors = _split(minus_product, weight.shape[1])
    for parameter, minus_change in zip((weight, *biases), (matrix, *vectors), strict=True):
        if keep:
            parameter.add_(minus_change, alpha=-scale)
        else:
            torch.mul(minus_change, -scale, out=parameter)


def _minus_transposed_lefts(terms: Sequence[Term], num_columns: int) -> Tensor:
    """Return -[left_1^T left_2^T ...], (D, num_columns), mostly in memory that is used again."""
    memory = _memory.matrix(terms[0].left, terms[0].left.shape[1], num_columns)
    if len(terms) == 1:
        return terms[0].minus_left_transposed(out=memory)
    column = 0
    for term in terms:
        columns = memory[:, column : column + term.left.shape[0]]
        minus = term.minus_left_transposed(out=columns)
        if minus is not columns:
            columns.copy_(minus)
        column += term.left.shape[0]
    return memory


def _split(right: Tensor, num_inputs: int) -> tuple[Tensor, list[Tensor]]:
    """Return the columns that belong to the weights, and each of those that belong to biases."""
    if right.shape[1] == num_inputs:
        return right, []
    others = range(num_inputs, right.shape[1])
    return right.narrow(1, 0, num_inputs), [right.select(1, index) for index in others]


def _blocks(
    weight: Tensor, biases: Sequence[Tensor], terms: Sequence[Term], step: int
) -> Iterator[tuple[Tensor, Sequence[Tensor], Sequence[Term]]]:
    """Yield so many rows at a time of the weights and biases, and what makes those of the terms."""
    num_rows = weight.shape[0]
    if step >= num_rows:  # to take parts of all that is given would cost time, too
        yield weight, biases, terms
        return
    for begin in range(0, num_rows, step):
        block = slice(begin, begin + step)
        yield weight[block], [b[block] for b in biases], [term.columns(block) for term in terms]


def _block_rows(num_rows: int, elements_per_row: int) -> int:
    """Return how many rows of the weights to take at once, for blocks of about one size."""
    rows_in_cache = BLOCK_ELEMENTS * torch.get_num_threads() // elements_per_row
    num_blocks = -(-num_rows // max(MIN_BLOCK_ROWS, rows_in_cache))
    return -(-num_rows // num_blocks)
