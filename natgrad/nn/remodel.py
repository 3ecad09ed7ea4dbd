"""A trained network in, a changed copy out: grow a layer, transfer, rescale. See mixup.py for more.

None of these touches the network it is given. Copies carry no hooks, so an optimizer that watches
the old network does not watch the new one. Layers that are kept stay frozen if they were.
"""

from dataclasses import replace

import torch
from torch import Tensor

from natgrad.nn.network import Network, NetworkConfig, checked_prior_scale, randomize_weight

__all__ = ["grow", "scale_pnorm_layers", "transfer"]


def grow(
    network: Network, width: int | tuple[int, int], *, generator: torch.Generator | None = None
) -> Network:
    """One step of layer-wise back-propagation (C.7): a new hidden layer below a new softmax.

    The hidden layers keep their parameters; the softmax layer is dropped, which the paper found to
    be essential, and a new one of zeros takes its place. If the network was mixed up, the new
    softmax layer has one row per class again. Prior scales are kept.

    >>> from natgrad.nn import build
    >>> shallow = build(4, 3, hidden=[(10, 5)])
    >>> deep = grow(shallow, (20, 5))
    >>> deep.config.hidden
    ((10, 5), (20, 5))
    >>> bool((deep.hidden[0].linear.weight == shallow.hidden[0].linear.weight).all())
    True
    """
    config = replace(network.config, hidden=(*network.config.hidden, width), group_sizes=None)
    grown = with_hidden_layers_of(network, config)
    randomize_weight(grown.hidden_linears()[-1], generator)
    if grown.prior_scale is not None:
        grown.prior_scale.scales = scales_per_class(network).clone()
    return grown


def transfer(network: Network, num_outputs: int, *, class_counts: Tensor | None = None) -> Network:
    """All but the last layer of a network trained on other data, with a new softmax layer of zeros.

    Sub-classes and prior scales belong to the old classes and are dropped; ``class_counts`` gives
    the new classes' prior scales. The input transform stays, as the hidden layers rely on it.

    >>> from natgrad.nn import build
    >>> english = build(4, 3, hidden=[(10, 5)])
    >>> transfer(english, num_outputs=7).output
    Linear(in_features=5, out_features=7, bias=True)
    """
    config = replace(
        network.config,
        num_outputs=num_outputs,
        prior_scale=class_counts is not None,
        group_sizes=None,
    )
    transferred = with_hidden_layers_of(network, config)
    if class_counts is not None:
        scale = checked_prior_scale(class_counts, num_outputs)
        transferred.prior_scale = scale.to(network.output.weight)
    return transferred


def scale_pnorm_layers(network: Network) -> Network:
    """The same function with hidden matrices of unit mean square (appendix C.8).

    A p-norm layer is followed by a renormalisation, so the scale of its weight and bias together
    does not change the output, but it does change how far a given learning rate goes. Each layer is
    scaled so that the mean of the squared elements of its weight is one. The bias gets the same
    factor, else the function would change, but has no vote: the paper speaks of a matrix element,
    and which share of the parameters the biases are differs between layers. (nnet2 uses the
    standard deviation of weights and biases together.)

    >>> from natgrad.nn import build
    >>> scaled = scale_pnorm_layers(build(4, 3, hidden=[(10, 5)] * 2))
    >>> [round(block.linear.weight.square().mean().item(), 4) for block in scaled.hidden]
    [1.0, 1.0]
    """
    if network.config.nonlinearity != "pnorm":
        raise ValueError(
            f"scale_pnorm_layers got a {network.config.nonlinearity} network; only the output of "
            "p-norm layers, which are renormalised, does not depend on their scale."
        )
    scaled = copy_of(network)
    for index, linear in enumerate(scaled.hidden_linears()):
        mean_square = linear.weight.detach().double().square().mean().item()
        if mean_square == 0:
            raise ValueError(
                f"The weight of hidden layer {index} is zero, so no scale makes its mean square "
                "one; initialise or load the network first."
            )
        with torch.no_grad():
            linear.weight.mul_(mean_square**-0.5)
            linear.bias.mul_(mean_square**-0.5)
    return scaled


def copy_of(network: Network) -> Network:
    """The same network in memory of its own, without hooks.

    >>> from natgrad.nn import build
    >>> network = build(4, 3, hidden=[(10, 5)])
    >>> torch.equal(copy_of(network).hidden[0].linear.weight, network.hidden[0].linear.weight)
    True
    """
    return _with_tensors_of(network, network.config, ("",))


def with_hidden_layers_of(network: Network, config: NetworkConfig) -> Network:
    """A network of shape ``config`` with the input transform and hidden layers of ``network``.

    All else is as the constructor leaves it: parameters zero, prior scales one.

    >>> from natgrad.nn import build
    >>> network = build(4, 3, hidden=[(10, 5)])
    >>> with_hidden_layers_of(network, replace(network.config, num_outputs=9)).output.out_features
    9
    """
    return _with_tensors_of(network, config, ("input_transform.", "hidden."))


def _with_tensors_of(
    network: Network, config: NetworkConfig, beginnings: tuple[str, ...]
) -> Network:
    """A network of shape ``config`` with those tensors of another whose names begin so."""
    new = Network(config).to(network.output.weight).train(network.training)
    state = network.state_dict()
    kept = {name: state[name] for name in state if name.startswith(beginnings)}
    new.load_state_dict({**new.state_dict(), **kept})
    frozen = {name for name, parameter in network.named_parameters() if not parameter.requires_grad}
    for name, parameter in new.named_parameters():
        parameter.requires_grad_(name not in frozen or name not in kept)
    return new


def scales_per_class(network: Network) -> Tensor:
    """The prior scales of the classes, also when each sub-class has its own copy of its class's.

    >>> from natgrad.nn import build
    >>> scales_per_class(build(4, 2, hidden=[(10, 5)], class_counts=torch.tensor([16.0, 1.0])))
    tensor([0.6667, 1.3333])
    """
    assert network.prior_scale is not None
    if network.config.group_sizes is None:
        return network.prior_scale.scales
    sizes = torch.tensor(network.config.group_sizes)
    return network.prior_scale.scales[(sizes.cumsum(0) - sizes).to(network.output.weight.device)]
