"""One weight matrix under natural-gradient SGD: from the rows (X, Y) of a minibatch to its change.

    W <- W - lr alpha_t X_bar^T Y_bar

with X (N, D_out) the derivatives of the loss at the layer's output and Y (N, D_in) its inputs, one
row per sample. The bias is one more column of W, whose input is always 1.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from natgrad.optim.backward_pass import Pass, at_end_of_backward
from natgrad.optim.full_precision import full_precision
from natgrad.optim.learned import Learned
from natgrad.optim.max_change import change_factor
from natgrad.optim.online import OnlineFisher, check_options
from natgrad.optim.product_sum import add_products_
from natgrad.optim.refusal import bad_rows
from natgrad.optim.rows import NonFiniteError, PlainRows, Rows, is_number
from natgrad.optim.simple import simple_rows

METHODS = ("online", "simple", "none")
MAX_LR = torch.finfo(torch.float32).max
OPTIONS_OF_FISHER = ("alpha", "num_samples_history", "update_period")


class Call(NamedTuple):
    """The rows that one call of a layer contributes, and the layer's bias, if any."""

    X: Tensor
    Y: Tensor
    bias: Parameter | None


class OpenCall:
    """A forward call of a layer whose backward pass may come; it lives as long as its graph.

    node: the call's own in that graph, which is what autograd hands to its backward function
    """

    def __init__(self, bias: Parameter | None, node: Any) -> None:
        self.bias = bias
        self._node = weakref.ref(node)

    def is_in_this_pass(self) -> bool:
        """Whether the backward pass that goes on leads through this call, or has done so."""
        node = self._node()
        return node is not None and bool(torch._C._will_engine_execute_node(node))


class Gradient(NamedTuple):
    """The natural gradient of a weight matrix, and of the bias of each layer that uses it."""

    weight: Tensor
    biases: dict[Parameter, Tensor]


