"""The paper's definitions, dense and in float64, to judge the fast versions by.

Nothing here is efficient: D x D matrices are formed and inverted, loops run over samples. Equations
are cited by the labels of the paper's source (appendices A, B and C.3). Where natgrad differs from
the paper on purpose (the floors, the cap on eta), the difference is marked "ours".
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

INITIAL_UPDATES = 10  # "except on the first 10 minibatches" (section b:configuration)
ETA_CAP = 0.9  # ours, as in Kaldi
FLOOR = 5e-4  # ours, as in Kaldi: relative to the largest sqrt(c); the paper has 1e-10


def precondition_simple_literally(X: Tensor, alpha: float) -> Tensor:
    """Return X_bar by holding out one row after the other (appendix A, "Details of method")."""
    X = X.double()
    N, D = X.shape
    identity = torch.eye(D, dtype=torch.float64)
    if N == 1 or not X.any():
        return X
    beta = alpha * torch.trace(X.T @ X) / (N * D)
    X_hat = torch.empty_like(X)
    for i in range(N):
        F_i = torch.zeros(D, D, dtype=torch.float64)
        for j in range(N):
            if j != i:
                F_i += torch.outer(X[j], X[j]) / (N - 1)
        X_hat[i] = torch.linalg.solve(beta * identity + F_i, X[i])
    return math.sqrt(torch.trace(X.T @ X) / torch.trace(X_hat.T @ X_hat)) * X_hat


def change_factor_literally(
    lr: float, max_change_per_sample: float, X_bar: Tensor, Y_bar: Tensor
) -> float:
    """Return alpha_t from explicit norms of rows (appendix C.3, after eqn:delta_t_approx)."""
    total = 0.0
    for x, y in zip(X_bar.double(), Y_bar.double(), strict=True):
        total += lr * float(x.norm()) * float(y.norm())
    return min(1.0, X_bar.shape[0] * max_change_per_sample / total) if total > 0.0 else 1.0


class LiteralFisher:
    """The online method (appendix B): the matrices R, D (diagonal) and the scalar rho, and t."""

    def __init__(
        self, rank: int, alpha: float, num_samples_history: float, update_period: int
    ) -> None:
        self.rank = rank
        self.alpha = alpha
        self.S = num_samples_history
        self.J = update_period
        self.t = 0
        self.R = torch.empty(0, 0, dtype=torch.float64)
        self.D = torch.empty(0, 0, dtype=torch.float64)
        self.rho = 0.0
        self.started = False
        self.condition = 1.0  # the worst of any Z so far: what an eigendecomposition of Z may lose

    def F(self) -> Tensor:
        """eqn:low:rank."""
        return self.R.T @ self.D @ self.R + self.rho * torch.eye(self.R.shape[1]).double()

    def precondition(self, X: Tensor) -> Tensor:
        """Return X_bar; update if t < 10 or J divides t (section online:summary)."""
        X = X.double()
        N, D = X.shape
        if not self.started:
            if not X.any() or min(self.rank, D - 1) == 0:
                return X
            self.start(X)
        F = self.F()
        G = F + self.alpha / D * torch.trace(F) * torch.eye(D, dtype=torch.float64)  # eqn:gt
        X_hat: Tensor = X @ torch.linalg.inv(G)  # eqn:hatxt, without its arbitrary factor
        trace = torch.trace(X_hat @ X_hat.T)
        gamma = math.sqrt(torch.trace(X @ X.T) / trace) if trace > 0.0 else 1.0  # eqn:gammat:old
        if self.t < INITIAL_UPDATES or self.t % self.J == 0:
            eta = min(ETA_CAP, 1.0 - math.exp(-N / self.S))  # eqn:eta:ns; the cap is ours
            self.update(eta / N * X.T @ X + (1.0 - eta) * F, eta)
        self.t += 1
        return gamma * X_hat

    def start(self, X: Tensor) -> None:
        """The factor closest to the covariance of the first minibatch (section initialize)."""
        N, D = X.shape
        R = min(self.rank, D - 1)
        S_0 = X.T @ X / N
        eigenvalues, vectors = torch.linalg.eigh(S_0)
        top = eigenvalues.flip(0)[:R].clamp_min(0.0)
        self.R = vectors.flip(1)[:, :R].T
        epsilon = FLOOR * float(top[0])  # ours: relative
        self.rho = max(float(torch.trace(S_0) - top.sum()) / (D - R), epsilon)
        self.D = torch.diag((top - self.rho).clamp_min(epsilon))
        self.started = True

    def update(self, T: Tensor, eta: float) -> None:
        """Let F approximate T, by one step of the power method."""
        rank, D = self.R.shape
        Y = self.R @ T  # eqn:yt
        # Z = Y Y^T = U C U^T (eqn:zt:def, eqn:zt:eig) by the singular value decomposition Y = U
        # C^1/2 V^T, as the paper's "observant readers" would: it keeps the digits of the small c,
        # so that R needs no repair here.
        _, sqrt_c, V_T = torch.linalg.svd(Y, full_matrices=False)
        self.R = V_T  # eqn:rt1:def: C^-1/2 U^T Y
        c = sqrt_c.square().clamp_min((1.0 - eta) ** 2 * self.rho**2)  # after eqn:zt:eig:repeat
        self.condition = max(self.condition, float(c.max() / c.min()))
        sqrt_C = torch.diag(c.sqrt())
        rho_dash = float(torch.trace(T) - torch.trace(sqrt_C)) / (D - rank)  # eqn:rhodash
        epsilon = FLOOR * float(c.max().sqrt())  # ours: relative
        self.D = torch.diag((c.sqrt() - rho_dash).clamp_min(epsilon))  # eqn:dt1
        self.rho = max(epsilon, rho_dash)  # eqn:rhot1
