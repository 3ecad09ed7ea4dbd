"""How far the eigenvalues of a Fisher matrix are from being all the same."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Spread", "spread"]

WIDE = 10.0  # the factor about the mean within which `Spread.within_wide` counts


@dataclass(frozen=True)
class Spread:
    """How far the eigenvalues of a Fisher matrix are from being all the same.

    All but `mean` and `median` do not depend on its scale, which a learning rate makes up for.

    num: of eigenvalues that can be other than zero, all of which the rest is about
    mean, median: of the eigenvalues
    log10_std: standard deviation of their decimal logarithms
    decades_90_10: decimal logarithm of the ratio of their 90 % and 10 % quantiles
    mean_ratio: decimal logarithm of the ratio of their arithmetic and geometric means
    within_wide: the share that is within a factor `WIDE` of the mean
    largest: the largest over the mean: what limits the learning rate
    flatness: (sum)^2 / (num sum of squares): 1 if all are the same, 1/num if one is alone
    """

    num: int
    mean: float
    median: float
    log10_std: float
    decades_90_10: float
    mean_ratio: float
    within_wide: float
    largest: float
    flatness: float


def spread(eigenvalues: Tensor, num_zero: int = 0) -> Spread:
    """Return the spread of eigenvalues, of which the least `num_zero` are known to be zero.

    >>> spread(torch.tensor([1.0, 1.0, 0.0]), num_zero=1).flatness
    1.0
    """
    if num_zero < 0 or bool(eigenvalues.isnan().any()):
        raise ValueError(
            f"got {num_zero} as the number of zeros, and {int(eigenvalues.isnan().sum())} of "
            f"{len(eigenvalues)} eigenvalues are NaN: expected 0 or more zeros, and no NaN"
        )
    values = eigenvalues.double().sort().values[num_zero:]
    if len(values) == 0 or float(values[0]) <= 0.0:
        raise ValueError(
            f"of {len(eigenvalues)} eigenvalues {num_zero} are said to be zero, but "
            f"{int((eigenvalues <= 0).sum())} are not positive: measure the Fisher matrix on more "
            "samples, or count the zeros again"
        )
    mean, logs = values.mean(), values.log10()
    low, high = torch.quantile(logs, torch.tensor([0.1, 0.9], dtype=logs.dtype)).tolist()
    ratios = values / mean
    return Spread(
        num=len(values),
        mean=float(mean),
        median=float(values.median()),
        log10_std=float(logs.std(correction=0)),
        decades_90_10=high - low,
        mean_ratio=float(mean.log10() - logs.mean()),
        within_wide=float(((ratios >= 1 / WIDE) & (ratios <= WIDE)).double().mean()),
        largest=float(ratios[-1]),
        flatness=float(1.0 / ratios.square().mean()),
    )