class WeightMatrix:
    """A weight parameter with its two Fisher factors; several layers may share it."""

    def __init__(self, name: str, weight: Parameter, group: dict[str, Any], shared: Pass) -> None:
        self.name = name
        self.weight = weight
        self.biases: list[Parameter] = []  # of the layers that use this weight; mostly one
        self.group = group
        self.shared = shared
        self.learned = Learned()
        self._open_calls: weakref.WeakSet[OpenCall] = weakref.WeakSet()
        self._awaited: weakref.WeakSet[OpenCall] = weakref.WeakSet()  # in the pass that goes on
        self._calls: list[Call] = []
        self.has_changed = False
        self._before: tuple[Any, ...] | None = None

    # -- collecting the rows of a minibatch ------------------------------------------------------

    def open_call(self, bias: Parameter | None, node: Any) -> OpenCall:
        """Expect the rows of a call of a layer, for as long as what is returned is kept."""
        call = OpenCall(bias, node)
        self._open_calls.add(call)
        return call

    def collect(self, X: Tensor, Y: Tensor, call: OpenCall) -> Gradient | None:
        """Take the rows of one call of a layer; return the gradient if they complete the minibatch.

        With `fused`, the weights are changed instead, and nothing is returned.
        """
        if self.has_changed:
            self.refuse_second_pass()
        if self.shared.accumulating:
            # After this pass, others may overwrite what the rows are views of.
            self._calls.append(Call(X.clone(), Y.clone(), call.bias))
            return None
        self._calls.append(Call(X, Y, call.bias))
        if self._awaits_another_after(call):
            return None
        with full_precision(X):
            gradient = self._complete()
            if self.shared.has_replicas:
                self.shared.learn()
        if self.shared.lessons:
            at_end_of_backward(self.shared.learn)
        return gradient

    def refuse_second_pass(self) -> NoReturn:
        """Raise RuntimeError: with `fused`, one backward pass has already changed the weights."""
        raise RuntimeError(
            f"a second backward pass reached layer '{self.name}' before optimizer.step(), but "
            "fused=True has already changed its weights in the first: call step() after each "
            "backward pass, or put all but the last into `with optimizer.accumulate():`, or "
            "use fused=False"
        )

    def _awaits_another_after(self, call: OpenCall) -> bool:
        """Whether this backward pass leads through other calls of the weight's layers, too.

        Other graphs may be alive: those of outputs that are kept, or were not used.
        """
        if call not in self._awaited and len(self._open_calls) > 1:
            self._awaited.update(c for c in self._open_calls if c.is_in_this_pass())
        self._awaited.discard(call)
        return len(self._awaited) > 0

    def complete(self) -> None:
        """Let the rows that were collected, if any, be a whole minibatch."""
        if not self._calls:
            return
        with torch.no_grad(), full_precision(self.weight):
            gradient = self._complete()
        self.shared.learn()
        if gradient is not None:
            accumulate_grad(self.weight, gradient.weight)
            for bias, grad in gradient.biases.items():
                accumulate_grad(bias, grad)

    def _complete(self) -> Gradient | None:
        calls, self._calls = self._calls, []
        if self.shared.fused and self.shared.refused is not None:
            return None
        biases = [bias for bias in self.biases if bias.requires_grad]
        lr, limit = learning_rate(self.group), max_change(self.group)
        X, Y = _stack(calls, biases, _compute_dtype(self.weight))
        before = self.learned.snapshot()
        try:
            X_bar, Y_bar = self._precondition(X, Y)
        except NonFiniteError:
            self._forget(before)
            # The first that is met: from there, bad values spread to all that follow.
            inputs = Y[:, : self.weight[0].numel()]  # without the columns of ones
            self.shared.refused = self.shared.refused or bad_rows(self.name, X, inputs)
            if self.shared.fused:
                return None
            X_bar, Y_bar = PlainRows(X, 0.0), PlainRows(Y, 0.0)
        if not self.shared.fused and self._before is None:
            self._before = before
        factor = change_factor(lr, limit, X_bar, Y_bar)
        self.learned.count(is_limited=factor < 1.0)
        if not self.shared.fused:
            return self._gradient(biases, X_bar, Y_bar, factor)
        try:
            self._change(biases, X_bar, Y_bar, -lr * factor)
        except NonFiniteError as error:
            self._forget(before)
            self.shared.refused = f"layer '{self.name}': {error}"
        return None

    def _forget(self, before: tuple[Any, ...]) -> None:
        """Forget what this minibatch has taught, or is about to teach."""
        fishers = (self.learned.fisher_in, self.learned.fisher_out)
        lessons = self.shared.lessons
        self.shared.lessons = [lesson for lesson in lessons if lesson.fisher not in fishers]
        self.learned.restore(before)

    # -- the natural gradient --------------------------------------------------------------------

    def _precondition(self, X: Tensor, Y: Tensor) -> tuple[Rows, Rows]:
        """Return the preconditioned rows, each with the Frobenius norm that it had.

        Those of Y are formed: the product of both, X_bar^T Y_bar, is made of them.
        """
        method = self.group["method"]
        if method == "none":
            return PlainRows(X), PlainRows(Y)
        if method == "simple":
            alpha = self.group["alpha"]
            return simple_rows(X, alpha), simple_rows(Y, alpha, is_formed=True)
        if method != "online":  # set in a group since; else it was checked when the group was made
            raise ValueError(f"method must be one of {', '.join(METHODS)}, but got {method!r}")
        learned = self.learned
        with learned.lock:
            fisher_in = learned.fisher_in = self._fisher(learned.fisher_in, "rank_in", Y.shape[1])
            fisher_out = self._fisher(learned.fisher_out, "rank_out", X.shape[1])
            learned.fisher_out = fisher_out
        if any(lesson.fisher in (fisher_in, fisher_out) for lesson in self.shared.lessons):
            self.shared.learn()  # the second minibatch of one backward pass meets what is learned
        X_bar, lessons_out = fisher_out.meet(X)
        Y_bar, lessons_in = fisher_in.meet(Y, is_formed=True)
        self.shared.lessons += lessons_out + lessons_in
        return X_bar, Y_bar

    def _fisher(self, fisher: OnlineFisher | None, rank: str, dimension: int) -> OnlineFisher:
        """Return the factor of rows of this dimension, with the options of the group.

        A new one, if there is none, or if the dimension has changed, by a bias that was frozen.
        """
        options = {name: self.group[name] for name in OPTIONS_OF_FISHER}
        if fisher is None or not fisher.fits(dimension):
            check_options(self.group[rank], **options, rank_name=rank)
            return OnlineFisher(self.group[rank], **options)
        fisher.configure(**options)
        return fisher

    def _gradient(self, biases: list[Parameter], X: Rows, Y: Rows, scale: float) -> Gradient:
        dtype, device = X.X.dtype, X.X.device
        weight = torch.empty(self.weight.shape, dtype=dtype, device=device)
        grads = [torch.empty(bias.shape, dtype=dtype, device=device) for bias in biases]
        _add_product_(weight.flatten(1), grads, X, Y, scale, keep=False)
        return Gradient(
            weight.to(self.weight.dtype),
            {bias: grad.to(bias.dtype) for bias, grad in zip(biases, grads, strict=True)},
        )

    def _change(self, biases: list[Parameter], X: Rows, Y: Rows, scale: float) -> None:
        parameters = [self.weight, *biases]
        if all(p.is_contiguous() and p.dtype == X.X.dtype and p.requires_grad for p in parameters):
            weight = self.weight if self.weight.dim() == 2 else self.weight.flatten(1)
            _add_product_(weight, biases, X, Y, scale, keep=True)
        else:
            gradient = self._gradient(biases, X, Y, scale)
            changes = {self.weight: gradient.weight, **gradient.biases}
            if not all(bool(change.isfinite().all()) for change in changes.values()):
                raise NonFiniteError(f"its change is beyond what {self.weight.dtype} can hold")
            for parameter, change in changes.items():
                if parameter.requires_grad:  # it may have been frozen since the forward pass
                    parameter.add_(change)
        self.has_changed = True
        self.shared.updated.append(self.name)

    # -- between steps ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Settle what this step did: there is no way back from here."""
        self._before = None
        self.has_changed = False
        self._calls.clear()
        self._awaited.clear()

    def take_back(self) -> None:
        """Return to the Fisher factors of the last `finish`; weights that changed stay changed."""
        if self._before is not None:
            self.learned.restore(self._before)
        self.finish()

    def state_dict(self) -> dict[str, Any]:
        """Return all that the next step depends on."""
        learned = self.learned
        state: dict[str, Any] = {
            "num_minibatches": learned.num_minibatches,
            "num_limited": learned.num_limited,
        }
        if learned.fisher_in is not None and learned.fisher_out is not None:
            state["fisher_in"] = learned.fisher_in.state_dict()
            state["fisher_out"] = learned.fisher_out.state_dict()
        return state

    def read_state(self, state: Mapping[str, Any], group: Mapping[str, Any]) -> Learned:
        """Return what `state_dict` returned, with the options of a group; nothing changes yet."""
        learned = Learned(
            num_minibatches=state.get("num_minibatches", 0),
            num_limited=state.get("num_limited", 0),
        )
        if "fisher_in" in state:
            num_outputs, num_inputs = self.weight.shape[0], self.weight[0].numel()
            with_biases = range(num_inputs, num_inputs + len(self.biases) + 1)
            rank_in, rank_out = group["rank_in"], group["rank_out"]
            learned.fisher_in = self._read(state["fisher_in"], with_biases, group, rank_in)
            learned.fisher_out = self._read(state["fisher_out"], [num_outputs], group, rank_out)
        return learned

    def take_over(self, learned: Learned, group: dict[str, Any]) -> None:
        """Go on from what `read_state` returned."""
        self.group = group
        self.learned.become(learned)
        self.finish()

    def _read(
        self, state: dict[str, Any], dimensions: Sequence[int], group: Mapping[str, Any], rank: int
    ) -> OnlineFisher:
        """Return a saved factor, on the weight's device and in its precision."""
        if "R" in state and state["R"].shape[1] not in dimensions:
            raise ValueError(
                f"the saved Fisher factor of layer '{self.name}' is for vectors of dimension "
                f"{state['R'].shape[1]}, but the layer has {' or '.join(map(str, dimensions))} "
                "(a bias adds one to the inputs): the state was saved for another model"
            )
        like = torch.empty(0, device=self.weight.device, dtype=_compute_dtype(self.weight))
        fisher = OnlineFisher(rank, **{name: group[name] for name in OPTIONS_OF_FISHER})
        fisher.load_state_dict(
            {k: v.to(like, copy=True) if isinstance(v, Tensor) else v for k, v in state.items()}
        )
        return fisher


