"""What is measured of the Fisher matrix.

A small p-norm network learns phones by online NG-SGD; then its whole Fisher matrix is measured on
utterances that it has not seen, and its eigenvalues before and after the change of variables.

What is taken for the Fisher matrix is, for each weight matrix, A (x) B with

    online     the low-rank-plus-identity factors that NGSGD has at that moment
    exact      the covariances themselves, on the frames of the Fisher matrix: the best of its kind
    blocks     the diagonal blocks of the Fisher matrix, not factored
    best-R     the best factors of rank R for these covariances
    ...-alpha  online or exact, smoothed with the identity
    as-steps   online, smoothed, and scaled to keep lengths: the matrix that NGSGD multiplies by
    simple     the covariances of one minibatch, smoothed, and scaled to keep lengths

Some eigenvalues are zero whatever the data, as the network does not change when its parameters move
in certain ways (`num_invariances`); they stay zero in any variables, and are left out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from natgrad.nn import NetworkConfig
from natgrad.optim.diagnose import (
    Fisher,
    Pair,
    change_variables,
    change_variables_by_blocks,
    dense,
    learned_factors,
    measure_fisher,
    norm_keeping,
    smoothed,
)
from natgrad.optim.factor import FisherFactor
from natgrad.optim.spread import spread
from natgrad.optim.steady_state import best_factor
from natgrad.recipes.reproduce.eigenvalues.report import report
from natgrad.recipes.reproduce.eigenvalues.results import VARIANTS
from natgrad.recipes.reproduce.eigenvalues.small_training import SmallTraining, trained
from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement
from natgrad.run.config import to_mapping

if TYPE_CHECKING:
    from natgrad.recipes.reproduce.eigenvalues.phone_frames import PhoneFrames

__all__ = ["EIGENVALUES", "EigenvalueSettings", "num_invariances"]

_Changed = Callable[[], Tensor]  # makes the Fisher matrix in other variables
FISHER_SEED = 1_000_000  # added to a seed: that of the utterances on which the Fisher is measured
NUM_QUANTILES = 100
MIN_SEPARATION = 100.0  # between the largest of the eigenvalues that must be zero and the next


@dataclass(frozen=True)
class EigenvalueSettings:
    """What the eigenvalues depend on.

    seeds: of the network, its training and its data, each
    moments: after how many minibatches the matrix is measured; the last is when training ends
    fisher_frames: about on how many
    alphas, ranks: tried at the last moment, beside 0 and those of training
    training: the network, and how it is trained
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    moments: tuple[int, ...] = (100, 3000)
    fisher_frames: int = 8_000
    alphas: tuple[float, ...] = (0.1, 0.5, 1.0, 10.0)
    ranks: tuple[int, ...] = (1, 2, 3, 5, 8, 12)
    training: SmallTraining = field(default_factory=SmallTraining)

    def __post_init__(self) -> None:
        if not self.seeds or not self.moments or list(self.moments) != sorted(set(self.moments)):
            raise ValueError(
                f"seeds is {list(self.seeds)} and moments {list(self.moments)}; expected some of "
                "each, moments in ascending order"
            )
        if self.moments[-1] != self.training.num_minibatches:
            raise ValueError(
                f"the last of the moments is {self.moments[-1]}, but training ends after "
                f"{self.training.num_minibatches} minibatches: set both alike"
            )
        if not self.ranks or min(self.ranks) < 1:
            raise ValueError(f"ranks are {list(self.ranks)}; expected some, all at least 1")
        if not self.alphas or min(self.alphas) <= 0.0:
            raise ValueError(f"alphas are {list(self.alphas)}; expected some, all above 0")


def measurements(settings: EigenvalueSettings, data: Path | None) -> list[Measurement]:
    """Return one per seed and moment."""
    listed = []
    for seed in settings.seeds:
        for moment in settings.moments:
            is_last = moment == settings.moments[-1]
            own: dict[str, Any] = {"seed": seed, "moment": moment}
            own["fisher_frames"] = settings.fisher_frames
            own["training"] = to_mapping(settings.training)
            own["variants"] = list(VARIANTS)
            own["kinds"] = ["true", "empirical"] if is_last else ["true"]
            own["alphas"] = list(settings.alphas) if is_last else []
            ranks = sorted({*settings.ranks, settings.training.rank_out})
            own["ranks"] = ranks if is_last else []
            listed.append(
                Measurement(f"seed-{seed}-after-{moment}", own, _Run(settings.training, own))
            )
    return listed


