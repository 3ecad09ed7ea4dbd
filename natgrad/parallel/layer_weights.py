"""The parameters of a combined model as a linear function of one weight per layer and model (C.4).

theta_l = sum_p w_lp theta_l^p. With J its derivative: `combined` is J w, `derivative` is J^T g, and
`gram` is J^T J, of which only the blocks of each layer are not zero. All sums are in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from natgrad.parallel.average import weighted_sum

__all__ = ["LayerWeights"]

CHUNK_ELEMENTS = 8192  # of 20 models: a megabyte of float64


class LayerWeights:
    """Models of one structure, and which parameters share their weights.

    Tensors that belong to no layer must be equal in all models, and are those of the last one.

    >>> models = [{"w": torch.full((2,), float(i)), "b": torch.ones(1)} for i in range(2)]
    >>> LayerWeights(models, {"hidden": ["w"]}).combined(torch.tensor([[0.5, 0.25]]))
    {'w': tensor([0.2500, 0.2500]), 'b': tensor([1.])}
    """

    def __init__(
        self, models: Sequence[Mapping[str, Tensor]], layers: Mapping[str, Sequence[str]]
    ) -> None:
        self.models = models
        self.layers = {layer: list(names) for layer, names in layers.items()}
        self.shape = (len(self.layers), len(models))
        self._check_layers()
        self._check_other_tensors()

    def combined(self, weights: Tensor) -> dict[str, Tensor]:
        """Return the model with these weights (layers x models), in the tensors' own types."""
        tensors = dict(self.models[-1])
        for names, factors in zip(self.layers.values(), weights.tolist(), strict=True):
            for name in names:
                tensors[name] = weighted_sum([model[name] for model in self.models], factors)
        return tensors

    def derivative(self, gradient: Mapping[str, Tensor]) -> Tensor:
        """Return <g_l, theta_l^p> (layers x models) from the gradient by parameter."""
        result = torch.zeros(self.shape, dtype=torch.float64)
        for row, names in zip(result, self.layers.values(), strict=True):
            for name in names:
                self._check_gradient(gradient, name)
                g = gradient[name].detach().reshape(-1)
                for part, thetas in self._chunks(name):
                    row += (thetas @ g[part].double()).cpu()
        return result

    def gram(self) -> Tensor:
        """Return <theta_l^p, theta_l^q> (layers x models x models)."""
        num_layers, num_models = self.shape
        result = torch.zeros(num_layers, num_models, num_models, dtype=torch.float64)
        for block, names in zip(result, self.layers.values(), strict=True):
            for name in names:
                for _, thetas in self._chunks(name):
                    block += (thetas @ thetas.t()).cpu()
        return result

    def num_parameters(self) -> Tensor:
        """Return how many parameters each layer has."""
        first = self.models[0]
        numbers = [sum(first[name].numel() for name in names) for names in self.layers.values()]
        return torch.tensor(numbers, dtype=torch.float64)

    def squared_norms(self, gradient: Mapping[str, Tensor]) -> Tensor:
        """Return |g_l|^2 of each layer."""
        return torch.tensor(
            [
                sum(float(gradient[name].detach().double().square().sum()) for name in names)
                for names in self.layers.values()
            ],
            dtype=torch.float64,
        )

    def _chunks(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        rows = [model[name].detach().reshape(-1) for model in self.models]
        for begin in range(0, len(rows[0]), CHUNK_ELEMENTS):
            part = slice(begin, begin + CHUNK_ELEMENTS)
            yield part, torch.stack([row[part].double() for row in rows])

    def _check_layers(self) -> None:
        owners: dict[str, str] = {}
        for layer, names in self.layers.items():
            for name in names:
                if name not in self.models[0]:
                    raise ValueError(
                        f"layer '{layer}' names '{name}', which the models do not have"
                    )
                if name in owners:
                    raise ValueError(f"'{name}' is in layers '{owners[name]}' and '{layer}'")
                if not self.models[0][name].is_floating_point():
                    raise ValueError(
                        f"'{name}' of layer '{layer}' is of type {self.models[0][name].dtype}: "
                        "only floating-point parameters can be combined"
                    )
                owners[name] = layer
        if not owners:
            raise ValueError("no layer has a parameter: there is nothing to combine")

    def _check_other_tensors(self) -> None:
        owned = {name for names in self.layers.values() for name in names}
        for name, last in self.models[-1].items():
            if name not in owned and not all(torch.equal(m[name], last) for m in self.models):
                raise ValueError(
                    f"tensor '{name}' belongs to no layer but differs between the models: add it "
                    "to a layer if it is a parameter"
                )

    def _check_gradient(self, gradient: Mapping[str, Tensor], name: str) -> None:
        if name not in gradient or gradient[name].shape != self.models[0][name].shape:
            found = f"has shape {tuple(gradient[name].shape)}" if name in gradient else "is missing"
            raise ValueError(
                f"the objective's gradient for '{name}' {found}: expected "
                f"{tuple(self.models[0][name].shape)}"
            )
