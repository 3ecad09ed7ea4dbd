"""The online Fisher factor: a low-rank matrix plus a multiple of the identity (appendix B).

    F = R^T diag(d) R + rho I                                     eqn:low:rank

tracks the uncentered covariance of row vectors that come in minibatches X (N, D), and X is
multiplied by the inverse of its smoothed version G = F + (alpha/D) tr(F) I.

Legend (the paper's letters):
    R      (rank, D)  orthonormal rows          S    X^T X / N, the covariance of this minibatch
    d      (rank,)    what they add to rho      T    eta S + (1 - eta) F, the next F's aim
    rho    scalar     the identity's multiple   H    X R^T, (N, rank)
    e      (rank,)    how much of each          Y    R T, (rank, D): one step of the power method
           direction is taken out               Z    Y Y^T = U diag(c) U^T

We keep R itself where the paper keeps W = E^1/2 R: the same number of products, and Y Y^T is formed
directly instead of from J, K and L, which is one product of (rank x D x rank) less than either
strategy of appendix B (measured in LOG.md).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from natgrad.optim.rows import (
    PlainRows,
    Rows,
    Term,
    block_memory,
    columns,
    columns_of,
    squared_frobenius_norm,
)

NUM_INITIAL_UPDATES = 10  # the factor is updated on each of this many first minibatches
MAX_ETA = 0.9  # as in Kaldi: some of the past stays, however large the minibatch
RELATIVE_FLOOR = 5e-4  # as in Kaldi: d and rho stay above this part of the largest sqrt(c)
ABSOLUTE_FLOOR = 1e-35  # the smallest tr(T) that float32 arithmetic carries through an update
MIN_EIGENVALUE = 1e-30  # of Z / tr(T)^2: with it, R stays finite where F is negligible beside X
MAX_LOSS = 1e3  # how much Z's round-off may be amplified in R before orthogonality is checked
MAX_NON_ORTHOGONALITY = 1e-3  # of an element of R R^T - I: above it, R is repaired
MAX_START_SIZE = 1024  # the largest eigenproblem that a start may solve
MIN_SHRINKAGE = 1e-2  # of ||X_hat||^2 / ||X||^2: below it, it is taken from X_hat itself


@dataclass(frozen=True)
class FisherFactor:
    """F = R^T diag(d) R + rho I; R (rank, D) has orthonormal rows, d (rank,) > 0, rho > 0."""

    R: Tensor
    d: Tensor
    rho: float

    @property
    def trace(self) -> float:
        """tr(F)."""
        return self.rho * self.R.shape[1] + math.fsum(self.d.tolist())

    def removed(self, alpha: float) -> Tensor:
        """Return e (rank,): G^-1 = (I - R^T diag(e) R) / beta, by the Woodbury identity.

        beta = rho (1 + alpha) + (alpha/D) tr(D)     eqn:beta2
        e_i  = 1 / (beta / d_i + 1)                  eqn:etii

        The inputs are scaled by 1 - e_i in direction i: e close to one takes nearly all of it out.
        """
        beta = self.rho + alpha / self.R.shape[1] * self.trace
        return self.d / (self.d + beta)


def start(X: Tensor, rank: int) -> FisherFactor:
    """Return the factor closest to the covariance of the first minibatch ("Initialization").

    The top eigenvectors of S = X^T X / N come from the smaller of X^T X and X X^T, which have the
    same spectrum; where both are larger than `MAX_START_SIZE`, from that many rows, evenly chosen.
    Directions that X does not reach are filled up with any orthonormal ones. X must not be zero,
    and rank < D.
    """
    num_columns = X.shape[1]
    if min(X.shape) > MAX_START_SIZE:
        X = X[:: -(-X.shape[0] // MAX_START_SIZE)]
    num_rows = X.shape[0]
    norm = math.sqrt(squared_frobenius_norm(X))
    if norm == 0.0:  # the chosen rows happen to be zero: nothing is known of the directions yet
        return FisherFactor(torch.eye(rank, num_columns, dtype=X.dtype, device=X.device),
                            X.new_full((rank,), ABSOLUTE_FLOOR), ABSOLUTE_FLOOR)  # fmt: skip
    X = X / norm  # tr(X^T X) = 1, so that nothing below over- or underflows
    if num_rows < num_columns:
        eigenvalues, U = torch.linalg.eigh(X @ X.t())
        directions = U.t().flip(0)[:rank] @ X
    else:
        eigenvalues, U = torch.linalg.eigh(X.t() @ X)
        directions = U.t().flip(0)[:rank]
    num_found = directions.shape[0]
    filled = X.new_zeros(rank, num_columns)
    filled[:num_found] = directions
    # Householder QR keeps the leading directions as they are and completes the missing ones.
    R = torch.linalg.qr(filled.t()).Q.t().contiguous()
    lambdas = X.new_zeros(rank)
    lambdas[:num_found] = eigenvalues.flip(0)[:rank].clamp_min(0.0)
    covariance_scale = norm**2 / num_rows
    floor = RELATIVE_FLOOR * float(lambdas[0])
    rho = max((1.0 - float(lambdas.sum())) / (num_columns - rank), floor)
    d = (lambdas - rho).clamp_min(floor)
    return FisherFactor(R, d * covariance_scale, rho * covariance_scale)


def eta_of(num_samples: int, num_samples_history: float) -> float:
    """Return the weight of a minibatch, 1 - exp(-N/S) (eqn:eta:ns), at most `MAX_ETA`."""
    return min(MAX_ETA, -math.expm1(-num_samples / num_samples_history))


def update(
    factor: FisherFactor,
    X: Tensor,
    H: Tensor,
    squared_norm: float,
    eta: float,
    absolute_floor: float = 0.0,
) -> FisherFactor:
    """Return the factor after seeing X, by one step of the power method on T = eta S + (1 - eta) F.

    Y = R T = (eta/N) H^T X + (1 - eta) diag(d + rho) R           eqn:yt
    Z = Y Y^T = U diag(c) U^T,  c >= ((1 - eta) rho)^2            eqn:zt:def, eqn:zt:eig:repeat
    R' = diag(c)^-1/2 U^T Y                                       eqn:rt1:def
    rho' = (tr(T) - tr(c^1/2)) / (D - rank)                       eqn:rhodash2
    d' = max(c^1/2 - rho', floor),  rho' = max(rho', floor)       eqn:dt1, eqn:rhot1

    H = X R^T and squared_norm = tr(X X^T) are known from preconditioning. All is computed in units
    of tr(T), so that the fourth powers in Z neither over- nor underflow and the result is
    equivariant to the scale of X. `absolute_floor` (in the units of X^2) is only there to reproduce
    the reference implementation, whose floor is 1e-10.

    Z is decomposed in float64: in float32 the error, eps max(c), is not small beside min(c), and R
    loses its orthogonality (measured: 0.2 instead of 1e-6). What is left is the round-off of Z
    itself, eps |y_i| |y_j|, which U and c^-1/2 amplify by at most max_k sum_i Z_ii U_ik^2 / c_k: 1
    at convergence, max(c)/min(c) at worst. Where it is large, orthogonality is checked. (The
    paper's test, max(c) > 1e6 min(c), misses errors of 2e-3 and makes the check at every update of
    ordinary ill-conditioned data.)

    Cost: 2 N D rank + 4 D rank^2 operations and one eigendecomposition of (rank, rank).
    """
    rank, num_columns = factor.R.shape
    weight_new = eta / X.shape[0]
    unit = weight_new * squared_norm + (1.0 - eta) * factor.trace  # tr(T)
    if unit < ABSOLUTE_FLOOR:  # zeros only, for a very long time: keep what was known
        return factor
    previous = (factor.d + factor.rho).mul_((1.0 - eta) / unit).unsqueeze(1)
    Y = torch.mul(factor.R, previous, out=block_memory.matrix(X, rank, num_columns))
    Y.addmm_(H.t(), X, alpha=weight_new / unit)
    Z = (Y @ Y.t()).to("cpu", torch.float64)  # small: faster there than on an accelerator
    eigenvalues, U = torch.linalg.eigh(Z)
    U = U.flip(1)
    # What is one number per direction goes on as lists of floats, as it is on the CPU in the paper:
    # one transfer and a few microseconds instead of a dozen small tensor operations.
    c_floor = max(((1.0 - eta) * factor.rho / unit) ** 2, MIN_EIGENVALUE)
    c_raw = eigenvalues.tolist()[::-1]
    c = [max(value, c_floor) for value in c_raw]
    sqrt_c = [math.sqrt(value) for value in c]
    R = (U / _vector_like(Z, sqrt_c)).to(Y).t() @ Y
    round_off = (Z.diagonal() @ U.square()).tolist()
    if c_raw[-1] < c_floor or max(map(operator.truediv, round_off, c)) > MAX_LOSS:
        R = orthonormalize(R)
    rho = (1.0 - math.fsum(sqrt_c)) / (num_columns - rank)
    floor = max(absolute_floor / unit, RELATIVE_FLOOR * sqrt_c[0])
    d = [max(value - rho, floor) * unit for value in sqrt_c]
    return FisherFactor(R, _vector_like(factor.d, d), max(rho, floor) * unit)


def _vector_like(other: Tensor, values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=other.dtype, device=other.device)


def orthonormalize(R: Tensor) -> Tensor:
    """Return R with its rows made orthonormal, if round-off has made them less so.

    Section "Maintaining orthogonality": R <- C^-1 R with R R^T = C C^T; by Householder QR where the
    Cholesky decomposition fails.
    """
    gram = R @ R.t()
    identity = torch.eye(gram.shape[0], dtype=R.dtype, device=R.device)
    if float((gram - identity).abs().max()) <= MAX_NON_ORTHOGONALITY:
        return R
    cholesky, info = torch.linalg.cholesky_ex(gram)
    if int(info) == 0:
        repaired: Tensor = torch.linalg.solve_triangular(cholesky, R, upper=False)
        if float((repaired @ repaired.t() - identity).abs().max()) <= MAX_NON_ORTHOGONALITY:
            return repaired
    Q: Tensor = torch.linalg.qr(R.t()).Q
    return Q.t().contiguous()


class LowRankRows(Rows):
    """X_hat = beta X G^-1 = X - V R (eqn:hatxt:compute:2), V = H diag(e), H = X R^T (eqn:ht)."""

    def __init__(self, X: Tensor, factor: FisherFactor, e: Tensor, squared_norm: float) -> None:
        self.X = X
        self.squared_norm = squared_norm
        self.R = factor.R
        self.H = X @ factor.R.t()
        self.V = self.H * e
        self._p: Tensor | None = None
        self.gamma = self._gamma()

    def _gamma(self) -> float:
        """Return sqrt(tr(X X^T) / tr(X_hat X_hat^T)), or 1 where X is zero (eqn:gammat).

        As R is orthonormal, ||X_hat||^2 = ||X||^2 - 2 <H, V> + ||V||^2 needs no X_hat; only where
        X_hat is much smaller than X would the difference lose its digits.
        """
        h, v = self.H.view(-1), self.V.view(-1)
        squared = self.squared_norm - 2.0 * float(h.dot(v)) + float(v.dot(v))
        if squared < MIN_SHRINKAGE * self.squared_norm:
            self._p = torch.linalg.vector_norm(self.hat(), dim=1).square_()
            squared = float(self._p.sum())
        return math.sqrt(self.squared_norm / squared) if squared > 0.0 else 1.0

    def terms(self, Y: Tensor) -> list[Term]:
        """Return X_hat^T Y in whichever form is less arithmetic.

        As X^T Y - R^T (V^T Y) where Y has fewer columns than rows, else as (X - V R)^T Y, of which
        each block of X - V R is formed when it is needed.
        """
        if Y.shape[1] < Y.shape[0]:
            minus_P = (self.V.t() @ Y).neg_()
            return [Term(columns_of(self.X), Y), Term(partial(columns, self.R), minus_P)]
        return [Term(self._block, Y)]

    def _block(self, begin: int, end: int) -> Tensor:
        X, R = columns(self.X, begin, end), columns(self.R, begin, end)
        return torch.addmm(X, self.V, R, alpha=-1.0, out=block_memory.matrix(X, *X.shape))

    def hat(self) -> Tensor:
        """Return X_hat."""
        return torch.addmm(self.X, self.V, self.R, alpha=-1.0)

    def squared_row_norms(self) -> Tensor:
        """Return gamma^2 p_i, with p_i = ||x_i||^2 - 2 h_i.v_i + ||v_i||^2 (eqn:pi)."""
        if self._p is not None:
            return self._p * self.gamma**2
        taken_out = ((2.0 * self.H - self.V) * self.V).sum(dim=1)
        squared: Tensor = torch.linalg.vector_norm(self.X, dim=1).square_() - taken_out
        return squared.clamp_min_(0.0).mul_(self.gamma**2)


class OnlineFisher:
    """One side of one weight matrix: preconditions minibatches, and learns on its schedule.

    Args:
        rank: rank of the non-identity part of F; at most D - 1 of it is used. The paper's choice:
            20 for the input side of a layer, 80 for the output side. Zero is plain SGD.
        alpha: smoothing with the identity.
        num_samples_history: S, over about how many samples F is estimated.
        update_period: F is updated on the first 10 minibatches and every `update_period`-th after.

    >>> import torch
    >>> X = torch.randn(128, 50, generator=torch.Generator().manual_seed(0))
    >>> fisher = OnlineFisher(rank=10)
    >>> X_bar, squared_row_norms = fisher.precondition(X)
    >>> torch.allclose(X_bar.norm(), X.norm())
    True
    >>> torch.allclose(squared_row_norms, X_bar.square().sum(dim=1))
    True
    """

    def __init__(
        self,
        rank: int = 80,
        alpha: float = 4.0,
        num_samples_history: float = 2000.0,
        update_period: int = 4,
    ) -> None:
        check_options(rank, alpha, num_samples_history, update_period)
        self.rank = rank
        self.alpha = alpha
        self.num_samples_history = num_samples_history
        self.update_period = update_period
        self.t = 0  # minibatches seen since the first that was not zero
        self.factor: FisherFactor | None = None
        self._e: Tensor | None = None

    def precondition(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return X_bar (N, D), with the Frobenius norm of X, and its squared row norms (N,).

        Raises `NonFiniteError`, and changes nothing, if X holds NaN or infinity.
        """
        if X.dim() != 2:
            raise ValueError(
                "OnlineFisher.precondition takes a matrix (N, D), one row per sample, "
                f"but got shape {tuple(X.shape)}: use X.reshape(-1, X.shape[-1])"
            )
        X_work = X.detach() if X.dtype in (torch.float32, torch.float64) else X.detach().float()
        rows = self.rows(X_work)
        X_bar = rows.dense()
        # The rows are here, so their norms are taken from them: exact even where R is not quite
        # orthonormal.
        squared = torch.linalg.vector_norm(X_bar, dim=1).square_()
        total = float(squared.sum())
        if total > 0.0 and not isinstance(rows, PlainRows):
            correction = rows.squared_norm / total
            X_bar, squared = X_bar * math.sqrt(correction), squared * correction
        return X_bar.to(X.dtype), squared  # the squares of half-precision numbers overflow it

    def rows(self, X: Tensor) -> Rows:
        """Return the preconditioned X (N, D) without forming it; update the factor if it is time.

        The factor that X meets was estimated from the minibatches before it; the first that is not
        zero starts it.
        """
        squared_norm = squared_frobenius_norm(X)
        rank = min(self.rank, X.shape[1] - 1)
        if self.factor is None:
            if squared_norm == 0.0 or rank <= 0:
                return PlainRows(X, squared_norm)
            self.factor = start(X, rank)
            self._e = None
        elif not self.fits(X.shape[1]):
            raise ValueError(
                f"this OnlineFisher tracks vectors of dimension {self.factor.R.shape[1]}, "
                f"but got {X.shape[1]}: use one OnlineFisher for each side of each weight matrix"
            )
        if X.shape[0] == 0:  # nothing to precondition or to learn from
            return PlainRows(X, squared_norm)
        if self.factor.R.dtype != X.dtype or self.factor.R.device != X.device:  # moved since
            self.factor = FisherFactor(self.factor.R.to(X), self.factor.d.to(X), self.factor.rho)
            self._e = None
        if self._e is None:
            self._e = self.factor.removed(self.alpha)
        rows = LowRankRows(X, self.factor, self._e, squared_norm)
        if self.t < NUM_INITIAL_UPDATES or self.t % self.update_period == 0:
            eta = eta_of(X.shape[0], self.num_samples_history)
            self.factor = update(self.factor, X, rows.H, squared_norm, eta)
            self._e = None
        self.t += 1
        return rows

    def configure(self, alpha: float, num_samples_history: float, update_period: int) -> None:
        """Change the options from the next minibatch on."""
        if alpha != self.alpha:
            self._e = None
        self.alpha = alpha
        self.num_samples_history = num_samples_history
        self.update_period = update_period

    def fits(self, dimension: int) -> bool:
        """Whether vectors of this dimension can go on from what was learned."""
        return self.factor is None or self.factor.R.shape[1] == dimension

    def snapshot(self) -> tuple[FisherFactor | None, int]:
        """Return what `restore` goes back to; cheap, as a factor is replaced and never changed."""
        return self.factor, self.t

    def restore(self, snapshot: tuple[FisherFactor | None, int]) -> None:
        """Forget all minibatches since `snapshot`."""
        self.factor, self.t = snapshot
        self._e = None

    def state_dict(self) -> dict[str, Any]:
        """Return R (rank, D), d (rank,), rho and t; only t before the first nonzero minibatch."""
        if self.factor is None:
            return {"t": self.t}
        return {"R": self.factor.R, "d": self.factor.d, "rho": self.factor.rho, "t": self.t}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned: the next minibatch gives the same bits as there."""
        expected = {"t"} if set(state) == {"t"} else {"R", "d", "rho", "t"}
        if set(state) != expected:
            raise ValueError(
                f"the state of an OnlineFisher has the keys {sorted(expected)}, "
                f"but got {sorted(state)}"
            )
        if "R" in state:
            R = torch.as_tensor(state["R"])
            d = torch.as_tensor(state["d"]).to(R)
            if R.dim() != 2 or d.shape != R.shape[:1] or not 0 < R.shape[0] < R.shape[1]:
                raise ValueError(
                    "R must be (rank, D) with 0 < rank < D, and d (rank,), "
                    f"but R has shape {tuple(R.shape)} and d {tuple(d.shape)}"
                )
            self.factor = FisherFactor(R, d, float(state["rho"]))
        else:
            self.factor = None
        self._e = None
        self.t = int(state["t"])


def check_options(rank: int, alpha: float, num_samples_history: float, update_period: int) -> None:
    """Raise ValueError for an option that the method has no meaning for."""
    if not isinstance(rank, int) or rank < 0:
        raise ValueError(f"rank must be a whole number, 0 (plain SGD) or more, but got {rank}")
    if not alpha >= 0.0:
        raise ValueError(f"alpha must be 0 or more (4.0 is a good choice), but got {alpha}")
    if not num_samples_history > 0.0:
        raise ValueError(f"num_samples_history must be positive, but got {num_samples_history}")
    if not isinstance(update_period, int) or update_period < 1:
        raise ValueError(f"update_period must be a whole number of 1 or more, got {update_period}")
