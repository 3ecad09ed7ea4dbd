"""What fMLLR and MLLT share: a linear transform of features that makes Gaussians explain them best.

With W = [A b] of rows w_i, and beta the number of frames, both maximise

    Q(W) = beta log |det A| + sum_i (k_i . w_i - 1/2 w_i G_i w_i^T)

For MLLT there is no b, and k_i = 0. Given the other rows, the best row i is known in closed form:
log |det A| = log |w_i . p| + constant, with p the column i of A^-1 (and 0 for b), so that

    w_i = (alpha p + k_i) G_i^-1,    alpha^2 p G_i^-1 p + alpha p G_i^-1 k_i = beta

of whose two roots that is taken that gives the larger Q. Rows are updated in turn, so Q never
falls (Gales, "Maximum likelihood linear transformations for HMM-based speech recognition", 1998).

G_i is a sum over frames of x x^T weighted by how sharp the Gaussians are in dimension i. For all i
at once, this is a matrix product of the weights (T, D) with the products of elements of x.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "add_weighted_products",
    "gain_of_rows",
    "leave_out_weightless",
    "maximize_by_rows",
    "packed_size",
    "sum_over_gaussians",
    "unpack",
]

Doubles = NDArray[np.float64]
Ints = NDArray[np.int32]

CHUNK_FRAMES = 256  # their products of 41 x 41 elements stay in a cache
RELATIVE_EIGENVALUE_FLOOR = 1e-12  # of G_i, where features are constant or depend on one another


def leave_out_weightless(
    features: NDArray[np.float32], pdfs: Ints, weights: Doubles | None
) -> tuple[NDArray[np.float32], Ints, Doubles | None]:
    """Return features, pdfs and weights of the frames that count: others would only cost time."""
    if weights is None or np.all(weights):
        return features, pdfs, weights
    counts = np.flatnonzero(weights)
    return features[counts], pdfs[counts], weights[counts]


def packed_size(dim: int) -> int:
    """Return the number of elements of a symmetric matrix that differ.

    >>> packed_size(3)
    6
    """
    return dim * (dim + 1) // 2


@njit(cache=True)
def _products(vectors: Doubles, products: Doubles) -> None:
    for t in range(len(vectors)):
        place = 0
        for i in range(vectors.shape[1]):
            x_i = vectors[t, i]
            for j in range(i + 1):
                products[t, place + j] = x_i * vectors[t, j]
            place += i + 1


def add_weighted_products(packed: Doubles, weights: Doubles, vectors: Doubles) -> None:
    """Add sum_t weights[t, i] x_t x_t^T to packed[i], for all i, where x_t is vectors[t].

    Cost: D M^2 multiplications a frame for (T, D) weights and (T, M) vectors.

    >>> packed = np.zeros((1, packed_size(2)))
    >>> add_weighted_products(packed, np.array([[10.0], [1.0]]), np.array([[1.0, 2.0], [0.0, 3.0]]))
    >>> packed, unpack(packed).tolist()
    (array([[10., 20., 49.]]), [[[10.0, 20.0], [20.0, 49.0]]])
    """
    products = np.empty((CHUNK_FRAMES, packed.shape[1]))
    for begin in range(0, len(vectors), CHUNK_FRAMES):
        chunk = np.ascontiguousarray(vectors[begin : begin + CHUNK_FRAMES], dtype=np.float64)
        _products(chunk, products)
        packed += weights[begin : begin + CHUNK_FRAMES].T @ products[: len(chunk)]


def unpack(packed: Doubles) -> Doubles:
    """Return symmetric matrices (N, M, M) from what differs in them (N, M (M + 1) / 2)."""
    dim = int((2 * packed.shape[1]) ** 0.5)
    rows, columns = np.tril_indices(dim)
    matrices = np.empty((len(packed), dim, dim))
    matrices[:, rows, columns] = packed
    matrices[:, columns, rows] = packed
    return matrices


@njit(cache=True)
def sum_over_gaussians(
    frame: Ints,  # (N,)
    gaussian: Ints,  # (N,)
    posterior: Doubles,  # (N,)
    table: Doubles,  # (G, D)
    num_frames: int,
) -> Doubles:
    """Return (T, D): each frame's sum of rows of a table, weighted by its Gaussians' posteriors."""
    result = np.zeros((num_frames, table.shape[1]))
    for place in range(len(frame)):
        t, g, weight = frame[place], gaussian[place], posterior[place]
        for d in range(table.shape[1]):
            result[t, d] += weight * table[g, d]
    return result


def gain_of_rows(
    beta: float, linear: Doubles, quadratic: Doubles, before: Doubles, after: Doubles
) -> float:
    """Return Q(after) - Q(before)."""
    return _objective(beta, linear, quadratic, after) - _objective(beta, linear, quadratic, before)


def maximize_by_rows(
    beta: float,
    linear: Doubles,
    quadratic: Doubles,
    start: Doubles,
    max_sweeps: int = 40,
    least_gain: float = 1e-8,
) -> Doubles:
    """Return W (D, M) of largest Q, by updating its rows in turn; see the head of this file.

    Args:
        beta: the number of frames.
        linear: (D, M) the k_i.
        quadratic: (D, M, M) the G_i. M is D, or D + 1 with the offset's column last.
        start: (D, M) where to begin. A must be invertible.
        max_sweeps: how many times at most all rows are updated.
        least_gain: it ends earlier when all rows together gain less than this per frame.
    """
    inverses = _inverses(quadratic)
    rows = start.astype(np.float64)
    before = _objective(beta, linear, quadratic, rows)
    for _ in range(max_sweeps):
        _sweep(beta, linear, inverses, rows)
        after = _objective(beta, linear, quadratic, rows)
        if after - before < least_gain * beta:
            break
        before = after
    return rows


def _sweep(beta: float, linear: Doubles, inverses: Doubles, rows: Doubles) -> None:
    dim = len(rows)
    inverse = np.linalg.inv(rows[:, :dim])
    for i in range(dim):
        p = inverse[:, i].copy()
        g_p = inverses[i][:, :dim] @ p
        g_k = inverses[i] @ linear[i]
        p_g_p, p_g_k = float(p @ g_p[:dim]), float(p @ g_k[:dim])
        alpha = _best_root(beta, p_g_p, p_g_k)
        new = alpha * g_p + g_k
        # The inverse of A after a change of one row (Sherman and Morrison); p . a_i was 1.
        change = (new - rows[i])[:dim] @ inverse
        inverse -= np.outer(p, change / (1.0 + change[i]))
        rows[i] = new


def _best_root(beta: float, p_g_p: float, p_g_k: float) -> float:
    root = np.sqrt(p_g_k**2 + 4.0 * beta * p_g_p)
    roots = np.array([-p_g_k + root, -p_g_k - root]) / (2.0 * p_g_p)
    values = beta * np.log(np.abs(roots * p_g_p + p_g_k)) - 0.5 * roots**2 * p_g_p
    return float(roots[np.argmax(values)])


def _objective(beta: float, linear: Doubles, quadratic: Doubles, rows: Doubles) -> float:
    log_det = float(np.linalg.slogdet(rows[:, : len(rows)])[1])
    squares = np.einsum("ij,ijk,ik->", rows, quadratic, rows, optimize=True)
    return beta * log_det + float((linear * rows).sum()) - 0.5 * float(squares)


def _inverses(matrices: Doubles) -> Doubles:
    """Inverses of symmetric matrices, scaled to a unit diagonal first: units must not matter."""
    scales = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 1e-300))
    products = scales[:, :, None] * scales[:, None, :]
    values, vectors = np.linalg.eigh(matrices / products)
    floored = np.maximum(values, RELATIVE_EIGENVALUE_FLOOR * values[:, -1:])
    inverses: Doubles = (vectors / floored[:, None, :]) @ vectors.transpose(0, 2, 1) / products
    return inverses
