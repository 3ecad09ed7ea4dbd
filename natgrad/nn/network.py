"""The networks of the paper: a description, the stack of layers it stands for, and how one begins.

`NetworkConfig` says everything about a network but the values of its tensors, so a network is saved
as its config and its ``state_dict()``, and restored with ``Network(config).load_state_dict(...)``.
"""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import SupportsIndex, cast

import torch
from torch import Tensor, nn

from natgrad.nn.layers import FixedAffine, PNorm, PriorScale, Renormalize
from natgrad.nn.sum_group import SumGroup

__all__ = ["Network", "NetworkConfig", "build"]

PLAIN_NONLINEARITIES: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


@dataclass(frozen=True)
class NetworkConfig:
    """The shape of a network. Lists become tuples, so a config survives a trip through JSON.

    num_inputs: features per example, before the fixed input transform
    num_outputs: classes
    hidden: per hidden layer, (units, groups) for "pnorm", the number of units for the others
    nonlinearity: "pnorm", "relu", "sigmoid" or "tanh"
    p: the p of "pnorm"
    num_transformed: outputs of the fixed input transform; None means that there is none
    prior_scale: whether a `PriorScale` follows the final matrix
    group_sizes: sub-classes of each class; None means that the network is not mixed up

    >>> config = NetworkConfig(num_inputs=4, num_outputs=3, hidden=[[10, 5], [10, 5]])
    >>> config.hidden, config.hidden_outputs
    (((10, 5), (10, 5)), 5)
    """

    num_inputs: int
    num_outputs: int
    hidden: Sequence[int | Sequence[int]]
    nonlinearity: str = "pnorm"
    p: float = 2.0
    num_transformed: int | None = None
    prior_scale: bool = False
    group_sizes: Sequence[int] | None = None

    def __post_init__(self) -> None:
        for name in ("num_inputs", "num_outputs", "hidden", "num_transformed", "group_sizes"):
            value = getattr(self, name)
            if value is not None or name not in ("num_transformed", "group_sizes"):
                object.__setattr__(self, name, _whole(name, value))
        _check(self)

    @property
    def hidden_widths(self) -> list[tuple[int, int]]:
        """Per hidden layer, the outputs of its matrix and those of its nonlinearity."""
        return [(w, w) if isinstance(w, int) else (w[0], w[1]) for w in self.hidden]

    @property
    def hidden_outputs(self) -> int:
        """The dimension that the softmax layer sees."""
        return ([self.num_transformed or self.num_inputs] + [w[1] for w in self.hidden_widths])[-1]


def _whole(name: str, value: object) -> object:
    """The value in Python's own integers and tuples, which JSON knows; numpy's are others."""
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    if is_list and getattr(value, "ndim", 1) > 0:
        return tuple(_whole(name, item) for item in cast(Iterable[object], value))
    try:
        return operator.index(cast(SupportsIndex, value))
    except TypeError as error:
        raise TypeError(
            f"The network's {name} has {value!r}, of type {type(value).__name__}; expected whole "
            "numbers, or lists of them."
        ) from error


