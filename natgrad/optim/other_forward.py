"""Layers that are given another `forward`, and lose it again.

By their class: a layer gets one like its own, with the other `forward`. As an attribute of the
layer it would have to be bound to it, a cycle: the memory of a model that all else has dropped
would wait for the garbage collector. What is copied of such a layer (`copy`, pickle) is of the
layer's own class again.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

OWN_CLASS = "_class_with_its_own_forward"
_classes: dict[tuple[type[nn.Module], Callable[..., Tensor]], type[nn.Module]] = {}


def own_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that a layer has, or had before it was given another `forward`.

    >>> layer = nn.Linear(2, 2)
    >>> give_forward(layer, lambda self, input: input)
    >>> type(layer) is nn.Linear, own_class(layer) is nn.Linear
    (False, True)
    """
    own: type[nn.Module] = getattr(type(module), OWN_CLASS, type(module))
    return own


def give_forward(module: nn.Module, forward: Callable[..., Tensor]) -> None:
    """Let a layer have this `forward`, whose first argument is the layer."""
    module.__class__ = _class_with(forward, own_class(module))


def take_forward_back(module: nn.Module) -> None:
    """Undo `give_forward`, unless the layer has got a third class since, as a parametrized one."""
    if OWN_CLASS in vars(type(module)):
        module.__class__ = own_class(module)


def _class_with(forward: Callable[..., Tensor], own: type[nn.Module]) -> type[nn.Module]:
    known = _classes.get((own, forward))
    if known is not None:
        return known

    def reduce(self: nn.Module, protocol: int) -> tuple[Any, ...]:
        # By the oldest protocol: pickle lets the others make nothing of another class than self's.
        made: Any = own.__reduce_ex__(self, min(protocol, 1))
        return made[0], tuple(own if a is other else a for a in made[1]), *made[2:]

    attributes: dict[str, Any] = {
        OWN_CLASS: own,
        "__doc__": own.__doc__,
        "__module__": own.__module__,
        "__qualname__": own.__qualname__,
        "__reduce_ex__": reduce,
        # torch.compile can follow neither our forward nor what comes of it in the backward pass.
        "forward": torch.compiler.disable(forward),
    }
    if (shaped := getattr(own, "cls_to_become", None)) is not None:  # of a lazy layer
        attributes["cls_to_become"] = _class_with(forward, shaped)
    other: type[nn.Module] = types.new_class(
        own.__name__, (own,), exec_body=lambda body: body.update(attributes)
    )
    _classes[own, forward] = other
    return other
