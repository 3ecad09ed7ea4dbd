"""The same run on every engine, with a job and a node killed on the way: the same bits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.train import train
from natgrad.run.events import read_events
from natgrad.run.model_file import read_model
from tests.engines.clusters import Cluster
from tests.engines.conftest import outside
from tests.engines.waiting import is_running
from tests.recipes.small_run import small_config, small_examples

# With minibatches so small that a job runs for about a second, and can be killed while it does; and
# long enough that this can be tried several times, as a kill may come just after a job's end.
SIZE: dict[str, dict[str, Any]] = {
    "network": {"hidden": [[1000, 100], [1000, 100]], "iterations_per_layer": 2},
    "training": {"num_epochs": 10, "num_jobs": 2, "minibatch_size": 16},
}


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "examples"
    small_examples(directory, num_vectors=24_000, samples_per_job=4_000)
    return directory


@pytest.fixture(scope="session")
def undisturbed(examples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return parameters(train(small_config(tmp_path_factory.mktemp("inline"), examples, **SIZE)))


def parameters(model: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in read_model(model).tensors.items()}


class Saboteur:
    """Kills the process of a job, and a node, while a run goes on."""

    def __init__(self, cluster: Cluster, run: Path, final: Future[Path]) -> None:
        self._cluster = cluster
        self._events = run / "events.jsonl"
        self._final = final

    def kill_job(self) -> None:
        self._hit(lambda told: os.kill(told["pid"], signal.SIGKILL))

    def kill_node(self) -> None:
        self._hit(self._kill_and_restore_node)

    def _kill_and_restore_node(self, told: dict[str, Any]) -> None:
        self._cluster.kill_node(told)
        self._cluster.restore_node(told)

    def _hit(self, kill: Callable[[dict[str, Any]], None]) -> None:
        """Kill what works, until a job is lost by it: it may have been at its end just then."""
        before = len(self._all("retry"))
        while len(self._all("retry")) == before:
            at_work = [pid for pid in {job["pid"] for job in self._all("job")} if is_at_work(pid)]
            if self._final.done():
                pytest.fail(f"{self._final.result()} was there before a job could be killed")
            if at_work:
                kill(described(at_work[0]))
                time.sleep(2)

    def _all(self, kind: str) -> list[dict[str, Any]]:
        events = read_events(self._events) if self._events.exists() else []
        return [event for event in events if event["event"] == kind]


def is_at_work(pid: int) -> bool:
    """Return whether a process computes: a worker that waits hardly does."""
    before = cpu_ticks(pid)
    time.sleep(0.3)
    return cpu_ticks(pid) - before >= 5


def cpu_ticks(pid: int) -> int:
    return sum(map(int, status(pid)[11:13])) if is_running(pid) else 0


def status(pid: int) -> list[str]:
    """The fields of /proc/PID/stat, from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def described(pid: int) -> dict[str, Any]:
    """Tell of a process what `tasks.hold` tells of its own."""
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
    variables = dict(line.partition("=")[::2] for line in environment)
    return {"pid": pid, "parent": int(status(pid)[1]), "node": variables.get("SLURMD_NODENAME")}


@pytest.mark.cluster  # for local too: it is not quick
@outside
def test_run_with_a_killed_job_and_a_killed_node_has_the_bits_of_an_undisturbed_one(
    cluster: Cluster, examples: Path, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    engine = {"name": cluster.name, "num_workers": 2, "options": cluster.options}
    config = small_config(tmp_path / "run", examples, **SIZE, engine={**engine, "max_attempts": 50})
    with ThreadPoolExecutor(1) as pool:
        final = pool.submit(train, config)
        saboteur = Saboteur(cluster, tmp_path / "run", final)
        saboteur.kill_job()
        if cluster.name != "local":
            saboteur.kill_node()
    assert parameters(final.result()) == undisturbed
