"""How engines are named and their options checked; and what is said when something is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from natgrad.parallel.engines import ENGINES, open_engine


def test_unknown_engine_is_an_error_that_lists_all() -> None:
    with pytest.raises(
        ValueError, match=r"no engine 'pbs'.* inline, local, ray, slurm, gridengine$"
    ):
        open_engine("pbs", 2)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("inline", "no options"),
        ("local", "nice"),
        ("ray", "address, num_cpus"),
        ("slurm", "queue, account, walltime, memory"),
        ("gridengine", "queue, account, walltime, resources"),
    ],
)
def test_unknown_option_is_an_error_that_lists_those_of_the_engine(name: str, listed: str) -> None:
    with pytest.raises(ValueError, match=f"engine {name} has no option colour: it has {listed}"):
        open_engine(name, 2, colour="red")


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("num_workers", [0, -1])
def test_engine_without_workers_is_refused(name: str, num_workers: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1 worker, but num_workers is {num_workers}"):
        open_engine(name, num_workers)


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("ray", "ray", "ray"),
        ("slurm", "dask_jobqueue", "cluster"),
        ("gridengine", "dask_jobqueue", "cluster"),
    ],
)
def test_missing_library_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=rf"{module}.* pip install 'natgrad\[{extra}\]'"):
        open_engine(name, 2)


@pytest.mark.parametrize("options", [{"nice": -1}, {"nice": 20}, {"nice": "much"}])
def test_niceness_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"nice .* 0 to 19, not"):
        open_engine("local", 1, **options)
