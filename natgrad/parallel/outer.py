"""The outer loop (section 3.1): hand out a model, let N jobs train it, average, and go on.

All that the loop needs to go on is in the run's directory: it may be killed at any instant, and
the next one continues after the last complete iteration, with the same bits. An iteration is
complete when its model is in place, which happens by one rename; its events are written before.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from natgrad.parallel.average import average_files
from natgrad.parallel.job import Job, JobResult, job_settings
from natgrad.parallel.judge import NoJobLeftError, Verdict, best, judge
from natgrad.parallel.plan import Iteration
from natgrad.run.directory import RunDirectory
from natgrad.run.model_file import Model, read_model, write_model

__all__ = ["OuterLoop", "RunFailedError", "derive_seed", "relative_change"]

EVALUATION_ATTEMPTS = 3
MAX_PENDING_DIAGNOSTICS = 4  # so that what waits for a slow evaluation stays bounded


class RunFailedError(RuntimeError):
    """A run cannot go on; its last good model is in place."""


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
    keep: the iterations whose models are wanted after the run; None means all
    evaluated: the iterations whose models an earlier driver has evaluated
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
    keep: frozenset[int] | None = None
    evaluated: frozenset[int] = frozenset()
    num_threads: int = 1
    max_attempts: int = 20
    _diagnostics: dict[int, tuple[Future[dict[str, Any]], int]] = field(default_factory=dict)

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
        self.run.remove_jobs()  # of a job that an engine took for lost and started again

    # -- one iteration ---------------------------------------------------------------------------

    def _iterate(self, iteration: Iteration) -> None:
        clock = time.perf_counter()
        start = self._start_model(iteration)
        jobs = [self._job(iteration, index, start) for index in range(iteration.num_jobs)]
        results, attempts = self._run_jobs(jobs)
        averaging = time.perf_counter()
        verdict = self._judge(iteration, results)
        self._report_jobs(iteration, results, attempts, verdict)
        before = read_model(start)
        tensors, chosen = self._average(iteration, jobs, results, verdict.accepted)
        used = [results[index] for index in verdict.accepted]
        samples = sum(result.samples for result in used)
        now = time.perf_counter()
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
            chosen=chosen,
            left_out=list(verdict.reasons),
            change=relative_change(before.tensors, tensors),
            seconds=now - clock,
            average_seconds=now - averaging,
            samples_per_second=samples / (now - clock),
        )
        write_model(self.run.model(iteration.number), tensors, before.description)
        self.run.remove_jobs()
        self._evaluate(iteration.number)
        self._report_diagnostics(MAX_PENDING_DIAGNOSTICS)
        if self.keep is not None:
            self.run.prune_models({*self.keep, *self._diagnostics, iteration.number})

    def _start_model(self, iteration: Iteration) -> Path:
        path = self.run.model(iteration.number - 1)
        if iteration.remodel is None:
            return path
        changed = self.remodel(
            read_model(path),
            iteration.remodel,
            derive_seed(self.seed, "remodel", iteration.number),
        )
        path = self.run.remodelled(iteration.number - 1)
        write_model(path, changed.tensors, changed.description)
        self.emit("remodel", iteration=iteration.number, **iteration.remodel)
        return path

    def _job(self, iteration: Iteration, index: int, start: Path) -> Job:
        return Job(
            iteration=iteration.number,
            index=index,
            model=str(start),
            result=str(self.run.job_result(iteration.number, index)),
            block=iteration.blocks[index],
            learning_rate=iteration.learning_rate,
            seed=derive_seed(self.seed, "job", iteration.number, index),
            num_threads=self.num_threads,
            options=self.options,
        )

    def _run_jobs(self, jobs: Sequence[Job]) -> tuple[list[JobResult], list[int]]:
        """Run all jobs to their ends; one that the engine has lost is submitted again."""
        results: dict[int, JobResult] = {}
        attempts = [1] * len(jobs)
        running = {self.engine.submit(self.train, job): job for job in jobs}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job = running.pop(future)
                    lost = future.exception()
                    if lost is None:
                        results[job.index] = self._checked(job, future.result())
                    else:
                        running[self._again(job, attempts, lost)] = job
        except BaseException:
            for future in running:
                future.cancel()
            raise
        return [results[index] for index in range(len(jobs))], attempts

    def _again(self, job: Job, attempts: list[int], lost: BaseException) -> Future[JobResult]:
        reason = f"{type(lost).__name__}: {lost}".strip(": ")
        if attempts[job.index] >= self.max_attempts:
            raise RunFailedError(
                f"job {job.index} of iteration {job.iteration} was lost {self.max_attempts} times, "
                f"last by {reason}. The model of iteration {job.iteration - 1} is in place: see to "
                "the machines, and run the same command again"
            ) from lost
        attempts[job.index] += 1
        self.emit(
            "retry",
            iteration=job.iteration,
            job=job.index,
            attempt=attempts[job.index],
            reason=reason,
        )
        return self.engine.submit(self.train, job)

    def _checked(self, job: Job, result: JobResult) -> JobResult:
        if result.error is not None:
            raise RunFailedError(
                f"job {job.index} of iteration {job.iteration} cannot be done on {result.host}: "
                f"{result.error}"
            )
        return result

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

    def _average(
        self,
        iteration: Iteration,
        jobs: Sequence[Job],
        results: Sequence[JobResult],
        accepted: Sequence[int],
    ) -> tuple[dict[str, Tensor], str]:
        if iteration.is_fresh and len(accepted) > 1:
            index = accepted[best([results[index].objective for index in accepted])]
            return read_model(jobs[index].result).tensors, f"best of {len(accepted)}"
        files = [jobs[index].result for index in accepted]
        return average_files(files, [results[index].samples for index in accepted]), "average"

    # -- what is reported ------------------------------------------------------------------------

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
        if self.evaluate is None:
            return
        path = str(self.run.model(number))
        future = self.background.submit(self.evaluate, path, self.options)
        self._diagnostics[number] = (future, attempt)

    def _report_diagnostics(self, max_pending: int) -> None:
        """Report the evaluations that are over, and wait for those beyond `max_pending`."""
        while self._diagnostics:
            number, (future, attempt) = next(iter(self._diagnostics.items()))  # the oldest
            if not future.done() and len(self._diagnostics) <= max_pending:
                return
            lost = future.exception()  # waits
            del self._diagnostics[number]
            if lost is None:
                self.emit("diagnostics", iteration=number, **future.result())
            elif attempt < EVALUATION_ATTEMPTS:
                self._evaluate(number, attempt + 1)
            else:
                message = f"the model of iteration {number} was not evaluated: {lost}"
                self.emit("warning", iteration=number, message=message)


def derive_seed(*parts: object) -> int:
    """Return a seed of 63 bits for what the parts name; other parts give an unrelated one.

    >>> derive_seed(1, "job", 3, 0) == derive_seed(1, "job", 3, 0) != derive_seed(1, "job", 3, 1)
    True
    """
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1


def relative_change(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor]
) -> dict[str, float | None]:
    """Return |after - before| / |before| per layer, None where that has no value.

    >>> before = {"a.weight": torch.tensor([3.0]), "a.bias": torch.tensor([4.0])}
    >>> relative_change(before, {"a.weight": torch.tensor([3.0]), "a.bias": torch.tensor([5.0])})
    {'a': 0.2}
    """
    sums: dict[str, list[float]] = {}
    for name, old in before.items():
        if name in after and old.is_floating_point():
            layer = sums.setdefault(name.rpartition(".")[0] or name, [0.0, 0.0])
            layer[0] += float(torch.linalg.vector_norm(after[name] - old)) ** 2
            layer[1] += float(torch.linalg.vector_norm(old)) ** 2
    return {
        layer: math.sqrt(change / size) if size > 0 else None
        for layer, (change, size) in sums.items()
    }
