"""The engines slurm and gridengine: workers that are jobs of a job manager, by dask-jobqueue.

dask-jobqueue writes and submits the job scripts. The jobs connect to a Dask scheduler, which is a
thread of this process, and stay from call to call.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from natgrad.parallel.batch_worker import BatchWorker, ConnectedWorkers
from natgrad.parallel.extras import needed_by, signals_unchanged
from natgrad.parallel.job_keeper import JobKeeper
from natgrad.parallel.job_manager import GRIDENGINE, SLURM, JobManager
from natgrad.parallel.slots import SlotExecutor

PACKAGE_PARENT = Path(__file__).parents[2]

# Of the scheduler in this process.
SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,  # a lost call is reported, not run again by Dask
    "distributed.scheduler.work-stealing": False,  # each call has a worker of its own
    "distributed.admin.large-graph-warning-threshold": "1TB",  # arguments may be large
}
# Of the workers. Memory is the job manager's affair: Dask might pause a worker for ever.
WORKER_ARGUMENTS = ["--memory-limit", "0", "--no-dashboard"]
WORKER_ENVIRONMENT = {
    "PYTHONPATH": f"{PACKAGE_PARENT}:$PYTHONPATH",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_LOGGING__DISTRIBUTED": "warning",
}


def open_slurm(
    num_workers: int,
    *,
    queue: str | None = None,
    account: str | None = None,
    walltime: str | None = None,
    memory: str = "2GB",
    num_cpus: int = 1,
    interface: str | None = None,
    directives: Sequence[str] = (),
    prologue: Sequence[str] = (),
    log_directory: str = "natgrad-logs",
    silence_seconds: float = 120.0,
) -> Executor:
    """Open `num_workers` jobs of Slurm; this process stays on a machine that can submit jobs.

    The jobs need the same Python and the same files, under the same paths, as this process.

    Args:
        num_workers: the number of jobs, each of which runs one call after the other.
        queue: the partition.
        account: what is charged.
        walltime: how long a job may run, as "24:00:00"; a job that was ended by it is replaced.
        memory: of each job.
        num_cpus: of each job: as many as a call has threads.
        interface: the network interface by which jobs reach this machine, as "ib0".
        directives: more options of sbatch, as "--gres=gpu:1".
        prologue: shell commands to run before a worker starts, as "module load python".
        log_directory: where the jobs' output goes.
        silence_seconds: a worker is lost when it is silent for this, or up to twice as, long.
    """
    with needed_by("slurm", "cluster"), signals_unchanged():
        from dask_jobqueue import SLURMCluster

    options = {
        "queue": queue,
        "account": account,
        "walltime": walltime,
        "memory": memory,
        "job_cpu": num_cpus,
        # Slurm itself would start the job of a lost node again, beside the one that we start.
        "job_extra_directives": ["--no-requeue", *directives],
        "job_directives_skip": [] if walltime else ["-t "],  # Dask's own default is 30 minutes
    }
    options |= _common_options(interface, prologue, log_directory)
    return _open(SLURM, SLURMCluster, num_workers, options, silence_seconds)


def open_gridengine(
    num_workers: int,
    *,
    queue: str | None = None,
    account: str | None = None,
    walltime: str | None = None,
    resources: str | None = None,
    num_cpus: int = 1,
    parallel_environment: str = "smp",
    interface: str | None = None,
    directives: Sequence[str] = (),
    prologue: Sequence[str] = (),
    log_directory: str = "natgrad-logs",
    silence_seconds: float = 120.0,
) -> Executor:
    """Open `num_workers` jobs of GridEngine; this process stays where jobs can be submitted.

    The jobs need the same Python and the same files, under the same paths, as this process.

    Args:
        num_workers: the number of jobs, each of which runs one call after the other.
        queue: as "all.q".
        account: the project.
        walltime: how long a job may run, as "24:00:00"; a job that was ended by it is replaced.
        resources: what each job asks for, as your site names it: "mem_free=4G,ram_free=4G".
        num_cpus: of each job: as many as a call has threads.
        parallel_environment: the one for several CPUs of one machine.
        interface: the network interface by which jobs reach this machine, as "ib0".
        directives: more options of qsub, as "-l gpu=1".
        prologue: shell commands to run before a worker starts, as "module load python".
        log_directory: where the jobs' output goes.
        silence_seconds: a worker is lost when it is silent for this, or up to twice as, long.
    """
    with needed_by("gridengine", "cluster"), signals_unchanged():
        from dask_jobqueue import SGECluster

    cpus = [f"-pe {parallel_environment} {num_cpus}"] if num_cpus > 1 else []
    options = {
        "queue": queue,
        "project": account,
        "walltime": walltime,
        "resource_spec": resources,
        "memory": "2GB",  # dask-jobqueue wants to know; it is used for nothing
        "job_extra_directives": ["-r n", *cpus, *directives],
        "job_directives_skip": [] if walltime else ["h_rt="],  # Dask's own default is 30 minutes
    }
    options |= _common_options(interface, prologue, log_directory)
    return _open(GRIDENGINE, SGECluster, num_workers, options, silence_seconds)


def _common_options(
    interface: str | None, prologue: Sequence[str], log_directory: str
) -> dict[str, Any]:
    exports = [f'export {name}="{value}"' for name, value in WORKER_ENVIRONMENT.items()]
    return {
        "name": f"natgrad-{uuid.uuid4().hex[:8]}",
        "job_name": "natgrad",
        "cores": 1,
        "processes": 1,
        "interface": interface,
        "job_script_prologue": [*exports, *prologue],
        "log_directory": os.path.abspath(log_directory),
        "worker_extra_args": WORKER_ARGUMENTS,
        "scheduler_options": {"dashboard": False, "dashboard_address": ":0"},
        "silence_logs": logging.CRITICAL,
    }


def _open(
    manager: JobManager,
    cluster_class: Any,
    num_workers: int,
    options: dict[str, Any],
    silence_seconds: float,
) -> Executor:
    import dask
    from distributed import Client

    manager.check()
    silence = {"distributed.scheduler.worker-ttl": f"{silence_seconds}s"}
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({**SETTINGS, **silence}))
        cluster = stack.enter_context(cluster_class(**options))
        client = stack.enter_context(Client(cluster, set_as_default=False))
        keeper = JobKeeper(cluster, manager, num_workers, Path(options["log_directory"]))
        stack.callback(keeper.stop)
        keeper.start()
        held = stack.pop_all()
    connected = ConnectedWorkers(cluster.scheduler)
    return SlotExecutor(
        num_workers, lambda: BatchWorker(client, connected, lambda: keeper.problem), held.close
    )
