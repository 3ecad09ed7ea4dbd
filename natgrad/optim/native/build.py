"""The kernels' C code, compiled for the processor of this machine."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

SOURCES = ("pack.c", "product.c", "inverse.c", "eigen.c")
HEADERS = ("matrix.h", "tile.h", "pack.h", "product.h")
COMPILERS = ("gcc", "cc", "clang")  # of these, the first there is, unless CC names another
# torch brings OpenMP's library under the name that gcc asks for: it is not loaded twice. (By clang
# it is another one, with threads of its own; that works, too.)
FLAGS = (
    *("-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-ffp-contract=fast"),
    "-Wfatal-errors",  # what follows the first error says nothing more
)
LIBRARIES = ("-lm",)
ELSEWHERE = "Set XDG_CACHE_HOME to a folder that can be written to"
MAX_LINES = 12  # of what the compiler says
OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class KernelsError(RuntimeError):
    """There are no native kernels here. The message says what to do, without a full stop."""


def library_file() -> Path:
    """Return the compiled library; it is kept for the next time, beside those of other machines.

    Raises KernelsError if it is not there, and there is no compiler, or it does not succeed.
    """
    name = f"kernels-{_key()}.so"
    folder = cache_folder()
    file = folder / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_if_others_may_write(folder)
        if file.exists():
            return file
        with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=folder) as temporary:
            made = Path(temporary) / name
            _compile(_compiler(), made)
            with made.open("rb") as library:
                os.fsync(library.fileno())  # a library that lacks its end would crash, not fail
            os.replace(made, file)  # whole, or not at all: another process may be at it, too
    except OSError as error:
        raise KernelsError(
            f"the native kernels cannot be kept in {folder}: {error}. {ELSEWHERE}"
        ) from error
    return file


def cache_folder() -> Path:
    """Return the folder for what is compiled: natgrad's, in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # A relative one is to be ignored, says the specification of that variable.
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "natgrad"
    except RuntimeError as error:  # for an account without a name, as a container may have
        raise KernelsError(
            f"there is no place for the native kernels: {error} {ELSEWHERE}"
        ) from error


def _refuse_if_others_may_write(folder: Path) -> None:
    """Raise KernelsError: what lies in the folder will be executed."""
    state = folder.stat()
    if state.st_uid not in (0, os.geteuid()) or state.st_mode & OPEN_TO_OTHERS:
        raise KernelsError(
            f"the native kernels are not looked for in {folder}, as other users may have written "
            "there what would be executed. Make the folder yours (chown) and yours only (chmod "
            "700), or set XDG_CACHE_HOME to another"
        )


def _compiler() -> list[str]:
    """Return the command of the C compiler; its first word is a file that can be run."""
    given = os.environ.get("CC", "")
    try:
        named = shlex.split(given)
    except ValueError as error:
        raise KernelsError(
            f"the native kernels need a C compiler, but CC={given!r} cannot be read: {error}. Mend "
            "it, or unset CC"
        ) from error
    for command in [named] if named else [[name] for name in COMPILERS]:
        found = shutil.which(command[0])
        if found is not None:
            return [found, *command[1:]]
    missing = (
        f"CC={named[0]} is no program that can be run"
        if named
        else f"there is none of {', '.join(COMPILERS)}"
    )
    raise KernelsError(
        "the native kernels are C code that is compiled for this processor when they are first "
        f"used, but {missing}: install a C compiler (on Debian: apt install gcc), or name yours in "
        "CC"
    )


def _compile(compiler: list[str], library: Path) -> None:
    folder = Path(__file__).parent
    sources = [str(folder / name) for name in SOURCES]
    command = [*compiler, *FLAGS, *sources, "-o", str(library), *LIBRARIES]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise KernelsError(
            f"the native kernels need a C compiler, but {compiler[0]} cannot be run: "
            f"{error.strerror}. Name another in CC"
        ) from error
    if done.returncode == 0 and library.exists():
        return
    raise KernelsError(
        f"the native kernels could not be compiled by '{shlex.join(command)}', which said:\n"
        f"{_beginning(done.stderr + done.stdout)}\n"
        "Mend what it says, or name another C compiler in CC (gcc 11 or newer, or clang with "
        "OpenMP)"
    )


def _beginning(said: str) -> str:
    """Return the first lines of what a compiler has said."""
    lines = said.strip().splitlines() or ["nothing"]
    left_out = [f"... ({len(lines) - MAX_LINES} more lines)"] if len(lines) > MAX_LINES else []
    return "\n".join(lines[:MAX_LINES] + left_out)


def _key() -> str:
    """Return a name for what is made of this code on this kind of processor.

    The compiler counts as it is named in CC, and not as what it is: a library that has been made
    serves also where the compiler is gone, as in a container.
    """
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (*SOURCES, *HEADERS):
        digest.update((folder / name).read_bytes())
    made_by = [os.environ.get("CC", ""), *FLAGS, *LIBRARIES]
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
