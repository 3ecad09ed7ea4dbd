"""How well the factored Fisher matrix stands for the whole one (section 5.1).

    F = E[g g^T],   g = (x_1 (x) y_1, ..., x_I (x) y_I)           the score of one sample
    G = diag(A_1 (x) B_1, ..., A_I (x) B_I)                       eqn:fisher:factorize

with x_i the derivative at the output of weight matrix i and y_i its input, and one diagonal block
of G per weight matrix, vectorised by rows. The authors ask for the eigenvalues of F in coordinates
in which G is the unit matrix: with C C^T = G^-1, of C^T F C. They are those of G^-1 F too, so
which C is taken does not matter; we take the symmetric root, block by block.

Legend: S is the uncentered covariance of the rows x, or of the rows y; A and B are what stands for
it in G: S itself, an online factor, or either of them smoothed with the identity.

Everything here is dense and in the precision of the network: meant for float64, and for networks of
a few thousand parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.nn.functional as nn_functional
from torch import Tensor, nn

from natgrad.optim.factor import FisherFactor

__all__ = [
    "Fisher",
    "Pair",
    "change_variables",
    "change_variables_by_blocks",
    "dense",
    "inverse_root",
    "learned_factors",
    "measure_fisher",
    "norm_keeping",
    "smoothed",
]

RELATIVE_ZERO = 1e-10  # eigenvalues of a covariance below this part of the largest are round-off


@dataclass(frozen=True)
class Pair:
    """Something for both sides of a weight matrix: (D_out, D_out) and (D_in, D_in)."""

    out: Tensor
    into: Tensor


@dataclass(frozen=True)
class Fisher:
    """The Fisher matrix (n, n) of several weight matrices, and the covariances of their rows."""

    matrix: Tensor
    covariances: tuple[Pair, ...]

    @property
    def bounds(self) -> list[int]:
        """Where the parameters of each weight matrix begin, and where the last ones end."""
        sizes = [len(pair.out) * len(pair.into) for pair in self.covariances]
        return [0, *accumulate(sizes)]

    def block(self, index: int) -> Fisher:
        """Return the diagonal block of one weight matrix."""
        begin, end = list(pairwise(self.bounds))[index]
        return Fisher(self.matrix[begin:end, begin:end], self.covariances[index : index + 1])


# -- the whole Fisher matrix ---------------------------------------------------------------------


def measure_fisher(
    network: nn.Module,
    layers: Sequence[nn.Module],
    inputs: Tensor,
    labels: Tensor | None = None,
    chunk: int = 256,
) -> Fisher:
    """Return the Fisher matrix of a classifier's layers, as the mean over inputs (N, ...).

    Without labels it is the Fisher matrix proper: the expectation is over the labels, too, by the
    network's own posteriors, and is taken exactly. With labels it is the "empirical" one, of the
    gradients that training sees.

    As a sample's score is x (x) y in every layer, block (i, j) is a product of two matrices with a
    row per sample, (D_out_i D_out_j) and (D_in_i D_in_j) wide: 2 N n^2 operations for all of it,
    whatever the number of classes.

    Args:
        network: (N, ...) -> (N, classes), unnormalised log-posteriors; each row by itself.
        layers: those of its modules whose parameters count: each a product with a weight matrix,
            plus a bias or not, called once per forward pass.
        inputs: what the mean is over.
        labels: (N,), or None.
        chunk: so many samples at a time.
    """
    total: list[list[Tensor]] = []
    sums: list[Pair] = []
    for begin in range(0, len(inputs), chunk):
        few = slice(begin, begin + chunk)
        rows = score_rows(network, layers, inputs[few], None if labels is None else labels[few])
        blocks = [[_block(one, other) for other in rows[: i + 1]] for i, one in enumerate(rows)]
        pairs = [Pair(torch.einsum("nca,ncb->ab", X, X), Y.t() @ Y) for X, Y in rows]
        if not total:
            total, sums = blocks, pairs
            continue
        for row, new_row in zip(total, blocks, strict=True):
            for block, new in zip(row, new_row, strict=True):
                block += new
        for pair, new_pair in zip(sums, pairs, strict=True):
            pair.out.add_(new_pair.out)
            pair.into.add_(new_pair.into)
    num = len(inputs)
    return Fisher(
        _assembled(total) / num, tuple(Pair(pair.out / num, pair.into / num) for pair in sums)
    )


def score_rows(
    network: nn.Module, layers: Sequence[nn.Module], inputs: Tensor, labels: Tensor | None
) -> list[tuple[Tensor, Tensor]]:
    """Return X (N, C, D_out) and Y (N, D_in) of each layer: the score of sample n is X[n] (x) Y[n].

    C is 1 with labels. Without, it is the number of classes, and row c is weighted by the root of
    its probability: sum_c p_c g_c g_c^T, with g_c the score of class c. Y has a column of ones
    if the layer has a bias.
    """
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(layer: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor:
        if layer in seen:
            raise ValueError(
                f"{layer} is called twice in a forward pass: its score is then a sum of products, "
                "which this does not know"
            )
        seen[layer] = (given[0].detach().clone(), output)
        return output.clone()  # for the network, which may change it in place

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        log_posteriors = network(inputs).log_softmax(dim=-1)
    finally:
        for hook in hooks:
            hook.remove()
    posteriors = log_posteriors.detach().exp()
    # Of sum_n log p(c_n | x_n): each row is its own sample's, so one pass serves all.
    if labels is not None:
        weights = [nn_functional.one_hot(labels, posteriors.shape[1]).to(posteriors)]
    else:
        identity = torch.eye(posteriors.shape[1]).to(posteriors)
        weights = [posteriors[:, c, None].sqrt() * identity[c] for c in range(len(identity))]
    outputs = [seen[layer][1] for layer in layers]
    X = [
        torch.autograd.grad(log_posteriors, outputs, weight, retain_graph=True)
        for weight in weights
    ]
    rows = []
    for i, layer in enumerate(layers):
        Y = seen[layer][0]
        if getattr(layer, "bias", None) is not None:
            Y = nn_functional.pad(Y, (0, 1), value=1.0)
        rows.append((torch.stack([x[i] for x in X], dim=1), Y))
    return rows


def _block(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> Tensor:
    """Return sum_n (sum_c x x'^T) (x) y y'^T, (D_out D_in, D_out' D_in')."""
    (X, Y), (X_other, Y_other) = one, other
    outs = torch.einsum("nca,ncb->nab", X, X_other).flatten(1)
    ins = torch.einsum("np,nq->npq", Y, Y_other).flatten(1)
    block = (outs.t() @ ins).view(X.shape[2], X_other.shape[2], Y.shape[1], Y_other.shape[1])
    return block.permute(0, 2, 1, 3).reshape(X.shape[2] * Y.shape[1], -1)


def _assembled(lower: list[list[Tensor]]) -> Tensor:
    """Return the symmetric matrix of which these are the blocks up to the diagonal."""
    num = len(lower)
    rows = [[lower[i][j] if j <= i else lower[j][i].t() for j in range(num)] for i in range(num)]
    return torch.cat([torch.cat(row, dim=1) for row in rows])


# -- what stands for it --------------------------------------------------------------------------


def learned_factors(optimizer: torch.optim.Optimizer, layer: nn.Module) -> Pair:
    """Return the online factors that an `NGSGD` has learned of a layer, as dense matrices."""
    optimizer.state_dict()  # which brings optimizer.state up to date
    state = optimizer.state.get(layer.weight, {})  # type: ignore[arg-type]
    sides = [state.get(side, {}) for side in ("fisher_out", "fisher_in")]
    if any("R" not in side for side in sides):
        raise ValueError(
            f"the optimizer has learned no Fisher factors of {layer}: it must have made steps with "
            "it, with method='online', ranks above 0 and more than one input and output"
        )
    out, into = (dense(FisherFactor(side["R"], side["d"], side["rho"])) for side in sides)
    return Pair(out, into)


def dense(factor: FisherFactor) -> Tensor:
    """Return F = R^T diag(d) R + rho I (eqn:low:rank), in float64."""
    R, d = factor.R.double(), factor.d.double()
    return (R.t() * d) @ R + factor.rho * torch.eye(R.shape[1], dtype=R.dtype, device=R.device)


def smoothed(S: Tensor, alpha: float) -> Tensor:
    """Return S + (alpha/D) tr(S) I (section "Smoothing the Fisher matrix factors")."""
    return S + alpha / len(S) * S.trace() * torch.eye(len(S), dtype=S.dtype, device=S.device)


def norm_keeping(G: Tensor, S: Tensor) -> Tensor:
    """Return G / gamma: the rows, of covariance S, times its inverse have the norm that they had.

    gamma^2 = tr(S) / tr(G^-1 S G^-1), as eqn:gammat:old has it for the rows of one minibatch. It is
    what sets the scales of the layers against one another when NGSGD makes a step.
    """
    inverse = torch.linalg.inv(G)
    shortened = float((inverse @ S @ inverse).trace())
    return G * math.sqrt(shortened / float(S.trace()))


def inverse_root(S: Tensor) -> Tensor:
    """Return the symmetric S^-1/2 on the directions that S reaches, and zero on the others.

    Where a covariance is zero (the derivatives at a softmax sum to zero), so is the Fisher matrix.
    """
    eigenvalues, V = torch.linalg.eigh(S)
    reached = eigenvalues > RELATIVE_ZERO * eigenvalues[-1]
    roots = torch.where(reached, eigenvalues.clamp_min(1e-300).rsqrt(), 0.0)
    root: Tensor = (V * roots) @ V.t()
    return root


def change_variables(fisher: Fisher, factors: Sequence[Pair]) -> Tensor:
    """Return G^-1/2 F G^-1/2 (n, n), with G = diag(A_i (x) B_i) of these factors (A, B).

    >>> F = Fisher(torch.diag(torch.tensor([8.0, 2.0])), (Pair(torch.eye(1), torch.eye(2)),))
    >>> factors = [Pair(2 * torch.eye(1), torch.diag(torch.tensor([4.0, 1.0])))]
    >>> torch.allclose(change_variables(F, factors), torch.eye(2))
    True
    """
    roots = [Pair(inverse_root(pair.out), inverse_root(pair.into)) for pair in factors]
    # F is symmetric, so what is done to its columns twice, with a transposition between, is all.
    half = _times_roots(fisher.matrix, roots, fisher.bounds)
    changed = _times_roots(half.t(), roots, fisher.bounds)
    return (changed + changed.t()) / 2


def change_variables_by_blocks(fisher: Fisher) -> Tensor:
    """Return D^-1/2 F D^-1/2 (n, n), with D the diagonal blocks of F themselves, one per matrix.

    What is left of its spread is between the weight matrices: no factoring of blocks can undo it.
    """
    blocks = [fisher.block(index).matrix for index in range(len(fisher.covariances))]
    root = torch.block_diag(*(inverse_root(block) for block in blocks))
    changed: Tensor = root @ fisher.matrix @ root
    return (changed + changed.t()) / 2


def _times_roots(matrix: Tensor, roots: Sequence[Pair], bounds: Sequence[int]) -> Tensor:
    columns = []
    for pair, (begin, end) in zip(roots, pairwise(bounds), strict=True):
        cube = matrix[:, begin:end].reshape(-1, len(pair.out), len(pair.into))
        columns.append(torch.einsum("nap,ab,pq->nbq", cube, pair.out, pair.into).flatten(1))
    return torch.cat(columns, dim=1)