@dataclass(frozen=True)
class _Run:
    training: SmallTraining
    own: Mapping[str, Any]

    def __call__(self, bench: Bench) -> Found:
        # Here, so that other experiments need not have what synthesis needs.
        from natgrad.recipes.reproduce.eigenvalues.phone_frames import speak_frames

        training, seed = self.training, self.own["seed"]
        frames = speak_frames(training.num_frames, seed, training.num_classes, training.context)
        with bench.progress("training", self.own["moment"]) as update:
            network, optimizer = trained(training, frames, seed, self.own["moment"], update)
        others = speak_frames(
            self.own["fisher_frames"], seed + FISHER_SEED, training.num_classes,
            training.context, frames.phones,
        )  # fmt: skip
        layers = [*network.hidden_linears(), network.output]
        online = [learned_factors(optimizer, layer) for layer in layers]
        precise = copy.deepcopy(network).double()
        precise_layers = [*precise.hidden_linears(), precise.output]
        minibatch = _minibatch_covariances(precise, precise_layers, frames, training)
        zeros = num_invariances(network.config)
        found: Found = {
            "num_parameters": sum(len(p.out) * len(p.into) for p in online),
            "num_invariances": sum(zeros),
            "objective": _objective(precise, others),
        }
        for kind in self.own["kinds"]:
            labels = others.labels if kind == "empirical" else None
            fisher = measure_fisher(precise, precise_layers, others.features.double(), labels)
            variants = _variants(fisher, online, minibatch, training.alpha)
            if kind == "true":
                variants |= _trials(fisher, online, self.own["alphas"], self.own["ranks"])
            with bench.progress(f"eigenvalues, {kind}", len(variants)) as update:
                found[kind] = {}
                for name, changed in variants.items():
                    found[kind][name] = _spectrum(replace(fisher, matrix=changed()), zeros)
                    update(1)
        return found


# -- what stands for the Fisher matrix -----------------------------------------------------------


def _variants(
    fisher: Fisher, online: Sequence[Pair], minibatch: Sequence[Pair], alpha: float
) -> dict[str, _Changed]:
    """Return what `VARIANTS` names."""
    exact = fisher.covariances
    factors: dict[str, Sequence[Pair]] = {
        "online": online,
        "exact": exact,
        "online-alpha": [_smoothed(pair, alpha) for pair in online],
        "exact-alpha": [_smoothed(pair, alpha) for pair in exact],
        "as-steps": [_as_steps(*pairs, alpha) for pairs in zip(online, exact, strict=True)],
        "simple": [_as_steps(*pairs, alpha) for pairs in zip(minibatch, exact, strict=True)],
    }
    return {
        "before": lambda: fisher.matrix,
        "blocks": partial(change_variables_by_blocks, fisher),
        **{name: partial(change_variables, fisher, pairs) for name, pairs in factors.items()},
    }


def _trials(
    fisher: Fisher, online: Sequence[Pair], alphas: Sequence[float], ranks: Sequence[int]
) -> dict[str, _Changed]:
    factors: dict[str, Sequence[Pair]] = {}
    for alpha in alphas:
        factors[f"online-{alpha:g}"] = [_smoothed(pair, alpha) for pair in online]
        factors[f"exact-{alpha:g}"] = [_smoothed(pair, alpha) for pair in fisher.covariances]
    for rank in ranks:
        factors[f"best-{rank}"] = [
            Pair(_best_of_rank(pair.out, rank), _best_of_rank(pair.into, rank))
            for pair in fisher.covariances
        ]
    return {name: partial(change_variables, fisher, pairs) for name, pairs in factors.items()}


def _smoothed(pair: Pair, alpha: float) -> Pair:
    return Pair(smoothed(pair.out, alpha), smoothed(pair.into, alpha))


