"""The outer loop (section 3.1): hand out a model, let N jobs train it, average, and go on.

All that the loop needs to go on is in the run's directory: it may be killed at any instant, and
the next one continues after the last complete iteration, with the same bits. An iteration is
complete when its model is in place, which happens by one rename; its events, and what else it
leaves to the next iteration (handover.py), are written before.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

from natgrad.parallel.average import NonFiniteModelError, average_files
from natgrad.parallel.dispatch import RunFailedError, run_jobs
from natgrad.parallel.handover import Handover, Start, changed_tensors
from natgrad.parallel.job import Job, JobResult, job_settings
from natgrad.parallel.judge import NoJobLeftError, Verdict, best, judge
from natgrad.parallel.plan import Iteration
from natgrad.parallel.steps import relative_change, step_cosines
from natgrad.run.directory import RunDirectory
from natgrad.run.model_file import Model, read_model, write_model

__all__ = ["OuterLoop", "RunFailedError", "derive_seed"]

EVALUATION_ATTEMPTS = 3
MAX_PENDING_DIAGNOSTICS = 4  # so that what waits for a slow evaluation stays bounded


@dataclass
class OuterLoop:
    """What an outer loop needs; `run` it.

    run: the directory, which the caller drives (`RunDirectory.drive`)
    plan: all iterations, also those done already
    engine: where jobs run
    background: where diagnostics run, beside the jobs
    train: a module's function, as all that is sent to an engine
    evaluate: (path of a model, options) -> the fields of its "diagnostics" event, or None
    remodel: (model, change, seed) -> the model whose structure is changed
    options: what `train` and `evaluate` need to know, as JSON can hold it
    parameters: model -> the names of its tensors that are trained; None means all that have a mean
    handover: what iterations leave to one another beside models; None means nothing
    keep: the iterations whose models are wanted after the run; None means all
    evaluated: the iterations whose models an earlier driver has evaluated
    evaluate_every: how many iterations apart models are evaluated, beside the first and the last
    """

    run: RunDirectory
    plan: Sequence[Iteration]
    engine: Executor
    background: Executor
    train: Callable[[Job], JobResult]
    evaluate: Callable[[str, dict[str, Any]], dict[str, Any]] | None
    remodel: Callable[[Model, Mapping[str, Any], int], Model]
    options: dict[str, Any]
    seed: int
    emit: Callable[..., None]
    parameters: Callable[[Model], Collection[str]] | None = None
    handover: Handover | None = None
    keep: frozenset[int] | None = None
    evaluated: frozenset[int] = frozenset()
    evaluate_every: int = 1
    num_threads: int = 1
    max_attempts: int = 20
    _diagnostics: dict[int, tuple[Future[dict[str, Any]], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._handover = self.handover or Handover(self.run)

    def train_all(self) -> None:
        """Run the iterations that are not done yet, and wait for the diagnostics of all."""
        with job_settings(self.seed):  # one thread: all cores may be busy with jobs
            self._train_all()

    def _train_all(self) -> None:
        done = self.run.last_iteration()
        if done is None:
            raise RunFailedError(f"there is no model to begin with in {self.run.path}")
        self.run.remove_jobs()  # of an iteration that a crash has cut off
        for number in self.run.iterations():
            if number not in self.evaluated:
                self._evaluate(number)
        for iteration in self.plan[done:]:
            self._iterate(iteration)
        self._report_diagnostics(0)
        self.run.prune_handover()  # there is no next iteration
        self.run.remove_jobs()  # of a job that an engine took for lost and started again

    # -- one iteration ---------------------------------------------------------------------------

    def _iterate(self, iteration: Iteration) -> None:
        clock = time.perf_counter()
        start = self._start(iteration)
        jobs = self._jobs(iteration, start)
        results, attempts = run_jobs(self.engine, self.train, jobs, self.max_attempts, self.emit)
        averaging = time.perf_counter()
        verdict = self._judge(iteration, results)
        self._report_jobs(iteration, results, attempts, verdict)
        before = read_model(start.path)
        parameters = self._parameters(before)
        used = self._used(iteration, results, verdict.accepted)
        weights = [results[index].samples for index in used]
        mean = average_files([jobs[index].result for index in used], weights)
        cosines = self._cosines(before, [jobs[index] for index in verdict.accepted], parameters)
        try:
            self._handover.step(
                iteration.number, start, before, mean, parameters, iteration.is_fresh
            )
        except NonFiniteModelError as error:
            raise RunFailedError(str(error)) from error
        self._handover.keep_states(iteration.number, used, weights)
        self._report_iteration(
            iteration,
            [results[index] for index in verdict.accepted],
            chosen="average" if used == verdict.accepted else f"best of {len(verdict.accepted)}",
            left_out=list(verdict.reasons),
            change=relative_change(before.tensors, mean),
            **cosines,
            seconds=time.perf_counter() - clock,
            average_seconds=time.perf_counter() - averaging,
        )
        write_model(self.run.model(iteration.number), mean, before.description)
        self.run.remove_jobs()
        self._evaluate(iteration.number)
        self._report_diagnostics(MAX_PENDING_DIAGNOSTICS)
        self._prune(iteration.number)

    def _start(self, iteration: Iteration) -> Start:
        """Return the model to begin with: what the last iteration has left, or that one changed."""
        left = self._handover.model(iteration.number - 1)
        if iteration.remodel is None:
            return Start(left)
        before = read_model(left)
        changed = self.remodel(
            before, iteration.remodel, derive_seed(self.seed, "remodel", iteration.number)
        )
        path = self.run.remodelled(iteration.number - 1)
        write_model(path, changed.tensors, changed.description)
        self.emit("remodel", iteration=iteration.number, **iteration.remodel)
        return Start(path, changed_tensors(before.tensors, changed.tensors))

    def _jobs(self, iteration: Iteration, start: Start) -> list[Job]:
        number = iteration.number
        states = self._handover.state_files(number - 1, iteration.num_jobs)
        return [
            Job(
                iteration=number,
                index=index,
                model=str(start.path),
                result=str(self.run.job_result(number, index)),
                block=block,
                learning_rate=iteration.learning_rate,
                seed=derive_seed(self.seed, "job", number, index),
                num_threads=self.num_threads,
                options=self.options,
                state=state,
                state_result=self._handover.state_result(number, index),
                renewed=tuple(sorted(start.renewed)),
            )
            for index, (block, state) in enumerate(zip(iteration.blocks, states, strict=True))
        ]

    def _parameters(self, model: Model) -> Collection[str]:
        if self.parameters is not None:
            return self.parameters(model)
        return {name for name, tensor in model.tensors.items() if tensor.is_floating_point()}

    def _prune(self, number: int) -> None:
        self.run.prune_handover(number)
        if self.keep is not None:
            self.run.prune_models({*self.keep, *self._diagnostics, number})

    def _judge(self, iteration: Iteration, results: Sequence[JobResult]) -> Verdict:
        objectives = [result.objective for result in results]
        try:
            verdict = judge(objectives, [result.diverged for result in results])
        except NoJobLeftError as error:
            raise RunFailedError(
                f"iteration {iteration.number} failed: {error}. The model of iteration "
                f"{iteration.number - 1} is in place"
            ) from error
        for index, reason in verdict.reasons.items():
            message = f"job {index} of iteration {iteration.number} is left out: {reason}"
            self.emit("warning", iteration=iteration.number, message=message)
        return verdict

    def _used(
        self, iteration: Iteration, results: Sequence[JobResult], accepted: list[int]
    ) -> list[int]:
        """Return the jobs whose mean is the iteration's model: of a fresh one, the best alone."""
        if iteration.is_fresh:
            return [accepted[best([results[index].objective for index in accepted])]]
        return accepted

    def _cosines(
        self, before: Model, jobs: Sequence[Job], parameters: Collection[str]
    ) -> dict[str, Any]:
        """Return how much the jobs agree, as the fields of an event; nothing of a single job."""
        if len(jobs) < 2:
            return {}
        models = [read_model(job.result).tensors for job in jobs]
        cosines = step_cosines(before.tensors, models, parameters)
        return {"cosine": cosines.all, "layer_cosines": cosines.layers}

    # -- what is reported ------------------------------------------------------------------------

    def _report_iteration(
        self, iteration: Iteration, used: Sequence[JobResult], seconds: float, **fields: Any
    ) -> None:
        samples = sum(result.samples for result in used)
        self.emit(
            "iteration",
            iteration=iteration.number,
            num_iterations=len(self.plan),
            num_jobs=iteration.num_jobs,
            epoch=iteration.epoch,
            num_epochs=self.plan[-1].epoch,
            learning_rate=iteration.learning_rate,
            effective_learning_rate=iteration.effective_learning_rate,
            objective=sum(result.objective * result.samples for result in used) / samples,
            samples=samples,
            seconds=seconds,
            samples_per_second=samples / seconds,
            **fields,
        )

    def _report_jobs(
        self,
        iteration: Iteration,
        results: Sequence[JobResult],
        attempts: Sequence[int],
        verdict: Verdict,
    ) -> None:
        for index, result in enumerate(results):
            self.emit(
                "job",
                iteration=iteration.number,
                job=index,
                attempt=attempts[index],
                samples=result.samples,
                objective=result.objective if math.isfinite(result.objective) else None,
                seconds=result.seconds,
                started=result.started,
                host=result.host,
                pid=result.pid,
                accepted=index in verdict.accepted,
                reason=verdict.reasons.get(index),
                layers=result.layers,
            )

    def _evaluate(self, number: int, attempt: int = 1) -> None:
        """Begin to evaluate a model, beside the jobs of the next iteration."""
        if self.evaluate is None or not self._is_evaluated(number):
            return
        path = str(self.run.model(number))
        future = self.background.submit(self.evaluate, path, self.options)
        self._diagnostics[number] = (future, attempt)

    def _is_evaluated(self, number: int) -> bool:
        return number % self.evaluate_every == 0 or number == len(self.plan)

    def _report_diagnostics(self, max_pending: int) -> None:
        """Report the evaluations that are over, and wait for those beyond `max_pending`."""
        while self._diagnostics:
            number, (future, attempt) = next(iter(self._diagnostics.items()))  # the oldest
            if not future.done() and len(self._diagnostics) <= max_pending:
                return
            lost = future.exception()  # waits
            del self._diagnostics[number]
            if lost is None:
                self._report_evaluation(number, future.result())
            elif attempt < EVALUATION_ATTEMPTS:
                self._evaluate(number, attempt + 1)
            else:
                message = f"the model of iteration {number} was not evaluated: {lost}"
                self.emit("warning", iteration=number, message=message)

    def _report_evaluation(self, number: int, found: dict[str, Any]) -> None:
        bad = [name for name, values in found.items() if not _is_finite(values)]
        if bad:
            message = (
                f"the model of iteration {number} has values that are not finite on the data "
                f"{' and '.join(bad)}: training diverges; lower the learning rate"
            )
            self.emit("warning", iteration=number, message=message)
        else:
            self.emit("diagnostics", iteration=number, **found)


def _is_finite(values: Any) -> bool:
    if isinstance(values, Mapping):
        return all(_is_finite(value) for value in values.values())
    return not isinstance(values, float) or math.isfinite(values)


def derive_seed(*parts: object) -> int:
    """Return a seed of 63 bits for what the parts name; other parts give an unrelated one.

    >>> derive_seed(1, "job", 3, 0) == derive_seed(1, "job", 3, 0) != derive_seed(1, "job", 3, 1)
    True
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1
