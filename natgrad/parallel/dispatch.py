"""The jobs of one outer iteration, all of them run to their ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait

from natgrad.parallel.job import Job, JobResult

__all__ = ["RunFailedError", "run_jobs"]


class RunFailedError(RuntimeError):
    """A run cannot go on; its last good model is in place."""


def run_jobs(
    engine: Executor,
    train: Callable[[Job], JobResult],
    jobs: Sequence[Job],
    max_attempts: int,
    emit: Callable[..., None],
) -> tuple[list[JobResult], list[int]]:
    """Return the results of all jobs, and how often each was submitted.

    One that the engine has lost is submitted again, with an event that says so.

    Raises:
        RunFailedError: if a job was lost `max_attempts` times, or says that it cannot be done.
    """
    results: dict[int, JobResult] = {}
    attempts = [1] * len(jobs)
    running = {engine.submit(train, job): job for job in jobs}

    def again(job: Job, lost: BaseException) -> Future[JobResult]:
        reason = f"{type(lost).__name__}: {lost}".strip(": ")
        if attempts[job.index] >= max_attempts:
            raise RunFailedError(
                f"job {job.index} of iteration {job.iteration} was lost {max_attempts} times, "
                f"last by {reason}. The model of iteration {job.iteration - 1} is in place: see to "
                "the machines, and run the same command again"
            ) from lost
        attempts[job.index] += 1
        attempt = attempts[job.index]
        emit("retry", iteration=job.iteration, job=job.index, attempt=attempt, reason=reason)
        return engine.submit(train, job)

    try:
        while running:
            done = wait(running, return_when=FIRST_COMPLETED).done
            # Of several that are over, the first is told of first: `wait` has them in no order.
            for future in sorted(done, key=lambda future: running[future].index):
                job = running.pop(future)
                lost = future.exception()
                if lost is None:
                    results[job.index] = _checked(job, future.result())
                else:
                    running[again(job, lost)] = job
    except BaseException:
        for future in running:
            future.cancel()
        raise
    return [results[index] for index in range(len(jobs))], attempts


def _checked(job: Job, result: JobResult) -> JobResult:
    if result.error is not None:
        raise RunFailedError(
            f"job {job.index} of iteration {job.iteration} cannot be done on {result.host}: "
            f"{result.error}"
        )
    return result
