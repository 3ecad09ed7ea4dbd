"""Minibatches of all kinds that a preconditioner may meet."""

from __future__ import annotations

import torch
from torch import Tensor

KINDS = ("iid", "correlated", "low rank", "zero rows", "identical rows", "zeros", "one large row")


def minibatch(kind: str, N: int, D: int, seed: int, *, space: int = 0) -> Tensor:
    """Return (N, D) float64 of unit scale; with the same `space`, of the same covariance."""
    g = torch.Generator().manual_seed(seed)
    shared = torch.Generator().manual_seed(1000 + space)
    X = torch.randn(N, D, generator=g, dtype=torch.float64)
    basis = torch.randn(D, D, generator=shared, dtype=torch.float64)
    if kind == "iid":
        return X
    if kind == "correlated":
        return X * torch.logspace(0, -2, D, dtype=torch.float64) @ basis
    if kind == "low rank":
        return X[:, : min(2, D)] @ basis[: min(2, D)]
    if kind == "zero rows":
        X[::2] = 0.0
        return X
    if kind == "identical rows":
        return basis[0].repeat(N, 1)
    if kind == "zeros":
        return torch.zeros(N, D, dtype=torch.float64)
    if kind == "one large row":
        X[0] *= 100.0
        return X
    raise ValueError(f"unknown kind of minibatch: {kind}")


def relative_error(A: Tensor, B: Tensor) -> float:
    """Return ||A - B||_F / ||B||_F, or ||A||_F where B is zero."""
    A, B = A.double(), B.double()
    norm = float(torch.linalg.vector_norm(B))
    return float(torch.linalg.vector_norm(A - B)) / (norm if norm > 0.0 else 1.0)
