"""The commands of Slurm and GridEngine, and what they tell of a user's jobs."""

from __future__ import annotations

import getpass
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

COMMAND_SECONDS = 60.0


@dataclass(frozen=True)
class JobManager:
    """What differs between job managers. Submitting and deleting is done by dask-jobqueue.

    Args:
        name: of the engine.
        submit: the command that submits a job.
        query: the command that lists the jobs of a user, whose name is appended.
        live_jobs: reads the numbers of jobs that wait or run from what `query` prints.
    """

    name: str
    submit: str
    query: tuple[str, ...]
    live_jobs: Callable[[str], set[str]]

    def check(self) -> None:
        """Raise FileNotFoundError if this machine cannot submit jobs."""
        for command in (self.submit, self.query[0]):
            if shutil.which(command) is None:
                raise FileNotFoundError(
                    f"the engine {self.name} needs the command {command}, which is not in PATH: "
                    "run natgrad on a machine that can submit jobs, or choose another engine"
                )

    def list_live_jobs(self) -> set[str] | None:
        """Return the numbers of the user's jobs that wait or run; None if that is not known now."""
        command = [*self.query, getpass.getuser()]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None  # the manager is restarting, or too busy to answer
        return self.live_jobs(done.stdout)


def slurm_live_jobs(printed: str) -> set[str]:
    """Read what squeue prints, one number a line.

    >>> sorted(slurm_live_jobs("17\\n18\\n"))
    ['17', '18']
    """
    return set(printed.split())


def gridengine_live_jobs(printed: str) -> set[str]:
    """Read what qstat prints; a job in an error state waits for ever, and counts as ended.

    >>> sorted(gridengine_live_jobs('''
    ... job-ID  prior   name       user         state submit/start at     queue    slots ja-task-ID
    ... -------------------------------------------------------------------------------------------
    ...      17 0.55500 natgrad    ann          r     11/15/2026 10:00:00 main.q@a     1
    ...      18 0.55500 natgrad    ann          Eqw   11/15/2026 10:00:00              1
    ... '''))
    ['17']
    """
    rows = [line.split() for line in printed.splitlines()]
    jobs = [row for row in rows if len(row) > 4 and row[0].isdigit()]
    return {row[0] for row in jobs if "E" not in row[4]}


SLURM = JobManager(
    "slurm", "sbatch", ("squeue", "--noheader", "--format=%A", "--user"), slurm_live_jobs
)
GRIDENGINE = JobManager("gridengine", "qsub", ("qstat", "-u"), gridengine_live_jobs)
