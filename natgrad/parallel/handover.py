"""What an outer iteration leaves to the next beside the mean of its jobs, in files.

With an outer optimizer, where its step has led (what the next jobs begin with) and its momentum; if
what jobs have learned of the Fisher matrix is not to be forgotten, that. All of it is in place
before the iteration's model is, which completes the iteration: a run that is killed before does the
iteration again, and one that is killed after finds all that the next one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from natgrad.parallel.average import NonFiniteModelError, non_finite_tensors
from natgrad.parallel.outer_step import OuterOptimizer, Stepped, outer_step
from natgrad.run.directory import RunDirectory
from natgrad.run.model_file import Model, ModelFileError, read_model, write_model

__all__ = ["AverageStates", "Handover", "Start", "changed_tensors"]

AverageStates = Callable[[Sequence[Mapping[str, Tensor]], Sequence[float]], dict[str, Tensor]]


class Start(NamedTuple):
    """What the jobs of an iteration begin with.

    path: the model's file
    renewed: its tensors that are not what the last iteration has left, as its structure was changed
    """

    path: Path
    renewed: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Handover:
    """How the iterations of a run hand over to one another.

    outer: what is made of the jobs' mean
    states: what becomes of what the jobs' optimizers have learned: "reset", "kept" or "averaged"
    average_states: (states, weights) -> the state that all jobs begin with, for "averaged"
    """

    run: RunDirectory
    outer: OuterOptimizer = field(default_factory=OuterOptimizer)
    states: Literal["reset", "kept", "averaged"] = "reset"
    average_states: AverageStates | None = None

    def __post_init__(self) -> None:
        if self.states == "averaged" and self.average_states is None:
            raise ValueError("states are to be averaged, but there is no function average_states")

    # -- what the next iteration finds -----------------------------------------------------------

    def model(self, iteration: int) -> Path:
        """Return the model that jobs after an iteration begin with, if its structure stays."""
        if self.outer.is_plain or iteration == 0:
            return self.run.model(iteration)
        for file in (self.run.next_start(iteration), self.run.momentum(iteration)):
            if not file.exists():
                raise _missing(file, iteration)
        return self.run.next_start(iteration)

    def state_files(self, iteration: int, num_jobs: int) -> list[str | None]:
        """Return the states that the jobs after an iteration begin with.

        Job i begins with state i mod the number of states: with its own, or with the only one;
        where there are more jobs than before, some share. Where one was left out before, those
        after it move up.
        """
        if self.states == "reset" or iteration == 0:
            return [None] * num_jobs
        states = self.run.states_left(iteration) or self.run.states(iteration, 1)
        for file in states:
            if not file.exists():
                raise _missing(file, iteration)
        return [str(states[job % len(states)]) for job in range(num_jobs)]

    def state_result(self, iteration: int, job: int) -> str | None:
        """Return where a job leaves its state, if it is wanted."""
        return None if self.states == "reset" else str(self.run.job_state(iteration, job))

    # -- what an iteration leaves ----------------------------------------------------------------

    def step(
        self,
        iteration: int,
        start: Start,
        before: Model,
        mean: Mapping[str, Tensor],
        moved: Collection[str],
        is_fresh: bool,
    ) -> None:
        """Take the outer step from the model that jobs began with, and write where it leads.

        Tensors that are new or were changed with the structure begin without momentum. A fresh
        iteration, in which a job's model is picked, takes no step: the next one begins with that
        model, and the momentum is what it was before.
        """
        if self.outer.is_plain:
            return
        momentum: dict[str, Tensor] = {}
        if iteration > 1:
            found = read_model(self.run.momentum(iteration - 1)).tensors
            lost = start.renewed | (found.keys() - before.tensors.keys())
            momentum = {name: v for name, v in found.items() if name not in lost}
        stepped = Stepped(dict(mean), momentum)
        if not is_fresh:
            stepped = outer_step(before.tensors, mean, momentum, self.outer, moved)
        bad = sorted({*non_finite_tensors(stepped.start), *non_finite_tensors(stepped.momentum)})
        if bad:
            raise NonFiniteModelError(
                f"the outer step of iteration {iteration} overflows in {', '.join(bad)}: lower the "
                f"outer momentum, {self.outer.momentum}, or the outer learning rate, "
                f"{self.outer.learning_rate}"
            )
        write_model(self.run.momentum(iteration), stepped.momentum, {})
        write_model(self.run.next_start(iteration), stepped.start, before.description)

    def keep_states(self, iteration: int, jobs: Sequence[int], weights: Sequence[float]) -> None:
        """Leave the states of these jobs, or their mean, to the next iteration."""
        if self.states == "reset":
            return
        if self.states == "kept":
            self.run.keep_job_states(iteration, jobs)
            return
        assert self.average_states is not None, "see __post_init__"
        files = [self.run.job_state(iteration, job) for job in jobs]
        mean = self.average_states([read_model(file).tensors for file in files], weights)
        self.run.clear_states(iteration)
        write_model(self.run.states(iteration, 1)[0], mean, {})


def _missing(file: Path, iteration: int) -> ModelFileError:
    return ModelFileError(
        f"there is no {file}, without which the run cannot go on after iteration {iteration} with "
        "the same bits: put it back, or begin again in another directory"
    )


def changed_tensors(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the tensors of `after` that are not bit for bit what they were.

    >>> before = {"a": torch.zeros(2), "b": torch.ones(2), "c": torch.ones(2)}
    >>> after = {"a": torch.zeros(2), "b": torch.ones(3), "c": torch.zeros(2), "d": torch.ones(1)}
    >>> sorted(changed_tensors(before, after))
    ['b', 'c', 'd']
    """
    return frozenset(
        name
        for name, tensor in after.items()
        if name not in before or not torch.equal(tensor, before[name])
    )
