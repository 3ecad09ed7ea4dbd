"""NGSGD: natural-gradient SGD as a PyTorch optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from natgrad.optim import taps
from natgrad.optim.backward_pass import Pass
from natgrad.optim.groups import check_bias, check_group, list_of_groups, listed, parameters_of
from natgrad.optim.hogwild import counterparts
from natgrad.optim.learned import Learned
from natgrad.optim.matrix import WeightMatrix, learning_rate
from natgrad.optim.refusal import bad_gradient, refuse_bad_gradient
from natgrad.optim.rows import NonFiniteError


class NGSGD(torch.optim.Optimizer):
    """SGD whose gradients are multiplied by a factored inverse Fisher matrix.

    The weight matrices (with their biases) of `nn.Linear`, `nn.Conv1d` and `nn.Conv2d` layers are
    preconditioned; every other parameter, and convolutions with groups, are updated plainly.
    Gradients are sums over the minibatch, and `lr` is per sample:

    >>> model = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 3))
    >>> optimizer = NGSGD(model, lr=0.01)
    >>> x, y = torch.randn(64, 20), torch.randint(3, (64,))
    >>> loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
    >>> optimizer.zero_grad(); loss.backward(); optimizer.step()

    **With a loss that is a mean**, multiply it by the number of samples before `backward`; the
    result is the same. That a loss is a mean cannot be seen from its gradient: without the factor
    nothing fails, but lr is N times too small.

    Args:
        model: the model itself, not its parameters: its layers are tapped for their inputs and
            derivatives.
        lr: learning rate per sample.
        method: "online" (appendix B), "simple" (appendix A), or "none" (plain SGD, same code).
        rank_in, rank_out: rank of the online Fisher factors of each layer's inputs and output
            derivatives; what is learned already keeps its rank when these change.
        alpha: how strongly Fisher matrices are smoothed with the identity; infinity is plain SGD.
        num_samples_history: over about how many samples the online factors are estimated.
        update_period: the online factors are updated on the first 10 minibatches, and every
            so many after.
        max_change_per_sample: a minibatch of N rows may change a layer's parameters by N times
            this in Frobenius norm (appendix C.3); None switches the limit off.
        fused: False: after `backward` the natural gradient, limited by max-change, is in `.grad`,
            and `step` adds it. True: weights change inside the backward pass, `.grad` of tapped
            layers stays None, and `step` finishes the rest: the same weights with neither gradient
            memory nor a second pass over the weights. It is then any backward pass that reaches
            them: for another optimizer's loss, make the forward pass within `untapped()`.
        groups: parameters with options of their own: dictionaries with "params" (a module, a
            parameter, or several of them) and any of the above but `fused`. What no group names
            has the options above. The weight and bias of a layer belong to one group.

    Raises:
        NonFiniteError: by `step`, if a gradient is not finite; it names the layer. Nothing has
            changed then, except, with `fused=True`, the layers that it lists as updated.

    Options may be changed between steps, as schedulers do with `lr`: that takes effect at the next
    `backward`. Clear gradients that are not to be used by `optimizer.zero_grad()`, which also takes
    back what was learned, collected or refused with them: `model.zero_grad()` cannot.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float = 0.01,
        method: str = "online",
        rank_in: int = 20,
        rank_out: int = 80,
        alpha: float = 4.0,
        num_samples_history: float = 2000.0,
        update_period: int = 4,
        max_change_per_sample: float | None = 0.075,
        fused: bool = False,
        groups: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                "NGSGD takes the model itself, as it needs the inputs of each layer, but got "
                f"{type(model).__name__}: write NGSGD(model, ...) instead of "
                "NGSGD(model.parameters(), ...)"
            )
        if not isinstance(fused, bool):
            raise TypeError(f"fused must be True or False, but got {fused!r}")
        defaults = {
            "lr": lr,
            "method": method,
            "rank_in": rank_in,
            "rank_out": rank_out,
            "alpha": alpha,
            "num_samples_history": num_samples_history,
            "update_period": update_period,
            "max_change_per_sample": max_change_per_sample,
        }
        self._option_names = frozenset(defaults)  # self.defaults grows when torch loads a state
        self._pass = Pass(fused)
        self._modules: dict[nn.Module, str] = {}
        self._matrices: dict[Tensor, WeightMatrix] = {}
        self._tapped: list[tuple[nn.Module, WeightMatrix]] = []
        self._names: dict[Tensor, str] = {}
        self._handles: list[RemovableHandle] = []  # of what looks at gradients while they come
        self._know(model)
        own = [dict(group, params=listed(group)) for group in list_of_groups(groups)]
        named = {parameter for group in own for parameter in parameters_of(group["params"])}
        rest = [parameter for parameter in model.parameters() if parameter not in named]
        super().__init__([{"params": rest}, *own] if rest or not own else own, defaults)

    # -- groups ----------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters, or a whole module, with options of their own."""
        items = listed(param_group)
        for item in items:
            if isinstance(item, nn.Module):
                self._know(item)
        param_group = {**self.defaults, **param_group, "params": parameters_of(items)}
        check_group(param_group, set(self.defaults))
        members = set(param_group["params"])
        layers: list[tuple[Any, str]] = [
            (module, name)
            for module, name in self._modules.items()
            if taps.can_tap(module) and module.weight in members
        ]
        for layer, name in layers:
            check_bias(layer, name, members)
        super().add_param_group(param_group)
        for layer, name in layers:
            self._tap(layer, name, self.param_groups[-1])
        if self._pass.fused:
            self._handles += [
                refuse_bad_gradient(parameter, self._name(parameter), self._pass)
                for parameter in param_group["params"]
                if parameter.is_floating_point() or parameter.is_complex()
            ]

    def _name(self, parameter: Tensor) -> str:
        return self._names.get(parameter, "(of an added group)")

    def _know(self, model: nn.Module) -> None:
        taken = set(self._modules.values())
        for name, module in model.named_modules():
            if module not in self._modules:
                name = name or type(module).__name__
                if name in taken:  # in another module that was added
                    name = next(f"{name} #{i}" for i in count(2) if f"{name} #{i}" not in taken)
                self._modules[module] = name
        for name, parameter in model.named_parameters():
            self._names.setdefault(parameter, name)

    def _tap(self, module: Any, name: str, group: dict[str, Any]) -> None:
        matrix = self._matrices.get(module.weight)
        if matrix is None:
            matrix = WeightMatrix(name, module.weight, group, self._pass)
            self._matrices[module.weight] = matrix
        if module.bias is not None and all(module.bias is not bias for bias in matrix.biases):
            matrix.biases.append(module.bias)
        taps.install(module, matrix)
        self._tapped.append((module, matrix))

    # -- steps -----------------------------------------------------------------------------------

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Add -lr times their gradients to all parameters, or with `fused` to those still left."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_taps()
        for matrix in self._matrices.values():
            matrix.complete()  # what `accumulate` collected and no later backward pass reached
        self._pass.learn()  # what a backward pass that did not come to its end has left
        self._refuse_if_not_finite()
        for group in self.param_groups:
            lr = learning_rate(group)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-lr)
        self._finish()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, and with them what an unfinished step has learned or refused.

        With `fused`, weights that a backward pass has changed stay so; there is a warning.
        """
        if self._pass.updated:
            warnings.warn(
                f"zero_grad cannot take back how a backward pass has changed {self._updated()} "
                "since the last step, as fused=True: call step() after each backward pass that is "
                "this optimizer's; for others, as through a discriminator, freeze the layers, or "
                "make the forward pass within optimizer.untapped()",
                stacklevel=2,
            )
        if set_to_none:  # torch's own would first report to the profiler, in 30 us
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad = None
        else:
            super().zero_grad(set_to_none=False)
        self._take_back()

    def _check_taps(self) -> None:
        for module, matrix in self._tapped:
            if taps.tapped_by(module) is not matrix:
                raise RuntimeError(
                    f"layer '{matrix.name}' is no longer tapped by this NGSGD: another was made "
                    "for the same model since, or release() was called; use the newer one"
                )

    def _refuse_if_not_finite(self) -> None:
        parameters = (parameter for group in self.param_groups for parameter in group["params"])
        found = (bad_gradient(parameter, self._name(parameter)) for parameter in parameters)
        refused = self._pass.refused or next(filter(None, found), None)
        if refused is None:
            return
        updated = self._pass.updated
        if updated:
            consequence = (
                "with fused=True, these layers had been updated before it was met: "
                f"{self._updated()}; the others are as they were"
            )
        else:
            consequence = "no parameter and no Fisher factor has changed"
        self._take_back()
        raise NonFiniteError(
            f"the step is refused. {refused}. {consequence[0].upper()}{consequence[1:]}. "
            "Look for bad values in the data or the loss, or lower lr or max_change_per_sample"
        )

    def _updated(self) -> str:
        return ", ".join(self._pass.updated)

    def _finish(self) -> None:
        for matrix in self._matrices.values():
            matrix.finish()
        self._pass.refused = None
        self._pass.updated.clear()

    def _take_back(self) -> None:
        for matrix in self._matrices.values():
            matrix.take_back()
        self._pass.refused = None
        self._pass.updated.clear()
        self._pass.lessons.clear()

    # -- modes -----------------------------------------------------------------------------------

    @contextmanager
    def accumulate(self) -> Iterator[None]:
        """Let several backward passes be one minibatch: within it, they only collect samples.

        The next backward pass outside, or `step`, takes them all together. Without it (and with
        `fused=False`), several backward passes before a `step` are several minibatches to the
        Fisher factors, whose natural gradients add up in `.grad`.

        >>> model = nn.Linear(4, 2)
        >>> optimizer = NGSGD(model, lr=0.01, fused=True)
        >>> with optimizer.accumulate():
        ...     model(torch.randn(8, 4)).square().sum().backward()
        >>> model(torch.randn(8, 4)).square().sum().backward()
        >>> optimizer.step()
        """
        before, self._pass.accumulating = self._pass.accumulating, True
        try:
            yield
        finally:
            self._pass.accumulating = before

    @contextmanager
    def untapped(self) -> Iterator[None]:
        """Let the model's layers compute plain gradients, of which the Fisher factors see nothing.

        It is the forward pass that has to be within; where checkpoints let layers run again in the
        backward pass, that too.
        """
        before, self._pass.tapped = self._pass.tapped, False
        try:
            yield
        finally:
            self._pass.tapped = before

    def release(self) -> None:
        """Untap the model for good: its layers are as they were before this optimizer was made."""
        for module, matrix in self._tapped:
            taps.remove(module, matrix)
        for handle in self._handles:
            handle.remove()

    def replica(self, model: nn.Module) -> NGSGD:
        """Return an optimizer for another thread, with a copy of the model by `share_parameters`.

        Both change the same parameters without waiting for each other (Hogwild, appendix C.1), and
        learn one set of Fisher factors: a thread that finds another at updating one uses it as it
        is. What is learned and counted is in the `state_dict` and `layer_statistics` of either.
        The options are copied as they are now. When a step is refused, or given up by `zero_grad`,
        the factors go back to where it began: what other threads taught them since is lost too.

        >>> model = nn.Linear(4, 2)
        >>> optimizer = NGSGD(model, lr=0.01, fused=True)
        >>> from natgrad.optim import share_parameters
        >>> copied = share_parameters(model)
        >>> replica = optimizer.replica(copied)
        >>> copied(torch.randn(8, 4)).square().sum().backward()
        >>> replica.step()
        >>> optimizer.layer_statistics()["Linear"]["num_minibatches"]
        1
        """
        own = (parameter for group in self.param_groups for parameter in group["params"])
        twin = counterparts({p: self._name(p) for p in own}, model)
        groups = [
            self._own_options(group) | {"params": [twin[p] for p in group["params"]]}
            for group in self.param_groups
        ]
        options = self._own_options(self.defaults)
        replica = NGSGD(model, fused=self._pass.fused, groups=groups, **options)
        for weight, matrix in self._matrices.items():
            replica._matrices[twin[weight]].learned = matrix.learned
        self._pass.has_replicas = replica._pass.has_replicas = True
        return replica

    def _own_options(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that NGSGD knows: torch and its schedulers add others to a group."""
        return {name: group[name] for name in self._option_names}

    # -- what is readable, and what is saved -----------------------------------------------------

    def layer_statistics(self) -> dict[str, dict[str, Any]]:
        """Return how often max-change was active in each layer, and the spectra of its factors.

        `num_limited` of `num_minibatches` were limited. `removed_in` and `removed_out` are the e of
        eqn:etii, from greatest to least: by which part the inputs, or the derivatives, are
        shortened in each direction. If the last is far above 0.2, a higher rank may help; if many
        are below 0.05, a lower one will do.
        """
        statistics: dict[str, dict[str, Any]] = {}
        for matrix in self._matrices.values():
            learned = matrix.learned
            entry: dict[str, Any] = {
                "num_minibatches": learned.num_minibatches,
                "num_limited": learned.num_limited,
            }
            for key, fisher in (
                ("removed_in", learned.fisher_in),
                ("removed_out", learned.fisher_out),
            ):
                if fisher is not None and fisher.factor is not None:
                    entry[key] = fisher.factor.removed(fisher.alpha).tolist()
            statistics[matrix.name] = entry
        return statistics

    def state_dict(self) -> dict[str, Any]:
        """Return the options and the Fisher factors; with it, the next step gives the same bits."""
        for weight, matrix in self._matrices.items():
            self.state[weight] = matrix.state_dict()
        return super().state_dict()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an NGSGD cannot be copied or pickled, as it is tied to the layers of its model: make "
            "another one for the copy of the model, and give it this one's state_dict()"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, for a model of the same layers."""
        if "param_groups" not in state_dict or "state" not in state_dict:
            raise ValueError(
                "this is no state of an optimizer: expected what state_dict() returned, with "
                "'state' and 'param_groups', but it has "
                f"{', '.join(sorted(map(str, state_dict))) or 'nothing'}"
            )
        read: dict[Tensor, Learned] = {}

        def read_before(_: torch.optim.Optimizer, state_dict: dict[str, Any]) -> None:
            read.update(self._read_states(state_dict))  # one that is refused changes nothing

        # As the last of such hooks, it meets what the others have made of the state.
        handle = self.register_load_state_dict_pre_hook(read_before)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in read:
                    self._matrices[parameter].take_over(read[parameter], group)

    def _read_states(self, state_dict: Mapping[str, Any]) -> dict[Tensor, Learned]:
        """Return what is saved of each weight matrix.

        Not from self.state: there, torch rounds the factors to the parameter's type.
        """
        for group in state_dict["param_groups"]:
            if missing := self._option_names - set(group):
                raise ValueError(
                    f"the state has no {', '.join(sorted(missing))}: it was saved by another "
                    "optimizer"
                )
            check_group(self._own_options(group), set(self._option_names))
        own = [parameter for group in self.param_groups for parameter in group["params"]]
        saved = [(i, group) for group in state_dict["param_groups"] for i in group["params"]]
        # Where numbers of parameters differ, torch says so.
        return {
            parameter: self._matrices[parameter].read_state(state_dict["state"].get(i, {}), group)
            for parameter, (i, group) in zip(own, saved, strict=False)
            if parameter in self._matrices
        }