def _as_steps(pair: Pair, covariances: Pair, alpha: float) -> Pair:
    G = _smoothed(pair, alpha)
    return Pair(norm_keeping(G.out, covariances.out), norm_keeping(G.into, covariances.into))


def _best_of_rank(S: Tensor, rank: int) -> Tensor:
    """Return the best low-rank-plus-identity matrix for S; S itself if the rank is its own."""
    eigenvalues, V = torch.linalg.eigh(S)
    eigenvalues, V = eigenvalues.flip(0).clamp_min(0.0), V.flip(1)
    if rank >= len(S) - 1:
        return S
    best = best_factor(eigenvalues, rank)
    return dense(FisherFactor(best.R @ V.t(), best.d, best.rho))


def _minibatch_covariances(
    network: nn.Module, layers: Sequence[nn.Module], frames: PhoneFrames, training: SmallTraining
) -> Sequence[Pair]:
    """Return what the simple method would take: the covariances of one minibatch of training."""
    step = len(frames) // training.minibatch_size
    few = slice(0, step * training.minibatch_size, step)
    inputs, labels = frames.features[few].double(), frames.labels[few]
    return measure_fisher(network, layers, inputs, labels).covariances


# -- its eigenvalues -----------------------------------------------------------------------------


def num_invariances(config: NetworkConfig) -> list[int]:
    """Return, per weight matrix, in how many directions a p-norm network with p = 2 is constant.

    A group of k rows can be rotated: k (k - 1) / 2 ways. All rows of a hidden layer can be scaled,
    as they are normalised after. And the softmax does not change when a vector is added to all
    rows of the last matrix. There are more where a layer's biases are zero (the groups before it
    can be scaled, each by itself), has two groups, or groups larger than its inputs.

    >>> num_invariances(NetworkConfig(num_inputs=39, num_outputs=30, hidden=[(30, 15), (40, 10)]))
    [16, 61, 11]
    """
    if config.nonlinearity != "pnorm" or config.p != 2.0:
        raise ValueError(
            f"the network's nonlinearity is {config.nonlinearity} with p = {config.p:g}; the "
            "directions in which it is constant are only known for pnorm with p = 2"
        )
    hidden = [groups * math.comb(units // groups, 2) + 1 for units, groups in config.hidden_widths]
    return [*hidden, config.hidden_outputs + 1]


def _spectrum(fisher: Fisher, zeros: Sequence[int]) -> Found:
    """Return the spread of all eigenvalues, of each block's, and their quantiles over the mean."""
    eigenvalues = torch.linalg.eigvalsh(fisher.matrix)
    num_zero = sum(zeros)
    largest_zero, least = float(eigenvalues[num_zero - 1].abs()), float(eigenvalues[num_zero])
    if least < MIN_SEPARATION * largest_zero:
        raise ValueError(
            f"{num_zero} eigenvalues should be zero, the largest of them is {largest_zero:.1e}, "
            f"but the next is {least:.1e}: there are more zeros than the network's shape tells "
            "of. Set more fisher_frames, more groups per layer, or later moments"
        )
    whole = spread(eigenvalues, num_zero)
    blocks = [
        asdict(spread(torch.linalg.eigvalsh(fisher.block(i).matrix), num))
        for i, num in enumerate(zeros)
    ]
    places = torch.linspace(0.0, 1.0, NUM_QUANTILES + 1, dtype=torch.float64)
    quantiles = torch.quantile(eigenvalues[num_zero:], places) / whole.mean
    return {
        **asdict(whole),
        "blocks": blocks,
        "quantiles": quantiles.tolist(),
        "largest_zero": largest_zero / whole.mean,
        "least": least / whole.mean,
    }


def _objective(network: nn.Module, frames: PhoneFrames) -> float:
    with torch.no_grad():
        outputs = network(frames.features.double())
    return -float(nn.functional.cross_entropy(outputs, frames.labels))


EIGENVALUES = Experiment(
    name="eigenvalues",
    asks="After the change of variables that makes our factored Fisher matrix the unit matrix, are "
    "the eigenvalues of the whole Fisher matrix closer to 1 (section 5.1)?",
    settings=EigenvalueSettings,
    measurements=measurements,
    report=report,
)
