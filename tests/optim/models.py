"""Models, and NGSGD on them written out literally, to judge the optimizer by."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from natgrad import NGSGD, OnlineFisher, precondition_simple
from tests.optim.literal import change_factor_literally
from tests.optim.samples import relative_error

METHODS = ("online", "simple", "none")
methods = pytest.mark.parametrize("method", METHODS)
fused_or_not = pytest.mark.parametrize("fused", [False, True], ids=["grad", "fused"])
# Small ranks and a short history, so that a few small minibatches reach every part of the method.
OPTIONS: dict[str, Any] = {
    "lr": 0.02,
    "rank_in": 2,
    "rank_out": 3,
    "alpha": 2.0,
    "num_samples_history": 30.0,
    "update_period": 4,
    "max_change_per_sample": 0.05,  # limits some of the minibatches of `network_loss`, not all
}

T = TypeVar("T")
Loss = Callable[[nn.Module, int], Tensor]  # of a model, on minibatch t; a sum over samples


def seeded(make: Callable[[], T], seed: int = 0) -> T:
    """Return make(), with torch's random numbers from this seed, and those after it undisturbed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return make()


def randn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=dtype)


def network(dtype: torch.dtype = torch.float64) -> Any:
    """Return an nn.Sequential of two tapped layers with a plain one between them."""
    return seeded(
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 4))
    ).to(dtype)


