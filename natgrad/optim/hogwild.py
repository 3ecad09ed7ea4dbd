"""Copies of a model on one parameter memory, for threads that train it together (appendix C.1).

Threads that share parameters without any locks ("Hogwild") each need a model of their own: layers
remember what they have seen between forward and backward, and autograd refuses to go back through a
tensor that has changed since, which here it always has.

    copy = share_parameters(model)
    optimizer_of_copy = optimizer.replica(copy)      # the same Fisher factors, too

The two may then train at the same time, each on minibatches of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor, nn

Model = TypeVar("Model", bound=nn.Module)


def share_parameters(model: Model) -> Model:
    """Return a copy of the model whose parameters and buffers are in the memory of the original's.

    What either changes in place, the other sees. All else is the copy's own: gradients, and whether
    a tensor has changed since it was used, which autograd counts for each apart. Weights that
    several layers share are shared in the copy; an optimizer's taps stay with the original.

    >>> import torch
    >>> model = nn.Linear(3, 2)
    >>> copied = share_parameters(model)
    >>> with torch.no_grad():
    ...     _ = copied.weight.fill_(7.0)
    >>> bool((model.weight == 7.0).all())
    True
    """
    # `.data` is the same memory under another version counter (`.detach()` would share that, too).
    shared: dict[int, Tensor] = {id(buffer): buffer.data for buffer in model.buffers()}
    for parameter in model.parameters():
        shared[id(parameter)] = nn.Parameter(parameter.data, parameter.requires_grad)
    return copy.deepcopy(model, shared)


def counterparts(names: Mapping[Tensor, str], model: nn.Module) -> dict[Tensor, nn.Parameter]:
    """Return, for each of the named parameters, the model's one of that name in the same memory."""
    found = dict(model.named_parameters())
    for parameter, name in names.items():
        other = found.get(name)
        if other is None or other.data_ptr() != parameter.data_ptr():
            raise ValueError(
                f"the model has no parameter '{name}' in the memory of this optimizer's one: make "
                "the model by share_parameters(model), and the optimizer without other modules"
            )
    return {parameter: found[name] for parameter, name in names.items()}
