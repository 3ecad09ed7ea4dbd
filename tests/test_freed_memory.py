from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from natgrad.freed_memory import (
    KEPT_BYTES,
    M_MMAP_THRESHOLD,
    M_TRIM_THRESHOLD,
    OLD_LIMIT_BYTES,
    SETTINGS,
    keep_freed_memory,
)

# The page faults of 20 steps that allocate and free 4 tensors of 48 MiB each: more than glibc ever
# keeps by itself. Of smaller ones, it keeps some or none, by chance.
STEPS = """
import resource, sys, torch
from natgrad.freed_memory import keep_freed_memory
is_kept = keep_freed_memory() if "keep" in sys.argv else None
def step():
    tensors = [torch.ones(12 * 2**20) for _ in range(4)]
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(is_kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had told glibc anything."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


def faults_of_steps(*arguments: str) -> tuple[str, int]:
    command = [sys.executable, "-c", STEPS, *arguments]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    is_kept, num_faults = output.split()
    return is_kept, int(num_faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="this system has another malloc")
def test_steps_find_the_memory_of_the_step_before_where_it_was_left() -> None:
    _, before = faults_of_steps()
    is_kept, after = faults_of_steps("keep")
    assert is_kept == "True"
    assert before > 500_000, "glibc keeps freed memory by itself now: this is not needed any more"
    assert after < before / 5


class FakeMallopt:
    """Takes an M_MMAP_THRESHOLD of up to so many bytes, as versions of glibc do."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.settings: dict[int, int] = {}

    def __call__(self, option: int, value: int) -> int:
        if option == M_MMAP_THRESHOLD and value > self.limit:
            return 0
        self.settings[option] = value
        return 1


@pytest.mark.parametrize("limit", [2**40, OLD_LIMIT_BYTES])
def test_older_versions_of_glibc_get_what_they_take(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    mallopt = FakeMallopt(limit)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert keep_freed_memory()
    assert mallopt.settings == {
        M_MMAP_THRESHOLD: min(limit, KEPT_BYTES),
        M_TRIM_THRESHOLD: KEPT_BYTES,
    }


def test_a_glibc_that_takes_nothing_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    mallopt = FakeMallopt(0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert not keep_freed_memory()
    assert mallopt.settings == {}, "only one of the two would make it worse"


def test_another_malloc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert not keep_freed_memory()


def test_another_system_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: None) -> None:
        raise TypeError("Windows knows no library without a name")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(sys, "platform", "win32")
    assert not keep_freed_memory()


@pytest.mark.parametrize("name", SETTINGS)
def test_who_has_set_glibcs_variables_is_left_to_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mallopt = FakeMallopt(2**40)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    monkeypatch.setitem(os.environ, name, "1")
    assert not keep_freed_memory()
    assert mallopt.settings == {}
