"""Parameter groups: what they may name, and which options they may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn

from natgrad.optim.matrix import METHODS, OPTIONS_OF_FISHER, learning_rate, max_change
from natgrad.optim.online import check_options
from natgrad.optim.simple import check_alpha


def list_of_groups(groups: object) -> list[Any]:
    """Return what was given as groups, which have to be several, or none."""
    if isinstance(groups, Mapping | str) or not isinstance(groups, Iterable):
        found = f"one {type(groups).__name__}" if isinstance(groups, Mapping) else repr(groups)
        raise TypeError(
            f"groups must be a list of dictionaries with 'params' and options, but got {found}: "
            "write [{'params': ..., 'lr': ...}], or leave it out"
        )
    return list(groups)


def listed(group: Mapping[str, Any]) -> list[nn.Module | nn.Parameter]:
    """Return the modules and parameters that a group names: one, or any nesting of iterables."""
    if not isinstance(group, Mapping):
        raise TypeError(
            "groups must be a list of dictionaries with 'params' and options, but one of them is "
            f"{type(group).__name__}"
        )
    if "params" not in group:
        raise ValueError(
            "a parameter group needs 'params', the modules or parameters it is for, "
            f"but has only {sorted(group)}"
        )
    params = group["params"]
    if isinstance(params, nn.Module | Tensor):
        return [params]  # type: ignore[list-item]
    if isinstance(params, Iterable) and not isinstance(params, str):
        return [one for item in params for one in listed({"params": item})]
    raise TypeError(
        f"'params' of a group must be modules or parameters, but got {type(params).__name__}"
    )


def parameters_of(items: Iterable[nn.Module | nn.Parameter]) -> list[nn.Parameter]:
    """Return the parameters that are listed or in a listed module, each once."""
    parameters = (item.parameters() if isinstance(item, nn.Module) else [item] for item in items)
    return list(dict.fromkeys(chain.from_iterable(parameters)))


def check_bias(layer: Any, name: str, members: set[Tensor]) -> None:
    """Raise ValueError if the layer's bias is not in the group that its weight is in."""
    if layer.bias is not None and layer.bias not in members:
        raise ValueError(
            f"the bias of layer '{name}' is a column of its weight matrix, but it is in another "
            "parameter group: put both into one group, for instance by naming the module itself"
        )


def check_group(group: Mapping[str, Any], known: set[str]) -> None:
    """Raise ValueError for an option that is unknown, or that has no meaning."""
    unknown = set(group) - known - {"params", "initial_lr"}
    if unknown:
        raise ValueError(
            f"a parameter group has the options {', '.join(sorted(known))}, "
            f"but got {', '.join(sorted(unknown))}"
        )
    learning_rate(group)
    if group["method"] not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, but got {group['method']!r}")
    max_change(group)
    for rank in ("rank_in", "rank_out"):
        options = {name: group[name] for name in OPTIONS_OF_FISHER}
        check_options(group[rank], **options, rank_name=rank)
    if group["method"] == "simple":
        check_alpha(group["alpha"])
