"""How the kernels come to be: compiled once for a machine, or an error that says what to do."""

from __future__ import annotations

import _ctypes
import os
import platform
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from natgrad.optim.native import build as build_file
from natgrad.optim.native import kernels as kernels_file
from natgrad.optim.native import kernels_in_use, use_native_kernels
from natgrad.optim.native.build import cache_folder, library_file

SCRIPT = "import natgrad; natgrad.use_native_kernels(); print(open('/proc/self/maps').read())"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "natgrad"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of compilers, as they are called."""
    called: list[list[str]] = []
    original: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run

    def seen(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        called.append(command)
        return original(command, **options)

    monkeypatch.setattr(subprocess, "run", seen)
    return called


def message() -> str:
    """Return what a user is told who asks for the kernels."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(kernels_file, "_loaded", None)
        with pytest.raises(RuntimeError) as error:
            use_native_kernels()
    assert "; or leave out use_native_kernels()" in str(error.value)
    return str(error.value)


@pytest.mark.usefixtures("compiler")
def test_compiled_once_and_anew_for_another_compiler_or_other_code(
    cache: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = library_file()
    assert file.parent == cache
    assert file == library_file()
    assert len(commands) == 1
    compiler = commands[0][0]
    monkeypatch.setenv("CC", f"{compiler} -O2")
    assert library_file() != file
    monkeypatch.delenv("CC")
    monkeypatch.setattr(build_file, "_processor", lambda: ["flags: of another machine"])
    assert library_file() != file
    code = tmp_path / "native"
    shutil.copytree(Path(build_file.__file__).parent, code)
    (code / "product.h").write_text((code / "product.h").read_text() + "\n")
    monkeypatch.setattr(build_file, "__file__", str(code / "build.py"))
    library_file()
    assert len(commands) == 4
    assert len(list(cache.iterdir())) == 4  # and nothing temporary


def test_all_code_is_compiled_and_part_of_what_the_library_is_named_after() -> None:
    files = {file.name for file in Path(build_file.__file__).parent.glob("*.[ch]")}
    assert files == {*build_file.SOURCES, *build_file.HEADERS}


@pytest.mark.usefixtures("compiler")
def test_processes_that_begin_together_find_one_whole_library(cache: Path) -> None:
    # What they print is not read: with a build of torch of many libraries it would fill a pipe.
    processes = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(list(cache.iterdir())) == 1


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_threads_are_of_the_library_that_torch_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two such libraries in a process would have two teams of threads, on the same cores."""
    monkeypatch.setenv("CC", "gcc")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    mapped = set(re.findall(r"/\S*lib[gi]?omp\S*", done.stdout))
    assert len(mapped) == 1


def test_without_a_compiler_the_error_says_how_to_get_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is none of gcc, cc, clang: install a C compiler" in message()
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert "CC=no-such-compiler is no program that can be run: install" in message()
    monkeypatch.setenv("CC", str(tmp_path))
    assert f"CC={tmp_path} is no program that can be run: install" in message()
    monkeypatch.setenv("CC", "gcc '-O2")
    assert "cannot be read: No closing quotation. Mend it, or unset CC; or leave" in message()
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, and no more")
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    assert f"{program} cannot be run: Exec format error. Name another in CC" in message()
    assert list(cache.iterdir()) == []


@pytest.mark.usefixtures("compiler")
def test_a_library_that_has_been_made_needs_no_compiler(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a container that has had one while it was made."""
    file = library_file()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert library_file() == file


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only there a processor may lack what is needed"
)
@pytest.mark.usefixtures("compiler", "cache")
def test_a_processor_without_avx_is_told_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_file, "FLAGS", (*build_file.FLAGS, "-mno-avx"))
    told = message()
    assert "natgrad has kernels for x86-64 with AVX and for aarch64" in told
    assert "undeclared" not in told


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_cache_that_others_may_write_to_is_refused(cache: Path, mode: int) -> None:
    library_file()
    cache.chmod(mode)
    assert f"are not looked for in {cache}, as other users may" in message()
    cache.chmod(0o755)
    library_file()


@pytest.mark.usefixtures("compiler")
@pytest.mark.skipif(os.geteuid() != 0, reason="to give a folder away needs root")
def test_a_cache_of_another_user_is_refused(cache: Path) -> None:
    library_file()
    os.chown(cache, 12345, 12345)
    assert "Make the folder yours (chown)" in message()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo it is broken >&2; exit 3", "it is broken"),
        ("exit 0", "nothing"),
        (
            "i=0; while [ $i -lt 99 ]; do i=$((i + 1)); echo $i; done; exit 1",
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n... (87 more lines)\nMend what it says",
        ),
    ],
)
def test_a_compiler_that_fails_is_quoted(
    script: str, says: str, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    told = message()
    assert f"'{compiler} -O3" in told
    assert says in told
    assert list(cache.iterdir()) == []


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.usefixtures("cache")
def test_a_compiler_may_write_as_it_likes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nprintf 'caf\\351' >&2; exec gcc \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert library_file().exists()


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_be_written_to_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    told = message()
    assert f"cannot be kept in {tmp_path / 'file' / 'natgrad'}" in told
    assert "Set XDG_CACHE_HOME" in told


@pytest.mark.usefixtures("compiler")
def test_a_cache_that_cannot_even_be_looked_into_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the folder of another user; root may look into all, but not into names this long."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/" + 300 * "a")
    assert "File name too long" in message()


@pytest.mark.usefixtures("compiler")
def test_an_account_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    told = message()
    assert "there is no place for the native kernels: Could not determine home" in told
    assert "Set XDG_CACHE_HOME" in told


@pytest.mark.usefixtures("compiler")
def test_nobody_else_may_put_a_library_into_the_cache(cache: Path) -> None:
    before = os.umask(0)
    try:
        library_file()
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.usefixtures("compiler")
def test_a_library_is_on_the_disk_before_it_has_its_name(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a power cut has left in part kills the process that loads it, without a word."""
    done: list[str] = []

    def note(name: str) -> None:
        original: Callable[..., None] = getattr(os, name)

        def seen(*arguments: object) -> None:
            done.append(name)
            original(*arguments)

        monkeypatch.setattr(os, name, seen)

    note("fsync")
    note("replace")
    library_file()
    assert done == ["fsync", "replace"]


@pytest.mark.usefixtures("compiler")
def test_a_full_disk_is_told(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk))
    (small_disk / "filler").write_bytes(bytes(os.statvfs(small_disk).f_bavail * 4096 - 8192))
    assert "No space left" in message()


@pytest.mark.parametrize("elsewhere", [None, "", "not/from/the/root"])
def test_the_cache_is_the_users(elsewhere: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if elsewhere is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", elsewhere)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/natgrad")


@pytest.mark.parametrize("use", ["no", None, 0])
def test_to_use_them_is_true_or_false(use: Any) -> None:
    with pytest.raises(TypeError, match="takes True or False, but got"):
        use_native_kernels(use)


def test_kernels_that_failed_to_come_are_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_file, "_loaded", None)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RuntimeError, match="no-such-compiler"):
        use_native_kernels()
    assert kernels_in_use() is None


@pytest.mark.usefixtures("compiler")
def test_a_library_that_cannot_be_loaded_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a compiler for another machine has been named in CC."""
    file = library_file()
    assert file.parent == cache
    other = Path(_ctypes.__file__)
    for content in (b"not a library", other.read_bytes()):
        file.write_bytes(content)
        told = message()
        assert f"cannot be loaded from {file}" in told
        assert "delete it" in told
        assert "set XDG_CACHE_HOME to another folder" in told