def _check(config: NetworkConfig) -> None:
    if not isinstance(config.hidden, tuple):
        raise TypeError(
            f"The network's hidden is {config.hidden!r}; expected a list with the width of each "
            "hidden layer, as in [(3500, 350)] * 4 for p-norm or [1024] * 4 for the others."
        )
    for name in ("num_inputs", "num_outputs", "num_transformed"):
        if isinstance(getattr(config, name), tuple):
            raise TypeError(
                f"The network's {name} is {getattr(config, name)}; expected one whole number."
            )
    if config.nonlinearity not in ("pnorm", *PLAIN_NONLINEARITIES):
        raise ValueError(
            f"The network's nonlinearity is {config.nonlinearity!r}; "
            f"it must be one of pnorm, {', '.join(PLAIN_NONLINEARITIES)}."
        )
    is_pnorm = config.nonlinearity == "pnorm"
    for width in config.hidden:
        if is_pnorm == isinstance(width, int) or (not isinstance(width, int) and len(width) != 2):
            expected = "a pair (units, groups)" if is_pnorm else "one number"
            raise ValueError(
                f"A {config.nonlinearity} network has a hidden layer of width {width}; "
                f"expected {expected}, as in {(3500, 350) if is_pnorm else 1024}."
            )
    sizes = [config.num_inputs, config.num_outputs]
    sizes += [size for pair in config.hidden_widths for size in pair]
    sizes += [] if config.num_transformed is None else [config.num_transformed]
    if min(sizes) < 1:
        raise ValueError(
            f"A network's dimensions must be at least 1, but one is {min(sizes)}: {config}."
        )
    if is_pnorm:
        for units, groups in config.hidden_widths:
            PNorm(units, groups, config.p)  # says what is wrong with them
    if config.group_sizes is not None and len(config.group_sizes) != config.num_outputs:
        raise ValueError(
            f"The network has {config.num_outputs} outputs but {len(config.group_sizes)} group "
            "sizes; expected one group size per output."
        )


class Network(nn.Module):
    """[Fixed input transform,] hidden layers, final matrix [, prior scale] [, sum-group].

    ``network(x)`` returns unnormalised log posteriors of the classes, also for a mixed-up network:
    what ``F.cross_entropy(network(x), labels, reduction="sum")`` wants.

    The stack can be walked: ``input_transform`` (`FixedAffine` or None), ``hidden`` (each of its
    blocks has ``linear``, ``nonlinearity`` and, after a p-norm, ``renormalize``), ``output``,
    ``prior_scale`` and ``sum_group`` (or None). All that is trained is in stock ``nn.Linear``s.

    The constructor leaves every parameter at zero: use `build` to begin, or load a state_dict.

    >>> network = Network(NetworkConfig(num_inputs=4, num_outputs=3, hidden=[(10, 5)]))
    >>> network.hidden[0].linear
    Linear(in_features=4, out_features=10, bias=True)
    >>> network(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        width = config.num_inputs
        self.input_transform: FixedAffine | None = None
        if config.num_transformed is not None:
            zeros = torch.zeros(config.num_transformed, width)
            self.input_transform = FixedAffine(zeros, zeros[:, 0])
            width = config.num_transformed
        blocks = []
        for units, outputs in config.hidden_widths:
            blocks.append(_hidden_block(config, width, units, outputs))
            width = outputs
        self.hidden = nn.ModuleList(blocks)
        num_rows = sum(config.group_sizes) if config.group_sizes else config.num_outputs
        self.output = _zero_linear(width, num_rows)
        self.prior_scale = PriorScale(torch.ones(num_rows)) if config.prior_scale else None
        self.sum_group = SumGroup(config.group_sizes) if config.group_sizes else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., num_inputs) -> (..., num_outputs): unnormalised log posteriors."""
        if self.input_transform is not None:
            x = self.input_transform(x)
        for block in self.hidden:
            x = block(x)
        x = self.output(x)
        if self.prior_scale is not None:
            x = self.prior_scale(x)
        if self.sum_group is not None:
            x = self.sum_group(x)
        return x

    def hidden_linears(self) -> list[nn.Linear]:
        """The matrices of the hidden layers, from the input up."""
        return [cast(nn.Linear, block.get_submodule("linear")) for block in self.hidden]

    def log_posteriors(self, x: Tensor) -> Tensor:
        """(..., num_inputs) -> (..., num_outputs): the logarithms of the class posteriors."""
        return torch.log_softmax(self(x), dim=-1)


