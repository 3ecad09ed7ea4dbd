"""The optimizers that `benchmarks.convergence` compares, each as its users use it.

The same for all: no weight decay (each sample is seen once: there is nothing to regularise), and
what is not named here is at the library's default. What an optimizer leaves to another one is said
in its note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from pytorch_optimizer import SOAP, ScalableShampoo
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from natgrad import NGSGD
from natgrad.nn import Network

Make = Callable[[Network, float], list[Optimizer]]

# Minibatches between two of Shampoo's matrix roots; its default of 1000 is more than the whole run.
SHAMPOO_PERIOD = 50


@dataclass(frozen=True)
class Contender:
    """One row of the comparison; `lr` is the middle of its first grid."""

    name: str
    make: Make
    lr: float
    note: str
    reduction: str = "mean"  # of the loss that its lr is meant for


def sgd(network: Network, lr: float) -> list[Optimizer]:
    return [SGD(network.parameters(), lr=lr)]


def momentum(network: Network, lr: float) -> list[Optimizer]:
    return [SGD(network.parameters(), lr=lr, momentum=0.9)]


def adamw(network: Network, lr: float) -> list[Optimizer]:
    return [AdamW(network.parameters(), lr=lr, weight_decay=0.0)]


def muon(with_softmax: bool) -> Make:
    def make(network: Network, lr: float) -> list[Optimizer]:
        if not hasattr(torch.optim, "Muon"):
            raise SystemExit(
                f"the comparison needs torch.optim.Muon, which torch {torch.__version__} lacks: "
                "install the tested version with  pip install -c constraints.txt torch"
            )
        matrices: list[Tensor] = [p for p in network.hidden.parameters() if p.ndim == 2]
        rest: list[Tensor] = [p for p in network.hidden.parameters() if p.ndim != 2]
        (matrices if with_softmax else rest).append(network.output.weight)
        rest.append(network.output.bias)
        return [
            torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            AdamW(rest, lr=lr, weight_decay=0.0),
        ]

    return make


def shampoo(network: Network, lr: float) -> list[Optimizer]:
    optimizer: Optimizer = ScalableShampoo(
        network.parameters(),
        lr=lr,
        preconditioning_compute_steps=SHAMPOO_PERIOD,
        start_preconditioning_step=SHAMPOO_PERIOD,
    )
    return [optimizer]


def soap(network: Network, lr: float) -> list[Optimizer]:
    optimizer: Optimizer = SOAP(network.parameters(), lr=lr, weight_decay=0.0)
    return [optimizer]


def ngsgd(method: str) -> Make:
    return lambda network, lr: [NGSGD(network, lr=lr, method=method, fused=True)]


CONTENDERS = (
    Contender("SGD", sgd, 0.5, "torch.optim.SGD"),
    Contender("SGD, momentum", momentum, 0.2, "torch.optim.SGD with momentum 0.9"),
    Contender("AdamW", adamw, 0.032, "torch.optim.AdamW"),
    Contender(
        "Muon",
        muon(with_softmax=False),
        0.064,
        'torch.optim.Muon with adjust_lr_fn="match_rms_adamw" for the hidden weight matrices. It '
        "takes 2-D weights only, and by custom not the softmax layer's: those and the biases by "
        "AdamW, at the same lr (which that option is for)",
    ),
    Contender(
        "Muon, all matrices",
        muon(with_softmax=True),
        0.032,
        "the same against the custom: only the biases by AdamW",
    ),
    Contender(
        "Shampoo",
        shampoo,
        0.16,
        "pytorch_optimizer.ScalableShampoo, step sizes grafted from SGD (its default), matrix "
        f"roots every {SHAMPOO_PERIOD} minibatches",
    ),
    Contender(
        "SOAP",
        soap,
        0.016,
        "pytorch_optimizer.SOAP, new bases every 10 minibatches and biases by Adam (its defaults)",
    ),
    Contender(
        "NGSGD none",
        ngsgd("none"),
        0.004,
        'natgrad.NGSGD, method="none": plain SGD with max-change, the control for the next two',
        reduction="sum",
    ),
    Contender(
        "NGSGD simple",
        ngsgd("simple"),
        0.016,
        'natgrad.NGSGD, method="simple", otherwise as it comes',
        reduction="sum",
    ),
    Contender(
        "NGSGD online",
        ngsgd("online"),
        0.016,
        "natgrad.NGSGD as it comes, but fused (the same weights)",
        reduction="sum",
    ),
)