def network_loss(model: nn.Module, t: int, *, num_samples: int = 12, scale: float = 1.0) -> Tensor:
    dtype = next(model.parameters()).dtype
    x = randn(num_samples, 6, seed=t, dtype=torch.float32).to(dtype)
    y = torch.arange(num_samples).add(t) % 4
    return scale * F.cross_entropy(model(x), y, reduction="sum")


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Loss, steps: Iterable[int]
) -> None:
    """Train in the order of the documentation: `zero_grad` stands between forward and backward."""
    for t in steps:
        loss = loss_of(model, t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def bits(state: Any) -> Any:
    """Return a state dictionary with bytes in the place of tensors, for `==` to compare."""
    if isinstance(state, Tensor):
        return state.dtype, tuple(state.shape), state.detach().flatten().view(torch.uint8).tolist()
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [bits(value) for value in state]
    return state


def fisher_bits(optimizer: NGSGD) -> Any:
    """Return the bits of all Fisher factors."""
    state = optimizer.state_dict()["state"]
    return bits([[entry.get("fisher_in"), entry.get("fisher_out")] for entry in state.values()])


def assert_same_change(
    before: dict[str, Tensor], model: nn.Module, expected: nn.Module, tolerance: float
) -> None:
    """Compare how much two models have moved away from where both began."""
    other = weights(expected)
    for name, parameter in weights(model).items():
        error = relative_error(parameter - before[name], other[name] - before[name])
        assert error <= tolerance, f"the changes of {name} differ by {error:.3g}"


def assert_trains_literally(
    make: Callable[[], nn.Module],
    loss_of: Loss,
    *,
    num_steps: int = 4,
    tolerance: float = 1e-9,
    method: str = "online",
    fused: bool = False,
    **options: Any,
) -> NGSGD:
    """Train one model by NGSGD and its copy by the literal version; return the optimizer."""
    options = OPTIONS | options
    model = make()
    before = weights(model)
    literal = LiteralNGSGD(copy.deepcopy(model), method=method, **options)
    optimizer = NGSGD(model, method=method, fused=fused, **options)
    train(model, optimizer, loss_of, range(num_steps))
    for t in range(num_steps):
        literal.step(loss_of, t)
    assert any(not torch.equal(before[name], p) for name, p in model.named_parameters())
    assert_same_change(before, model, literal.model, tolerance)
    return optimizer


class LiteralNGSGD:
    """The natural gradient from autograd's own derivatives at each layer's output, densely."""

    def __init__(self, model: nn.Module, **options: Any) -> None:
        self.model = model
        self.options = options
        self.fishers: dict[tuple[Tensor, str], tuple[int, OnlineFisher]] = {}
        self.num_limited = 0
        self._calls: list[tuple[Any, Tensor, Tensor]] = []
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
                module.register_forward_hook(self._record)

    def _record(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if torch.is_grad_enabled():
            self._calls.append((module, inputs[0].detach(), output))

    def step(self, loss_of: Loss, t: int) -> None:
        self._calls.clear()
        loss = loss_of(self.model, t)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        outputs = [output for _, _, output in self._calls]
        grads = torch.autograd.grad(loss, [*outputs, *parameters], allow_unused=True)
        calls = [
            (module, rows(module, output_grad), patches(module, input))
            for (module, input, _), output_grad in zip(self._calls, grads, strict=False)
            if output_grad is not None
        ]
        tapped = {module.weight for module, _, _ in calls if module.weight.requires_grad}
        biases = {
            module.bias
            for module, _, _ in calls
            if module.weight in tapped and module.bias is not None
        }
        with torch.no_grad():
            for parameter, grad in zip(parameters, grads[len(outputs) :], strict=True):
                if grad is not None and parameter not in tapped | biases:
                    parameter.sub_(self.options["lr"] * grad)
            for weight in tapped:
                self._change(weight, [call for call in calls if call[0].weight is weight])

    def _change(self, weight: Tensor, calls: list[tuple[Any, Tensor, Tensor]]) -> None:
        layers = [m for m in self.model.modules() if getattr(m, "weight", None) is weight]
        biases: list[Tensor] = []
        for layer in layers:
            bias = layer.bias
            if (
                isinstance(bias, Tensor)
                and bias.requires_grad
                and all(bias is not b for b in biases)
            ):
                biases.append(bias)
        X = torch.cat([X for _, X, _ in calls])
        Y = torch.cat(
            [
                torch.cat(
                    [Y, *(torch.full((len(Y), 1), module.bias is b).to(Y) for b in biases)], 1
                )
                for module, _, Y in calls
            ]
        )
        X_bar, Y_bar = (
            self._precondition(weight, "rank_out", X),
            self._precondition(weight, "rank_in", Y),
        )
        factor = 1.0
        if self.options["max_change_per_sample"] is not None:
            limit = self.options["max_change_per_sample"]
            factor = change_factor_literally(self.options["lr"], limit, X_bar, Y_bar)
        self.num_limited += factor < 1.0
        change = self.options["lr"] * factor * X_bar.T @ Y_bar
        weight -= change[:, : change.shape[1] - len(biases)].reshape(weight.shape)
        for column, bias in enumerate(reversed(biases), start=1):
            bias -= change[:, -column]

    def _precondition(self, weight: Tensor, side: str, X: Tensor) -> Tensor:
        if self.options["method"] == "none":
            return X
        if self.options["method"] == "simple":
            return precondition_simple(X, self.options["alpha"])
        # A bias that is frozen, or no longer so, changes the dimension, and the factor starts anew.
        dimension, fisher = self.fishers.get((weight, side), (None, None))
        if fisher is None or dimension != X.shape[1]:
            names = ("alpha", "num_samples_history", "update_period")
            others = {name: self.options[name] for name in names}
            fisher = OnlineFisher(self.options[side], **others)
            self.fishers[weight, side] = X.shape[1], fisher
        return fisher.precondition(X)[0]


def rows(module: nn.Module, values: Tensor) -> Tensor:
    """Return one row for each sample (and output position) of what a layer gives."""
    if isinstance(module, nn.Linear):
        return values.reshape(-1, values.shape[-1])
    num_spatial = len(module.kernel_size)  # type: ignore[arg-type]
    values = values if values.dim() == num_spatial + 2 else values.unsqueeze(0)
    return values.movedim(1, -1).reshape(-1, values.shape[1])


def patches(module: Any, input: Tensor) -> Tensor:
    """Return one row for each sample (and output position): what the weight multiplies there."""
    if isinstance(module, nn.Linear):
        return input.reshape(-1, input.shape[-1])
    num_spatial = len(module.kernel_size)
    input = input if input.dim() == num_spatial + 2 else input.unsqueeze(0)
    spans = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    if isinstance(module.padding, str):
        pads = [(s // 2, s - s // 2) if module.padding == "same" else (0, 0) for s in spans]
    else:
        pads = [(p, p) for p in module.padding]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    input = F.pad(input, [p for pair in reversed(pads) for p in pair], mode=mode)
    sizes = input.shape[2:]
    starts = [range(0, n - s, st) for n, s, st in zip(sizes, spans, module.stride, strict=True)]
    found = []
    for sample in input:
        for position in itertools.product(*starts):
            window = [
                slice(begin, begin + span + 1, dilation)
                for begin, span, dilation in zip(position, spans, module.dilation, strict=True)
            ]
            found.append(sample[(slice(None), *window)].reshape(-1))
    return torch.stack(found) if found else input.new_zeros(0, module.weight[0].numel())