def build(
    num_inputs: int,
    num_outputs: int,
    hidden: Sequence[int | Sequence[int]],
    *,
    nonlinearity: str = "pnorm",
    p: float = 2.0,
    input_transform: tuple[Tensor, Tensor] | None = None,
    class_counts: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """A network at the start of training (appendix C.7).

    Hidden weights are normal with a standard deviation of 1/sqrt(fan-in), and the softmax layer is
    zero. Hidden biases start at zero too: the paper does not say (nnet2's p-norm recipes drew them
    with a standard deviation of 0.5). For layer-wise training begin with one hidden layer, `grow`.

    ``input_transform`` is the (matrix, offset) of `natgrad.nn.input_transform`; ``class_counts``
    adds the fixed scales of `PriorScale`. All randomness is drawn from ``generator``.

    >>> network = build(40, 10, hidden=[(100, 10)] * 2, generator=torch.Generator().manual_seed(1))
    >>> network(torch.ones(1, 40)).tolist() == [[0.0] * 10]
    True
    """
    config = NetworkConfig(
        num_inputs,
        num_outputs,
        hidden,
        nonlinearity=nonlinearity,
        p=p,
        num_transformed=None if input_transform is None else len(input_transform[0]),
        prior_scale=class_counts is not None,
    )
    network = Network(config)
    if input_transform is not None:
        network.input_transform = _checked_transform(input_transform, num_inputs)
    if class_counts is not None:
        network.prior_scale = checked_prior_scale(class_counts, num_outputs)
    for linear in network.hidden_linears():
        randomize_weight(linear, generator)
    return network


def randomize_weight(linear: nn.Linear, generator: torch.Generator | None) -> None:
    """Draw a hidden layer's weight: normal, with a standard deviation of 1/sqrt(fan-in).

    >>> linear = torch.nn.Linear(400, 100)
    >>> randomize_weight(linear, torch.Generator().manual_seed(1))
    >>> round(linear.weight.std().item(), 3)
    0.05
    """
    with torch.no_grad():
        linear.weight.copy_(draw_normal(linear.weight.shape, generator) / linear.in_features**0.5)


def draw_normal(shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Standard normal values, drawn where the generator lives: a seed means the same on any device.

    >>> draw_normal([2, 3], None).shape
    torch.Size([2, 3])
    """
    device = "cpu" if generator is None else generator.device
    return torch.randn(*shape, generator=generator, device=device)


def checked_prior_scale(class_counts: Tensor, num_outputs: int) -> PriorScale:
    """`PriorScale`, once there is one count per class.

    >>> checked_prior_scale(torch.ones(3), num_outputs=3).scales
    tensor([1., 1., 1.])
    """
    if len(class_counts) != num_outputs:
        raise ValueError(
            f"class_counts has {len(class_counts)} elements but the network has {num_outputs} "
            "outputs; pass the number of training examples of every class."
        )
    return PriorScale(class_counts)


def _checked_transform(transform: tuple[Tensor, Tensor], num_inputs: int) -> FixedAffine:
    affine = FixedAffine(*transform)
    if affine.weight.shape[1] != num_inputs:
        raise ValueError(
            f"The input transform's matrix has shape {tuple(affine.weight.shape)}, but the network "
            f"has {num_inputs} inputs; the matrix needs {num_inputs} columns."
        )
    return affine


def _hidden_block(config: NetworkConfig, inputs: int, units: int, outputs: int) -> nn.Sequential:
    layers: OrderedDict[str, nn.Module] = OrderedDict(linear=_zero_linear(inputs, units))
    if config.nonlinearity == "pnorm":
        layers["nonlinearity"] = PNorm(units, outputs, config.p)
        layers["renormalize"] = Renormalize()
    else:
        layers["nonlinearity"] = PLAIN_NONLINEARITIES[config.nonlinearity]()
    return nn.Sequential(layers)


def _zero_linear(inputs: int, outputs: int) -> nn.Linear:
    # torch's own initialisation would draw from the global generator; on "meta" it draws nothing.
    linear = nn.Linear(inputs, outputs, device="meta").to_empty(device="cpu")
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
