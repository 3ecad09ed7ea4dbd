"""What tests of the native kernels share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from natgrad.optim.native import Kernels
from natgrad.optim.native import build as build_file
from natgrad.optim.native import kernels as kernels_file

LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]


def has_avx512() -> bool:
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and "avx512f" in cpu.read_text()


needs_avx512 = pytest.mark.skipif(not has_avx512(), reason="the processor has no AVX-512")


def by_threads(num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that kernels compute have so many threads."""
    monkeypatch.setattr(kernels_file, "MIN_MULTIPLICATIONS_PER_THREAD", 1)
    monkeypatch.setattr(kernels_file, "MIN_INVERSE_ROWS_PER_THREAD", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)


def calls_of(method: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The method's name, once for each time that it is called from now on."""
    original = getattr(Kernels, method)
    calls: list[str] = []

    def seen(*arguments: object, **options: object) -> object:
        calls.append(method)
        return original(*arguments, **options)

    monkeypatch.setattr(Kernels, method, seen)
    return calls


def by_avx2(folder: Path) -> Kernels:
    """Return the kernels without AVX-512, as a processor that has none would make them."""
    library = folder / "avx2.so"
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(build_file, "FLAGS", (*build_file.FLAGS, "-mno-avx512f"))
        build_file._compile(build_file._compiler(), library)
    code = ["objdump", "-d", str(library)]
    assert "zmm" not in subprocess.run(code, capture_output=True, text=True, check=True).stdout
    return Kernels(str(library))
