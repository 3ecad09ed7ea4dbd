"""Fixtures of all tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from natgrad.optim.native.build import KernelsError, _compiler


def has_compiler() -> bool:
    try:
        return bool(_compiler())
    except KernelsError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the example of the native kernels where they cannot be compiled."""
    for item in items:
        if item.name.endswith(".use_native_kernels") and not has_compiler():
            item.add_marker(pytest.mark.skip(reason="there is no C compiler"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)
