"""What was found that was not finite, and where: the reasons for which a step is refused."""

from __future__ import annotations

import cmath
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor


def bad_rows(name: str, X: Tensor, Y: Tensor) -> str:
    """Say what is wrong with the rows of a layer."""
    found = []
    for what, values in (("derivatives at its output", X), ("inputs", Y)):
        num_bad = values.numel() - int(values.isfinite().sum())
        if num_bad:
            found.append(f"{num_bad} of the {values.numel()} {what} are NaN or infinite")
    where = "; ".join(found) or "values so large that their products overflow"
    return f"layer '{name}': {where}"


def bad_gradient(groups: Iterable[dict[str, Any]], names: Mapping[Tensor, str]) -> str | None:
    """Say what is wrong with the first gradient that is not finite; None if all are."""
    for group in groups:
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            values = parameter.grad
            values = values.coalesce().values() if values.is_sparse else values
            # The sum of finite values may overflow: then look at each.
            if not cmath.isfinite(values.sum().item()) and not bool(values.isfinite().all()):
                num_bad = values.numel() - int(values.isfinite().sum())
                name = names.get(parameter, "of an added group")
                return (
                    f"parameter '{name}': {num_bad} of the {values.numel()} elements of its "
                    "gradient are NaN or infinite"
                )
    return None
