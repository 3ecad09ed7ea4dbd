"""A training run, from its configuration to its final model.

    natgrad train CONFIG.toml

>>> config = TrainConfig(
...     run=RunConfig("exp/dnn"),
...     data=DataConfig("exp/examples"),
...     network=NetworkShape(hidden=((400, 80), (400, 80))),
...     training=TrainingConfig(num_epochs=4, num_jobs=4),
... )
>>> train(config)  # doctest: +SKIP

The same call again goes on where the last one ended, however it ended.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from natgrad.data import Examples, open_examples
from natgrad.optim.schedule import exponential
from natgrad.parallel.engines import check_engine, open_engine, runs_here
from natgrad.parallel.handover import Handover
from natgrad.parallel.outer import OuterLoop
from natgrad.parallel.plan import Iteration, make_plan
from natgrad.recipes.combination import combine_run, iterations_to_combine
from natgrad.recipes.fisher_states import average_states
from natgrad.recipes.kept_examples import keep_examples
from natgrad.recipes.network_job import (
    check_held_out,
    compile_kernels,
    evaluate_model,
    parameter_names,
    train_job,
)
from natgrad.recipes.structure import check_beginning, initial_model, remodel, with_changes
from natgrad.recipes.train_config import (
    CombinationConfig,
    DataConfig,
    EngineConfig,
    NetworkShape,
    OptimizerConfig,
    OuterConfig,
    RunConfig,
    TrainConfig,
    TrainingConfig,
)
from natgrad.run.config import ConfigError, from_mapping, read_toml, set_key, to_mapping
from natgrad.run.directory import RunDirectory
from natgrad.run.events import EventLog, read_events
from natgrad.run.model_file import read_model, write_model
from natgrad.version import __version__

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
    "train",
    "train_from_toml",
]

OnEvent = Callable[[dict[str, Any]], None]
BACKGROUND_NICENESS = 10
FREE_TABLES = ("engine",)  # what a run is resumed with may differ from what it began with
# What an older run without them was begun with.
ADDED = {
    "outer": to_mapping(OuterConfig()),
    "run": {"diagnostics_every": 1},
    "training": {"native_kernels": False},
}


def train_from_toml(
    path: str | Path, overrides: Sequence[str] = (), on_event: OnEvent | None = None
) -> Path:
    """Train as a TOML file says; `overrides` are as in "training.num_jobs=4"."""
    mapping = read_toml(path)
    for assignment in overrides:
        set_key(mapping, assignment)
    try:
        config = from_mapping(TrainConfig, mapping)
    except ConfigError as error:
        by = f", changed by {', '.join(overrides)}" if overrides else ""
        raise ConfigError(f"{path}{by}: {error}") from error
    return train(config, on_event)


def train(config: TrainConfig, on_event: OnEvent | None = None) -> Path:
    """Train, or go on with training, and return the path of the final model.

    Every event of the run is also given to `on_event`.
    """
    check_engine(config.engine.name, config.engine.options)
    run = RunDirectory(config.run.directory)
    examples = open_examples(Path(config.data.examples).absolute())
    if run.path.resolve() == examples.directory.resolve():
        raise ConfigError(
            f"run.directory and data.examples are both {examples.directory}: a run needs a "
            "directory of its own"
        )
    plan = plan_of(config, examples)
    to_combine = iterations_to_combine(config.combination, plan, examples)
    compiles_here = config.training.native_kernels and runs_here(config.engine.name)
    if run.last_iteration() is None and not run.final.exists():
        # What would fail later, and leave a configuration behind.
        check_beginning(config.network, examples)
        check_held_out(examples)
        if compiles_here and not run.config.exists():
            compile_kernels("; or leave the key out, which only makes training faster")
    with run.drive():
        run.keep_config(to_mapping(config), FREE_TABLES, ADDED)
        log = EventLog(run.events)

        def emit(event: str, **fields: Any) -> None:
            record = log.append(event, **fields)
            if on_event is not None:
                on_event(record)

        if run.final.exists():
            read_model(run.final)  # or say that it is not whole
            if not _is_complete(run):  # the last driver was killed before its last word
                emit("end", status="complete", message=f"the final model is {run.final}")
            return run.final
        keep_examples(run, examples)
        if compiles_here:
            compile_kernels()  # the key can no longer be left out
        emit(
            "start",
            num_iterations=len(plan),
            num_epochs=plan[-1].epoch,
            engine=config.engine.name,
            resumed_from=run.last_iteration(),
            version=__version__,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        try:
            _train_and_combine(config, run, examples, plan, to_combine, emit)
        except BaseException as error:
            with suppress(OSError):  # a full disk, say: what has failed before is what to tell
                emit("end", status="failed", message=str(error) or type(error).__name__)
            raise
        emit("end", status="complete", message=f"the final model is {run.final}")
    return run.final


def _is_complete(run: RunDirectory) -> bool:
    return any(event["status"] == "complete" for event in _events(run, "end"))


def _events(run: RunDirectory, kind: str) -> list[dict[str, Any]]:
    events = read_events(run.events) if run.events.exists() else []
    return [event for event in events if event["event"] == kind]


def _train_and_combine(
    config: TrainConfig,
    run: RunDirectory,
    examples: Examples,
    plan: list[Iteration],
    to_combine: list[list[int]],
    emit: Callable[..., None],
) -> None:
    if run.last_iteration() is None:
        model = initial_model(config.network, examples, config.run.seed)
        write_model(run.model(0), model.tensors, model.description)
    with ExitStack() as stack:
        engine, background = _open_engines(config, stack)
        loop = OuterLoop(
            run=run,
            plan=plan,
            engine=engine,
            background=background,
            train=train_job,
            evaluate=evaluate_model if examples.validation or examples.train_subset else None,
            remodel=remodel,
            parameters=parameter_names,
            handover=Handover(run, config.outer.optimizer(), config.outer.fisher, average_states),
            options=job_options(config, examples),
            seed=config.run.seed,
            emit=emit,
            keep=None if config.run.keep_models else frozenset(chain(*to_combine)),
            evaluated=frozenset(event["iteration"] for event in _events(run, "diagnostics")),
            evaluate_every=config.run.diagnostics_every,
            num_threads=config.training.num_threads,
            max_attempts=config.engine.max_attempts,
        )
        loop.train_all()
        combine_run(
            config.combination,
            run,
            to_combine,
            examples,
            engine,
            config.engine.max_attempts,
            emit,
        )


def job_options(config: TrainConfig, examples: Examples) -> dict[str, Any]:
    """Return what the functions that run on an engine need to know of the configuration."""
    return {
        "examples": str(examples.directory),
        "minibatch_size": config.training.minibatch_size,
        "optimizer": asdict(config.optimizer),
        "native_kernels": config.training.native_kernels,
    }


def plan_of(config: TrainConfig, examples: Examples) -> list[Iteration]:
    """Return all outer iterations, with the changes of the network's structure among them."""
    training = config.training
    plan = make_plan(
        examples.num_blocks,
        training.num_epochs,
        training.initial_num_jobs or training.num_jobs,
        training.num_jobs,
        lambda progress: exponential(
            training.initial_effective_lr, training.final_effective_lr, progress
        ),
        config.outer.job_lr_power,
    )
    return with_changes(plan, config.network, examples, config.outer.fresh == "best")


def _open_engines(config: TrainConfig, stack: ExitStack) -> tuple[Executor, Executor]:
    """Open the engine for jobs, and one for diagnostics that keeps out of their way."""
    engine, num_jobs = config.engine, config.training.num_jobs
    if engine.name == "local":
        num_workers = engine.num_workers or min(num_jobs, os.cpu_count() or 1)
        jobs = open_engine("local", num_workers, **engine.options)
        background = open_engine("local", 1, **{**engine.options, "nice": BACKGROUND_NICENESS})
        return stack.enter_context(jobs), stack.enter_context(background)
    # One worker more than jobs: diagnostics run beside them.
    jobs = open_engine(engine.name, engine.num_workers or num_jobs + 1, **engine.options)
    stack.enter_context(jobs)
    return jobs, jobs
