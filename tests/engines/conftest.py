"""Engines as fixtures. Those that need a cluster are run by `pytest -m cluster` alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from natgrad.parallel.engines import open_engine
from tests.engines.clusters import Cluster, open_cluster

ON_CLUSTERS = [
    pytest.param(name, marks=pytest.mark.cluster) for name in ("ray", "slurm", "gridengine")
]
OUTSIDE = ["local", *ON_CLUSTERS]  # of this process
on_all = pytest.mark.parametrize("cluster", ["inline", *OUTSIDE], indirect=True)
outside = pytest.mark.parametrize("cluster", OUTSIDE, indirect=True)
on_clusters = pytest.mark.parametrize("cluster", ON_CLUSTERS, indirect=True)
on_job_managers = pytest.mark.parametrize("cluster", ON_CLUSTERS[1:], indirect=True)
Opener = Callable[..., Executor]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "cluster" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("cluster")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session", autouse=True)
def _workers_find_the_tests() -> Iterator[None]:
    """Calls carry the path on which workers look for modules; these tests must be on it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
        yield


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """What the engine of that name runs on; one at a time is up."""
    # Not in pytest's own directory, which daemons that run as other users may not enter.
    with TemporaryDirectory(
        prefix=f"natgrad-{request.param}-", ignore_cleanup_errors=True
    ) as state:
        Path(state).chmod(0o755)
        with open_cluster(request.param, Path(state)) as opened:
            yield opened


@pytest.fixture(scope="session")
def open_this(cluster: Cluster) -> Opener:
    """Opens one more engine of the kind that is tested."""

    def open_this(num_workers: int = 2, **options: Any) -> Executor:
        return open_engine(cluster.name, num_workers, **{**cluster.options, **options})

    return open_this


@pytest.fixture(scope="module")
def engine(open_this: Opener) -> Iterator[Executor]:
    """One engine of two workers for many tests: it must stand what they do to it."""
    opened = open_this()
    yield opened
    # As if by an exception: a test that failed may have left calls that nobody will release.
    opened.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
