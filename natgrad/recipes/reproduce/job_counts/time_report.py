"""What is told of time: which of it was measured, which simulated, and how far they are apart."""

from __future__ import annotations

from collections.abc import Sequence

from natgrad.recipes.reproduce.across_seeds import markdown_table
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import METHODS

__all__ = ["tell_clocks", "tell_times"]


def tell_clocks(results: JobCountResults) -> str:
    """Return which runs' time is measured and which is simulated, in a few words."""
    systems = results.settings.systems
    measured = {system.num_jobs for system in systems if results.is_measured(system)}
    simulated = {system.num_jobs for system in systems} - measured
    if not measured:
        return "simulated"
    if not simulated:
        return "measured by the clock"
    return (
        f"with {_listed(sorted(measured))} {_jobs(max(measured))} measured by the clock, with "
        f"{'more' if min(simulated) > max(measured) else _listed(sorted(simulated))} simulated"
    )


def tell_times(results: JobCountResults) -> str:
    """Return the section on time."""
    jobs = results.costs["job"]
    rows = [
        [
            METHODS[method],
            f"{cost['median']:.2f} ({cost['least']:.2f} to {cost['most']:.2f})",
            f"{cost['median'] / jobs['none']['median']:.2f}",
        ]
        for method, cost in jobs.items()
    ]
    averaging = results.costs["averaging"]
    means = ", ".join(f"{1000 * cost['median']:.0f} ms ({n})" for n, cost in averaging.items())
    return f"""\
The time of runs on a machine with {_cores(results)}: {tell_clocks(results)}.

*Measured* is what the clock tells from a run's start to the end of each outer iteration, with all
that one waits for: the start of workers, reading, averaging, writing, the evaluation of models
beside the jobs, and whatever else the machine was doing. If a run was stopped and resumed, the time
between does not count, nor does what was lost. *Simulated*, as in the paper, is the time that one
job takes on one core and that the mean of N models takes, times the number of outer iterations:
what it would be with a core for each job, and without queues.

What is simulated with, in seconds of a processor, medians of {results.settings.timing_rounds}
rounds in which all take turns, with the least and the most:

{markdown_table(["one job", "seconds", "of SGD's"], rows)}

The mean of N models, read and written: {means}.

{_comparison(results)}
"""


def _comparison(results: JobCountResults) -> str:
    rows = []
    for system in results.in_order():
        if results.is_measured(system):
            last = results.found[system.name]["num_iterations"]
            simulated = results.simulated_minutes(system, last)
            measured = results.minutes(system, last)
            ratio = measured / simulated
            rows.append([system.title, f"{simulated:.2f}", f"{measured:.2f}", f"{ratio:.2f}"])
    if not rows:
        return "No run had a core for each of its jobs, so that none was measured."
    head = ["", "simulated", "measured", "measured / simulated"]
    return f"Minutes of whole runs, where both are known:\n\n{markdown_table(head, rows)}"


def _cores(results: JobCountResults) -> str:
    number = results.found["clock"]["num_cores"]
    return f"{number} core{'s' if number > 1 else ''}"


def _jobs(number: int) -> str:
    return "jobs" if number > 1 else "job"


def _listed(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} and {last}" if first else last
