"""What a figure was measured on: processor, cores, memory, and the versions of what computes."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from natgrad.version import __version__

__all__ = ["caches", "cpu_model", "describe_machine", "machine_facts", "num_cores"]


def machine_facts() -> dict[str, Any]:
    """Return all facts, as JSON takes them; the version of what is not installed is None."""
    import torch  # here, so that what was measured can be shown without waiting for it

    return {
        "cpu": cpu_model(),
        "cores": num_cores(),
        "caches": caches(),
        "memory_megabytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "system": platform.platform(),
        "python": platform.python_version(),
        "natgrad": __version__,
        "torch": torch.__version__,
        "numpy": _version_of("numpy"),
        "numba": _version_of("numba"),
        "torch_threads": torch.get_num_threads(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }


def describe_machine() -> str:
    """Return what matters most of the facts, in a line."""
    facts = machine_facts()
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_megabytes'] / 1024:.0f} GB; "
        f"{platform.system()}, Python {facts['python']}, torch {facts['torch']} "
        f"({facts['torch_threads']} threads), natgrad {facts['natgrad']}"
    )


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name, as exactly as the system tells it.

    A virtual machine's is often that of a brand: family and model tell one generation from another.
    """
    facts: dict[str, str] = {}
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), " ".join(value.split()))  # of the first core
    cpu = facts.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in facts and "model" in facts:
        return f"{cpu} (family {facts['cpu family']}, model {facts['model']})"
    return cpu


def caches(cpu: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, str]:
    """Return the sizes of the first core's caches, as in {"L1 Data": "32K"}; Linux tells them."""
    found = {}
    for index in sorted(cpu.glob("index*")):
        level, kind, size = (_line(index / name) for name in ("level", "type", "size"))
        if level and size:
            found[f"L{level} {kind}"] = size
    return found


def num_cores() -> int | None:
    """Return how many cores this process may use, or else how many there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _line(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
