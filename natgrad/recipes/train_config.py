"""All options of a training run, with their defaults and what they exclude.

[data]          examples = "exp/examples"
[network]       hidden = [[3500, 350], [3500, 350], [3500, 350], [3500, 350]]
[training]      num_epochs = 5, num_jobs = 4
[optimizer]     method = "online"
[combination]   method = "generalised"
[outer]         momentum = 0.0, job_lr_power = 1.0, fisher = "reset"
[engine]        name = "local"
[run]           directory = "exp/dnn2"
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from natgrad.nn import NetworkConfig
from natgrad.optim.groups import check_group
from natgrad.parallel.outer_step import OuterOptimizer
from natgrad.run.config import to_mapping

__all__ = [
    "CombinationConfig",
    "DataConfig",
    "EngineConfig",
    "NetworkShape",
    "OptimizerConfig",
    "OuterConfig",
    "RunConfig",
    "TrainConfig",
    "TrainingConfig",
    "settings_of",
]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _require_some(config: object, *names: str) -> None:
    """Raise ValueError for a number below 1; None, where it may be, is for others to say."""
    for name in names:
        number = getattr(config, name)
        _require(number is None or number >= 1, f"{name} is {number}, but must be at least 1")


@dataclass(frozen=True)
class RunConfig:
    """Where the run leaves what it does, and what its random numbers are drawn from.

    keep_models: of all iterations, rather than those that the combination needs
    diagnostics_every: models are evaluated so many outer iterations apart, and the last one: where
        iterations are short, each takes no longer than its evaluation
    """

    directory: str
    seed: int = 0
    keep_models: bool = False
    diagnostics_every: int = 1

    def __post_init__(self) -> None:
        _require(bool(self.directory), "directory is empty, but must name one for the run alone")
        _require(
            -(2**63) <= self.seed < 2**64, f"seed is {self.seed}, but must be a number of 64 bits"
        )
        _require_some(self, "diagnostics_every")


@dataclass(frozen=True)
class DataConfig:
    """What to train on: a directory that `natgrad.data.build` has made."""

    examples: str


@dataclass(frozen=True)
class NetworkShape:
    """The network to train, and how it comes to its shape.

    hidden: per hidden layer, [units, groups] for "pnorm", the number of units for the others
    initial_num_hidden: hidden layers to begin with; None means all at once
    iterations_per_layer: a hidden layer is added after so many outer iterations (appendix C.7)
    output: "prior_scale" (the fixed scale prior^-0.25), "mix_up" (sub-classes) or "plain" (C.5)
    num_subclasses: rows of the softmax layer after mixing up; None means twice the classes
    mix_up_at: when to mix up, as a part of the run
    normalize_input: whether a fixed transform of the input is estimated before training (C.6)
    normalization_samples: on how many samples
    transfer_from: a model file, from which all but the last layer is taken
    """

    hidden: tuple[int | tuple[int, ...], ...]
    nonlinearity: Literal["pnorm", "relu", "sigmoid", "tanh"] = "pnorm"
    p: float = 2.0
    initial_num_hidden: int | None = 1
    iterations_per_layer: int = 2
    output: Literal["prior_scale", "mix_up", "plain"] = "prior_scale"
    num_subclasses: int | None = None
    mix_up_at: float = 0.5
    normalize_input: bool = True
    normalization_samples: int = 100_000
    transfer_from: str | None = None

    def __post_init__(self) -> None:
        # Its layers are checked now, and not when data have been prepared for it.
        NetworkConfig(1, 1, self.hidden, self.nonlinearity, self.p)
        first, last = self.initial_num_hidden, len(self.hidden)
        _require(
            first is None or 0 <= first <= last,
            f"initial_num_hidden is {first}, but hidden lists {last} layers",
        )
        _require_some(self, "iterations_per_layer", "normalization_samples")
        _require(0 < self.mix_up_at < 1, "mix_up_at is a part of the run: between 0 and 1")
        _require(
            self.num_subclasses is None or self.output == "mix_up",
            f"num_subclasses is given, but output is {self.output!r}: it goes with 'mix_up'",
        )
        _require_some(self, "num_subclasses")


@dataclass(frozen=True)
class TrainingConfig:
    """How long, with how many jobs, at which learning rates.

    num_jobs: N of the paper; initial_num_jobs: N at the beginning, from which it rises to num_jobs
    initial_effective_lr, final_effective_lr: per sample; a job's is the effective one times N (or
        less: see OuterConfig)
    num_threads: threads of each job that share its parameters without locks (Hogwild). With more
        than one, the order of their steps is left to chance, and runs are not repeatable
    native_kernels: jobs compute with natgrad's own C kernels, as after
        `natgrad.use_native_kernels()`, which makes them faster. Each machine that trains needs a C
        compiler. Runs are as repeatable as without it, but their bits are others
    """

    num_epochs: float = 5.0
    num_jobs: int = 1
    initial_num_jobs: int | None = None
    initial_effective_lr: float = 0.01
    final_effective_lr: float = 0.001
    minibatch_size: int = 128
    num_threads: int = 1
    native_kernels: bool = False

    def __post_init__(self) -> None:
        _require(
            0 < self.num_epochs < math.inf,
            f"num_epochs is {self.num_epochs}, but must be positive and finite",
        )
        _require_some(self, "num_jobs", "minibatch_size", "num_threads")
        _require(
            self.initial_num_jobs is None or 1 <= self.initial_num_jobs <= self.num_jobs,
            f"initial_num_jobs is {self.initial_num_jobs}: it must be from 1 to num_jobs, "
            f"{self.num_jobs}",
        )
        _require(
            0 < self.final_effective_lr <= self.initial_effective_lr,
            "learning rates must be positive, and the final one not above the initial one, but "
            f"final_effective_lr is {self.final_effective_lr} and initial_effective_lr "
            f"{self.initial_effective_lr}",
        )


@dataclass(frozen=True)
class OptimizerConfig:
    """The options of `natgrad.NGSGD`, which says what they mean."""

    method: Literal["online", "simple", "none"] = "online"
    rank_in: int = 20
    rank_out: int = 80
    alpha: float = 4.0
    num_samples_history: float = 2000.0
    update_period: int = 4
    max_change_per_sample: float | None = 0.075  # 0 switches the limit off, as TOML has no None

    def __post_init__(self) -> None:
        if self.max_change_per_sample == 0:
            object.__setattr__(self, "max_change_per_sample", None)
        options = {"lr": 0.0, **vars(self)}  # jobs have learning rates of their own
        check_group(options, set(options))


@dataclass(frozen=True)
class CombinationConfig:
    """What becomes of the last models (appendix C.4).

    method: "generalised" (weights per layer by L-BFGS), "mean" (of the last n, n by objective) or
        "last" (the last model as it is)
    data: what they are judged on. "train" is the training subset, as in the paper: for much data,
        as on little it prefers what is overfitted (docs/averaging.md has figures). With the other
        two, the validation data say a little too much good of the final model
    num_models: P of the paper
    """

    method: Literal["generalised", "mean", "last"] = "generalised"
    data: Literal["train", "validation", "both"] = "both"
    num_models: int = 20

    def __post_init__(self) -> None:
        _require_some(self, "num_models")


@dataclass(frozen=True)
class OuterConfig:
    """What goes from one outer iteration to the next beside the mean (docs/averaging.md).

    By default nothing, as in the paper.

    momentum, learning_rate, nesterov: of the outer optimizer, to which the jobs' mean step is what
        a gradient is to SGD; 0 and 1 mean that the next jobs begin with the mean itself
    job_lr_power: a job's learning rate is the effective one times N to this power: 1 is the
        paper's, 0 is no more than one job alone would have
    fisher: what becomes of the jobs' Fisher factors: "reset" (each job learns them anew), "kept"
        (job i goes on with those of job i before) or "averaged" (all go on with the mean of all)
    fresh: what becomes of the jobs' models right after parameters were drawn at random: "best" (one
        is taken, appendix C.7) or "average" (they are averaged as ever)
    """

    momentum: float = 0.0
    learning_rate: float = 1.0
    nesterov: bool = True
    job_lr_power: float = 1.0
    fisher: Literal["reset", "kept", "averaged"] = "reset"
    fresh: Literal["best", "average"] = "best"

    def __post_init__(self) -> None:
        self.optimizer()  # or complain
        _require(
            0 <= self.job_lr_power <= 1,
            f"job_lr_power is {self.job_lr_power}, but must be from 0 (a job's learning rate is "
            "the effective one) to 1 (it is N times that)",
        )

    def optimizer(self) -> OuterOptimizer:
        """Return the outer optimizer."""
        return OuterOptimizer(self.momentum, self.learning_rate, self.nesterov)


@dataclass(frozen=True)
class EngineConfig:
    """Where jobs run; it may be another one when a run is resumed.

    num_workers: how many jobs at the same time; None means as many as the run has, on this machine
        not more than it has cores
    options: what the engine itself takes, as in docs/engines.md
    """

    name: str = "local"
    num_workers: int | None = None
    max_attempts: int = 20  # of a job that is lost, before the run gives up
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_some(self, "num_workers", "max_attempts")


@dataclass(frozen=True)
class TrainConfig:
    """A whole training run."""

    run: RunConfig
    data: DataConfig
    network: NetworkShape
    training: TrainingConfig = TrainingConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    combination: CombinationConfig = CombinationConfig()
    engine: EngineConfig = field(default_factory=EngineConfig)
    outer: OuterConfig = field(default_factory=OuterConfig)

    def __post_init__(self) -> None:
        method = self.optimizer.method
        _require(
            self.outer.fisher == "reset" or method == "online",
            f"outer.fisher is '{self.outer.fisher}', but optimizer.method is '{method}', which "
            "has no Fisher factors that last: only those of 'online' can be kept",
        )


def settings_of(table: object) -> dict[str, Any]:
    """Return a table as a stage or a measurement keeps it, to be done again if it is another.

    native_kernels is there only if it is true: what was done before there was that key was done
    without them, and is not done again.

    >>> settings_of(TrainingConfig()).keys() ^ settings_of(TrainingConfig(native_kernels=True))
    {'native_kernels'}
    """
    settings = to_mapping(table)
    if settings.get("native_kernels") is False:
        del settings["native_kernels"]
    return settings