def _add_product_(
    weight: Tensor, biases: Sequence[Tensor], X: Rows, Y: Rows, scale: float, keep: bool
) -> None:
    """Set [weight biases] to keep * [weight biases] + scale X_bar^T Y_bar, in place."""
    scale *= X.gamma * Y.gamma
    if not abs(scale) <= torch.finfo(X.X.dtype).max:
        raise NonFiniteError(f"its change would be multiplied by {scale:g}")
    add_products_(weight, biases, X.terms(Y.hat()), scale=scale, keep=keep)


def learning_rate(group: Mapping[str, Any]) -> float:
    """Return a group's learning rate, as it is now: it may have been set to anything since."""
    lr = float(group["lr"]) if is_number(group["lr"]) else math.nan
    if not 0.0 <= lr <= MAX_LR:
        raise ValueError(f"lr must be 0 or more, and finite (in float32), but got {group['lr']!r}")
    return lr


def max_change(group: Mapping[str, Any]) -> float | None:
    """Return a group's limit on a minibatch's change, as it is now; None for no limit."""
    limit: float | None = group["max_change_per_sample"]
    if limit is not None and not (is_number(limit) and limit > 0.0):
        raise ValueError(
            f"max_change_per_sample must be positive, or None for no limit, but got {limit!r}"
        )
    return limit


