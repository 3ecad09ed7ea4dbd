"""Mixing up: giving the classes of a softmax layer sub-classes in the middle of training (C.5)."""

import heapq
import math
from dataclasses import replace

import torch
from torch import Tensor

from natgrad.nn.network import Network, draw_normal
from natgrad.nn.remodel import with_hidden_layers_of

__all__ = ["allocate_subclasses", "mix_up"]


def allocate_subclasses(
    class_counts: Tensor, num_subclasses: int, power: float = 1 / 3
) -> list[int]:
    """How many sub-classes each class gets: in proportion to ``count^power``, at least one each.

    Starting from one each, the next sub-class always goes to the class with the largest
    ``count^power / (sub-classes + 1/2)``, the lower index where two are equal. This is Webster's
    method of apportionment: among the divisor methods the one that rounds shares to nearest. The
    result sums to ``num_subclasses``; a class with a larger count never has fewer than another; and
    when ``num_subclasses`` grows, no class loses one. Classes without data keep one sub-class.

    >>> allocate_subclasses(torch.tensor([1000.0, 1.0, 125.0, 0.0]), num_subclasses=18)
    [11, 1, 5, 1]
    """
    counts = torch.as_tensor(class_counts).double()
    if counts.ndim != 1 or not bool((counts >= 0).all()) or not 0 < counts.sum() < math.inf:
        raise ValueError(
            f"class_counts of shape {tuple(counts.shape)} sums to {counts.sum().item():g}; "
            "expected one count per class, none negative and not all zero."
        )
    if num_subclasses < len(counts):
        raise ValueError(
            f"num_subclasses={num_subclasses} is less than the {len(counts)} classes, which need "
            "at least one each; about twice the number of classes is usual."
        )
    shares = counts.pow(power).where(counts > 0, 0.0).tolist()
    sizes = [1] * len(shares)
    queue = [(-share / 1.5, index) for index, share in enumerate(shares)]
    heapq.heapify(queue)
    for _ in range(num_subclasses - len(sizes)):
        index = queue[0][1]
        sizes[index] += 1
        heapq.heapreplace(queue, (-shares[index] / (sizes[index] + 0.5), index))
    return sizes


def mix_up(
    network: Network,
    class_counts: Tensor,
    num_subclasses: int,
    *,
    power: float = 1 / 3,
    noise_stddev: float = 0.01,
    generator: torch.Generator | None = None,
) -> Network:
    """A copy of the network whose classes have ``num_subclasses`` sub-classes between them.

    Each row of the new final matrix is its class's old row plus normal noise, so that sub-classes
    can part ways. The bias of a class with n of them falls by log n, so that without noise the
    posteriors of the classes stay what they were. (Below a prior scale s, it falls by log(n) / s.)

    >>> from natgrad.nn import build
    >>> network = build(4, 3, hidden=[(10, 5)])
    >>> mixed = mix_up(network, class_counts=torch.tensor([27.0, 1.0, 8.0]), num_subclasses=6)
    >>> mixed.config.group_sizes, mixed.output
    ((3, 1, 2), Linear(in_features=5, out_features=6, bias=True))
    """
    if network.config.group_sizes is not None:
        raise ValueError(
            f"The network is already mixed up, to {sum(network.config.group_sizes)} sub-classes; "
            "mix up the network from before that, with the larger number."
        )
    if len(class_counts) != network.config.num_outputs:
        raise ValueError(
            f"class_counts has {len(class_counts)} elements but the network has "
            f"{network.config.num_outputs} outputs; pass the training examples of every class."
        )
    if not 0 <= noise_stddev < math.inf:
        raise ValueError(
            f"mix_up got noise_stddev={noise_stddev}; it must be finite and not negative (0.01 is "
            "the default)."
        )
    group_sizes = allocate_subclasses(class_counts, num_subclasses, power)
    mixed = with_hidden_layers_of(network, replace(network.config, group_sizes=group_sizes))
    weight, bias = network.output.weight.detach(), network.output.bias.detach()
    sizes = torch.tensor(group_sizes, device=weight.device)
    fall = sizes.to(weight.dtype).log()
    if network.prior_scale is not None and mixed.prior_scale is not None:
        fall = fall / network.prior_scale.scales
        mixed.prior_scale.scales = network.prior_scale.scales.repeat_interleave(sizes)
    noise = draw_normal(mixed.output.weight.shape, generator).to(weight) * noise_stddev
    with torch.no_grad():
        mixed.output.weight.copy_(weight.repeat_interleave(sizes, dim=0) + noise)
        mixed.output.bias.copy_((bias - fall).repeat_interleave(sizes))
    return mixed
