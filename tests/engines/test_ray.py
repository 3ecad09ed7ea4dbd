"""What only the engine ray does: it starts a Ray, and shares the connection of the process."""

from __future__ import annotations

import os

import pytest

from natgrad.parallel.engines import open_engine
from tests.engines import tasks
from tests.engines.waiting import wait_until_gone

pytestmark = pytest.mark.cluster


def test_ray_without_an_address_is_started_here_and_ends_with_the_engine() -> None:
    with open_engine("ray", 1) as engine:
        assert engine.submit(tasks.double, 4).result() == 8
        pids = [engine.submit(function).result() for function in (os.getpid, os.getppid)]
    wait_until_gone(pids)


def test_engines_of_one_process_share_its_connection_and_the_last_one_closes_it() -> None:
    with open_engine("ray", 1) as first:
        with open_engine("ray", 1) as second:
            assert second.submit(tasks.double, 1).result() == 2
        assert first.submit(tasks.double, 2).result() == 4
        with pytest.raises(ValueError, match="one connection only"):
            open_engine("ray", 1, address="10.0.0.1:6379")
    import ray

    assert not ray.is_initialized()


def test_connection_that_the_user_has_made_is_used_and_left_open() -> None:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, configure_logging=False)
    try:
        with open_engine("ray", 1) as engine:
            assert engine.submit(tasks.double, 3).result() == 6
        assert ray.is_initialized()
        with pytest.raises(ValueError, match=r"connected to Ray .* already"):
            open_engine("ray", 1, address="10.0.0.1:6379")
    finally:
        ray.shutdown()