def _compute_dtype(weight: Tensor) -> torch.dtype:
    return torch.float64 if weight.dtype == torch.float64 else torch.float32


def _stack(
    calls: Sequence[Call], biases: Sequence[Parameter], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return X (N, D_out) and Y (N, D_in + number of biases) of all calls.

    Each bias has a column of Y: 1 in the rows of the calls that used it, 0 in the others.
    """
    if len(calls) == 1 and len(biases) <= 1:  # nearly always
        X, Y, bias = calls[0]
        if X.dtype != dtype or Y.dtype != dtype:
            X, Y = X.to(dtype), Y.to(dtype)
        if biases:
            Y = F.pad(Y, (0, 1), value=float(bias is biases[0]))
        return X, Y
    X = torch.cat([call.X.to(dtype) for call in calls])
    Y = torch.cat([call.Y.to(dtype) for call in calls])
    used = torch.tensor([[float(call.bias is bias) for bias in biases] for call in calls])
    num_rows = torch.tensor([len(call.X) for call in calls])
    return X, torch.cat([Y, used.to(Y).repeat_interleave(num_rows.to(Y.device), dim=0)], dim=1)


def accumulate_grad(parameter: Parameter, grad: Tensor) -> None:
    """Add to `.grad`, as autograd does for the gradients that are handed to it."""
    before = parameter.grad
    if before is None:
        parameter.grad = grad
    elif before.is_sparse:  # torch adds a sparse tensor to a dense one, but not the other way round
        parameter.grad = grad + before
    else:  # in its place: it may be a part of a larger buffer
        before.add_(grad)
