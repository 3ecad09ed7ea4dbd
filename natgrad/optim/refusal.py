"""What was found that was not finite, and where: the reasons for which a step is refused."""

from __future__ import annotations

import cmath
import weakref

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from natgrad.optim.backward_pass import Pass


def bad_rows(name: str, X: Tensor, Y: Tensor) -> str:
    """Say what is wrong with the rows of a layer."""
    found = []
    for what, values in (("derivatives at its output", X), ("inputs", Y)):
        num_bad = values.numel() - int(values.isfinite().sum())
        if num_bad:
            found.append(f"{num_bad} of the {values.numel()} {what} are NaN or infinite")
    where = "; ".join(found) or "values so large that their products overflow"
    return f"layer '{name}': {where}"


def bad_gradient(parameter: Tensor, name: str) -> str | None:
    """Say what is wrong with a parameter's gradient; None if it is finite, or if there is none."""
    values = parameter.grad
    if values is None:
        return None
    values = values.coalesce().values() if values.is_sparse else values
    # The sum of finite values may overflow: then look at each.
    if cmath.isfinite(values.sum().item()) or bool(values.isfinite().all()):
        return None
    num_bad = values.numel() - int(values.isfinite().sum())
    return (
        f"parameter '{name}': {num_bad} of the {values.numel()} elements of its gradient are NaN "
        "or infinite"
    )


def refuse_bad_gradient(parameter: Tensor, name: str, shared: Pass) -> RemovableHandle:
    """Let a backward pass that has brought a bad gradient change no layer that it comes to later.

    Of layers that are tapped it is mostly their rows that tell; this is for what they do not see.
    """
    reference = weakref.ref(shared)  # the parameter may outlive its optimizer
    requires_grad = parameter.requires_grad

    def look_at(parameter: Tensor) -> None:
        shared = reference()
        if shared is not None and shared.refused is None:
            shared.refused = bad_gradient(parameter, name)

    with torch._C.DisableTorchFunctionSubclass():  # lazy parameters would refuse
        parameter.requires_grad_(True)  # a frozen one would, too, and may be thawed
        handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(look_at)
        parameter.requires_grad_(requires_grad)
    weakref.finalize(shared, handle.remove).atexit = False
    return handle
