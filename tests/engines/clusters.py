"""Real clusters on this machine, brought up and down for tests: what each engine runs on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

HERE = Path(__file__).parent


class Cluster(Protocol):
    """One cluster with two places for workers."""

    name: str  # of the engine
    options: dict[str, Any]  # of the engine, to reach the cluster

    def kill_job(self, told: dict[str, Any]) -> None:
        """Delete the job that runs a `tasks.hold`, as an administrator does."""

    def kill_node(self, told: dict[str, Any]) -> None:
        """End the node that runs a `tasks.hold`, with all of its processes, at once."""

    def restore_node(self, told: dict[str, Any]) -> None:
        """Start that node again."""


def run(*command: str) -> str:
    """Run a command; the test fails with what it says if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        pytest.fail(f"{' '.join(command)} failed: {done.stdout}", pytrace=False)
    return done.stdout


class ThisMachine:
    """For the engines without a cluster."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.options: dict[str, Any] = {}

    def kill_job(self, told: dict[str, Any]) -> None:
        raise NotImplementedError

    kill_node = restore_node = kill_job


class Slurm:
    """Two nodes of one CPU."""

    name = "slurm"
    script = str(HERE / "slurm_cluster.sh")

    def __init__(self, state: Path) -> None:
        self._state = str(state)
        self.options = {"interface": "lo", "log_directory": str(state / "jobs")}

    def kill_job(self, told: dict[str, Any]) -> None:
        found = run("squeue", "--noheader", f"--nodelist={told['node']}", "--format=%A")
        run("scancel", "--signal=KILL", "--full", *found.split())

    def kill_node(self, told: dict[str, Any]) -> None:
        run(self.script, "kill-node", self._state, told["node"])

    def restore_node(self, told: dict[str, Any]) -> None:
        run(self.script, "start-node", self._state, told["node"])


class GridEngine:
    """One node with two slots."""

    name = "gridengine"
    script = str(HERE / "gridengine_cluster.sh")

    def __init__(self, state: Path) -> None:
        self._state = str(state)
        self.options = {"interface": "lo", "log_directory": str(state / "jobs")}

    def kill_job(self, told: dict[str, Any]) -> None:
        environment = Path(f"/proc/{told['pid']}/environ").read_bytes().split(b"\0")
        (number,) = (line[7:].decode() for line in environment if line.startswith(b"JOB_ID="))
        run("qdel", number)

    def kill_node(self, told: dict[str, Any]) -> None:
        run(self.script, "kill-node", self._state)

    def restore_node(self, told: dict[str, Any]) -> None:
        run(self.script, "start-node", self._state)


class Ray:
    """A head without a CPU, and two nodes of one CPU."""

    name = "ray"

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self.cluster = RayCluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            self.cluster.add_node(num_cpus=1)
        self.options = {"address": self.cluster.address}

    def kill_job(self, told: dict[str, Any]) -> None:
        os.kill(told["pid"], 9)  # the job of a task is its process

    def kill_node(self, told: dict[str, Any]) -> None:
        for node in list(self.cluster.worker_nodes):
            raylets = [raylet.process.pid for raylet in node.all_processes["raylet"]]
            if told["parent"] in raylets:  # the workers of a raylet end with it
                self.cluster.remove_node(node, allow_graceful=False)

    def restore_node(self, told: dict[str, Any]) -> None:
        self.cluster.add_node(num_cpus=1)


@contextmanager
def open_cluster(name: str, state: Path) -> Iterator[Cluster]:
    """Bring up what the engine of that name runs on, and take it down afterwards."""
    if name in ("inline", "local"):
        yield ThisMachine(name)
    elif name == "ray":
        ray = Ray()
        try:
            yield ray
        finally:
            ray.cluster.shutdown()
    else:
        cluster = Slurm(state) if name == "slurm" else GridEngine(state)
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in environment_of(name, state).items():
                patch.setenv(variable, value)
            try:
                run(cluster.script, "up", str(state))
                yield cluster
            finally:
                run(cluster.script, "down", str(state))


def environment_of(name: str, state: Path) -> dict[str, str]:
    """Return the variables by which commands find the cluster."""
    if name == "slurm":
        return {"SLURM_CONF": str(state / "slurm.conf")}
    return {
        "SGE_ROOT": str(state / "root"),
        "SGE_CELL": "tests",
        "SGE_QMASTER_PORT": "16444",
        "SGE_EXECD_PORT": "16445",
    }
