"""The online method: precondition each minibatch with what was learned from those before it.

Letters as in `natgrad.optim.factor`, which has the mathematics of what is learned.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from natgrad.optim.factor import (
    ABSOLUTE_FLOOR,
    FisherFactor,
    Observation,
    eta_of,
    start,
    update_all,
)
from natgrad.optim.full_precision import full_precision
from natgrad.optim.low_rank_rows import Removal, low_rank_rows, removals
from natgrad.optim.product import linear_in_any_order
from natgrad.optim.rows import PlainRows, Rows, as_rows, is_number, squared_frobenius_norm

NUM_INITIAL_UPDATES = 10  # the factor is updated on each of this many first minibatches


class OnlineFisher:
    """One side of one weight matrix: preconditions minibatches, and learns on its schedule.

    Args:
        rank: rank of the non-identity part of F; at most D - 1 of it is used. The paper's choice:
            20 for the input side of a layer, 80 for the output side. Zero is plain SGD.
        alpha: smoothing with the identity.
        num_samples_history: S, over about how many samples F is estimated.
        update_period: F is updated on the first 10 minibatches and every `update_period`-th after.

    Several threads may use one: F is replaced and never changed, and a thread whose turn it is to
    update it while another is at it goes on without ("Multithreading and other issues").

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
        self._removal: Removal | None = None  # of the factor
        self._make_locks()

    def _make_locks(self) -> None:
        self._state_lock = threading.Lock()  # of factor, removal and t: held for moments
        self._update_lock = threading.Lock()  # held while the next factor is computed

    def precondition(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return X_bar (N, D), with the Frobenius norm of X, and its squared row norms (N,).

        Raises `NonFiniteError`, and changes nothing, if X holds NaN or infinity.
        """
        wide = as_rows("OnlineFisher.precondition", X)
        with full_precision(X):
            rows, lessons = self.meet(wide, is_formed=True)
            learn(lessons)
            X_bar = rows.dense().to(X.dtype)
            if X_bar.data_ptr() == X.data_ptr():  # the caller's own, to whom X_bar is another
                X_bar = X_bar.clone()
            # The squares of half-precision numbers overflow it: they stay as they are.
            return X_bar, rows.squared_row_norms()

    def meet(self, X: Tensor, is_formed: bool = False) -> tuple[Rows, list[Lesson]]:
        """Return the preconditioned X (N, D), and what there is to `learn` from it.

        The factor that X meets was estimated from the minibatches before it; the first that is not
        zero starts it. There is one lesson, or none where it is not time; the next X may come
        before it is learned. `is_formed` says that X_hat itself will be asked for.
        """
        squared_norm = squared_frobenius_norm(X)
        with self._state_lock:
            factor = self._factor_for(X, squared_norm)
            if factor is None or X.shape[0] == 0:  # nothing to precondition or to learn from
                return PlainRows(X, squared_norm), []
            if self._removal is None or self._removal.alpha != self.alpha:
                self._removal = removals([factor], [self.alpha])[0]
            removal, t = self._removal, self.t
            self.t += 1
        H = linear_in_any_order(X, removal.R)
        rows = low_rank_rows(X, squared_norm, H, removal, is_formed)
        if t >= NUM_INITIAL_UPDATES and t % self.update_period != 0:
            return rows, []
        eta = eta_of(X.shape[0], self.num_samples_history)
        return rows, [Lesson(self, Observation(factor, X, H, squared_norm, eta))]

    def _factor_for(self, X: Tensor, squared_norm: float) -> FisherFactor | None:
        """Return the factor in the type of X, started if it is time; None if it is not.

        Other threads wait for the start, as none could go on without it.
        """
        rank = min(self.rank, X.shape[1] - 1)
        if self.factor is None:
            if squared_norm <= ABSOLUTE_FLOOR * X.shape[0] or rank <= 0:  # zeros, or nearly
                return None
            self.factor = start(X, rank)
            self._removal = None
        elif not self.fits(X.shape[1]):
            raise ValueError(
                f"this OnlineFisher tracks vectors of dimension {self.factor.R.shape[1]}, "
                f"but got {X.shape[1]}: use one OnlineFisher for each side of each weight matrix"
            )
        elif self.factor.R.dtype != X.dtype or self.factor.R.device != X.device:  # moved since
            self.factor = FisherFactor(self.factor.R.to(X), self.factor.d.to(X), self.factor.rho)
            self._removal = None
        return self.factor

    def configure(self, alpha: float, num_samples_history: float, update_period: int) -> None:
        """Change the options from the next minibatch on."""
        old = (self.alpha, self.num_samples_history, self.update_period)
        if (alpha, num_samples_history, update_period) == old:
            return
        check_options(self.rank, alpha, num_samples_history, update_period)
        self.alpha = alpha
        self.num_samples_history = num_samples_history
        self.update_period = update_period

    def fits(self, dimension: int) -> bool:
        """Whether vectors of this dimension can go on from what was learned."""
        return self.factor is None or self.factor.R.shape[1] == dimension

    def snapshot(self) -> tuple[FisherFactor | None, int]:
        """Return what `restore` goes back to; cheap, as a factor is replaced and never changed."""
        with self._state_lock:
            return self.factor, self.t

    def restore(self, snapshot: tuple[FisherFactor | None, int]) -> None:
        """Forget all minibatches since `snapshot`."""
        with self._state_lock:
            self.factor, self.t = snapshot
            self._removal = None

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
            rho = float(state["rho"])
            sizes = [float(R.abs().max()), float(d.min()), float(d.max()), rho]
            if not all(0.0 <= size < math.inf for size in sizes):
                raise ValueError(
                    "R must be finite, and d and rho must not be negative either, but the largest "
                    f"element of R is {sizes[0]:g}, d goes from {sizes[1]:g} to {sizes[2]:g}, and "
                    f"rho is {rho:g}"
                )
            self.factor = FisherFactor(R, d, rho)
        else:
            self.factor = None
        self._removal = None
        self.t = int(state["t"])

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles are made of: all but the locks."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()


class Lesson(NamedTuple):
    """A minibatch that one side of a weight matrix has met, and is to learn from."""

    fisher: OnlineFisher
    seen: Observation


def learn(lessons: Iterable[Lesson]) -> None:
    """Update the factors that minibatches have met, all at once, which takes less time.

    Those that another thread is updating, or just has, are left to it.
    """
    taken = [lesson for lesson in lessons if lesson.fisher._update_lock.acquire(blocking=False)]
    try:
        current = [lesson for lesson in taken if lesson.fisher.factor is lesson.seen.factor]
        updated = update_all([lesson.seen for lesson in current])
        removed = removals(updated, [lesson.fisher.alpha for lesson in current])
        for (fisher, _), factor, removal in zip(current, updated, removed, strict=True):
            with fisher._state_lock:
                fisher.factor, fisher._removal = factor, removal
    finally:
        for lesson in taken:
            lesson.fisher._update_lock.release()


def check_options(
    rank: int,
    alpha: float,
    num_samples_history: float,
    update_period: int,
    rank_name: str = "rank",
) -> None:
    """Raise ValueError for an option that the method has no meaning for."""
    if not isinstance(rank, int) or rank < 0:
        raise ValueError(
            f"{rank_name} must be a whole number, 0 (plain SGD) or more, but got {rank!r}"
        )
    if not (is_number(alpha) and alpha >= 0.0):
        raise ValueError(f"alpha must be 0 or more (4.0 is a good choice), but got {alpha!r}")
    if not (is_number(num_samples_history) and num_samples_history > 0.0):
        raise ValueError(f"num_samples_history must be positive, but got {num_samples_history!r}")
    if not isinstance(update_period, int) or update_period < 1:
        raise ValueError(
            f"update_period must be a whole number of 1 or more, but got {update_period!r}"
        )
