"""The limit on how much one minibatch may change one layer's parameters (appendix C.3)."""

from __future__ import annotations

import math

from natgrad.optim.rows import Rows


def change_factor(lr: float, max_change_per_sample: float | None, X: Rows, Y: Rows) -> float:
    """Return alpha_t <= 1, by which the change lr X_bar^T Y_bar is to be multiplied.

    alpha_t = min(1, N max_change_per_sample / sum_i lr ||x_i|| ||y_i||)

    where the sum stands in for the Frobenius norm of the change, which it cannot be less than
    (eqn:delta_t_approx). The sum itself is at most lr ||X||_F ||Y||_F (Cauchy-Schwarz): where that
    is within the limit, as it is for most minibatches, no row's norm is computed.
    """
    if max_change_per_sample is None:
        return 1.0
    limit = max_change_per_sample * X.X.shape[0]
    if lr * math.sqrt(X.squared_norm * Y.squared_norm) <= limit:
        return 1.0
    # In float64: the product of two squared norms at scale 1e12 overflows float32.
    squared = X.squared_row_norms().double() * Y.squared_row_norms().double()
    change = lr * float(squared.sqrt_().sum())
    return min(1.0, limit / change) if change > 0.0 else 1.0
