"""Networks: the layers, builders and input transform of the paper."""

from natgrad.nn.layers import FixedAffine, PNorm, PriorScale, Renormalize, pnorm, renormalize
from natgrad.nn.mixup import allocate_subclasses, mix_up
from natgrad.nn.network import Network, NetworkConfig, build
from natgrad.nn.normalize import ClassStatistics, input_transform
from natgrad.nn.remodel import grow, scale_pnorm_layers, transfer
from natgrad.nn.sum_group import SumGroup

__all__ = [
    "ClassStatistics",
    "FixedAffine",
    "Network",
    "NetworkConfig",
    "PNorm",
    "PriorScale",
    "Renormalize",
    "SumGroup",
    "allocate_subclasses",
    "build",
    "grow",
    "input_transform",
    "mix_up",
    "pnorm",
    "renormalize",
    "scale_pnorm_layers",
    "transfer",
]
