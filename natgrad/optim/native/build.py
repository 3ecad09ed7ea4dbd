"""The kernels' C code, compiled for the processor of this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = ("pack.c", "product.c", "inverse.c", "eigen.c")
HEADERS = ("matrix.h", "tile.h", "pack.h", "product.h")
COMPILERS = ("gcc", "cc", "clang")  # of these, the first there is, unless CC names another
# torch brings OpenMP's library under the name that gcc asks for: it is not loaded twice. (By clang
# it is another one, with threads of its own; that works, too.)
FLAGS = ("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-ffp-contract=fast")
LIBRARIES = ("-lm",)
OTHERWISE = "or leave out use_native_kernels(), which only makes training faster"
ELSEWHERE = f"Set XDG_CACHE_HOME to a folder that can be written to, {OTHERWISE}"
MAX_LINES = 12  # of what the compiler says


def library_file() -> Path:
    """Return the compiled library; it is kept for the next time, beside those of other machines.

    Raises RuntimeError, saying what to do, if there is no compiler, or it does not succeed.
    """
    compiler = _compiler()
    name = f"kernels-{_key(compiler)}.so"
    folder = cache_folder()
    file = folder / name
    try:
        if file.exists():
            return file
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what is in it will be executed
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=folder) as temporary:
            made = Path(temporary) / name
            _compile(compiler, made)
            with made.open("rb") as library:
                os.fsync(library.fileno())  # a library that lacks its end would crash, not fail
            os.replace(made, file)  # whole, or not at all: another process may be at it, too
    except OSError as error:
        raise RuntimeError(
            f"the native kernels cannot be kept in {folder}: {error}. {ELSEWHERE}"
        ) from error
    return file


def cache_folder() -> Path:
    """Return the folder for what is compiled: natgrad's, in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(cache) if cache else Path.home() / ".cache") / "natgrad"
    except RuntimeError as error:  # for an account without a name, as a container may have
        raise RuntimeError(
            f"there is no place for the native kernels: {error} {ELSEWHERE}"
        ) from error


def _compiler() -> list[str]:
    """Return the command of the C compiler; its first word is a file that there is."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [[name] for name in COMPILERS]:
        found = shutil.which(command[0])
        if found is not None:
            return [found, *command[1:]]
    missing = f"CC={named[0]} is not there" if named else f"there is none of {', '.join(COMPILERS)}"
    raise RuntimeError(
        "the native kernels are C code that is compiled for this processor when they are first "
        f"used, but {missing}: install a C compiler (on Debian: apt install gcc), name yours in "
        f"CC, {OTHERWISE}"
    )


def _compile(compiler: list[str], library: Path) -> None:
    folder = Path(__file__).parent
    sources = [str(folder / name) for name in SOURCES]
    command = [*compiler, *FLAGS, *sources, "-o", str(library), *LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0 and library.exists():
        return
    said = "\n".join((done.stderr + done.stdout).strip().splitlines()[:MAX_LINES]) or "nothing"
    raise RuntimeError(
        f"the native kernels could not be compiled by '{shlex.join(command)}', which said:\n{said}"
        f"\nName another C compiler in CC (gcc 11 or newer, or clang with OpenMP), {OTHERWISE}"
    )


def _key(compiler: list[str]) -> str:
    """Return a name for what is made of this code by this compiler on this kind of processor."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        digest.update((folder / name).read_bytes())
    program = Path(compiler[0]).resolve()
    state = program.stat()
    made_by = [str(program), state.st_size, state.st_mtime_ns, *compiler[1:], *FLAGS, *LIBRARIES]
    digest.update(repr([made_by, platform.machine(), _processor()]).encode())
    return digest.hexdigest()[:16]


def _processor() -> list[str]:
    """Return what tells processors apart that do not have the same instructions."""
    told = ("vendor_id", "cpu family", "model", "flags", "CPU implementer", "CPU part", "Features")
    try:
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return [platform.processor()]
    return [line for line in first if line.split(":")[0].strip() in told]
