"""A network's function in stock operations: for exporters, which know neither ours nor autograd's.

Our layers choose their way by the values they meet and have backward passes of their own; neither
can be exported. Here each has one formula, for inference, that is right for all values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from natgrad.nn import FixedAffine, Network, PNorm, Renormalize, SumGroup

__all__ = ["PlainNetwork"]


class PlainNetwork(nn.Module):
    """(batch, num_inputs) -> (batch, num_outputs): the log posteriors of a `Network`.

    >>> from natgrad.nn import build
    >>> network = build(4, 3, hidden=[(10, 5)])
    >>> x = torch.randn(2, 4)
    >>> torch.allclose(PlainNetwork(network)(x), network.log_posteriors(x), atol=1e-6)
    True
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if network.input_transform is not None:
            layers.append(_plain(network.input_transform))
        for block in network.hidden:
            layers += [_plain(layer) for layer in block.children()]
        layers.append(network.output)
        if network.prior_scale is not None:
            layers.append(network.prior_scale)
        if network.sum_group is not None:
            layers.append(_plain(network.sum_group))
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logarithms of the class posteriors."""
        return torch.log_softmax(self.layers(features), dim=-1)


class _PlainPNorm(nn.Module):
    """With m the largest of a group, m (sum (|x|/m)^p)^(1/p): nothing can overflow."""

    def __init__(self, layer: PNorm) -> None:
        super().__init__()
        self.group_size = layer.in_features // layer.out_features
        self.num_groups, self.p = layer.out_features, layer.p

    def forward(self, x: Tensor) -> Tensor:
        sizes = x.reshape(-1, self.group_size, self.num_groups).abs()
        largest = sizes.amax(1).clamp_min(torch.finfo(torch.float32).tiny)
        shares = sizes / largest.unsqueeze(1)
        powers = shares * shares if self.p == 2 else shares**self.p
        total = powers.sum(1)
        return largest * (total.sqrt() if self.p == 2 else total ** (1 / self.p))


class _PlainRenormalize(nn.Module):
    """In float64, as squares of float32 values may overflow."""

    def __init__(self, layer: Renormalize) -> None:
        super().__init__()
        self.mean_square_floor = layer.mean_square_floor

    def forward(self, x: Tensor) -> Tensor:
        wide = x.double()
        mean_square = (wide * wide).mean(-1, keepdim=True).clamp_min(self.mean_square_floor)
        return (wide / mean_square.sqrt()).float()


class _PlainSumGroup(nn.Module):
    """A logsumexp over the members of each class, of which the small classes have dummies."""

    members: Tensor
    is_member: Tensor

    def __init__(self, layer: SumGroup) -> None:
        super().__init__()
        sizes = torch.tensor(layer.group_sizes)
        ranks = torch.arange(int(sizes.max()))
        is_member = ranks < sizes.unsqueeze(1)  # (classes, most sub-classes)
        first = (sizes.cumsum(0) - sizes).unsqueeze(1)
        self.register_buffer("members", torch.where(is_member, first + ranks, first))
        self.register_buffer("is_member", is_member.float())

    def forward(self, scores: Tensor) -> Tensor:
        each = scores.index_select(1, self.members.flatten()).reshape(-1, *self.members.shape)
        largest = each.amax(-1, keepdim=True)
        total = ((each - largest).exp() * self.is_member).sum(-1)
        return largest.squeeze(-1) + total.log()


def _plain(layer: nn.Module) -> nn.Module:
    if isinstance(layer, PNorm):
        return _PlainPNorm(layer)
    if isinstance(layer, Renormalize):
        return _PlainRenormalize(layer)
    if isinstance(layer, SumGroup):
        return _PlainSumGroup(layer)
    if isinstance(layer, FixedAffine):
        return _linear(layer.weight, layer.bias)
    return layer  # of torch's own


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta").to_empty(device="cpu")
    linear.load_state_dict({"weight": weight, "bias": bias})
    return linear
