"""The command that runs a checkout's benchmarks; they are not part of the installed package."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from natgrad.cli.exits import FAILED

__all__ = ["add_bench"]

_Command = Callable[[str, str], argparse.ArgumentParser]

MARKS = ("benchmarks/__main__.py", "natgrad/__init__.py")  # what a checkout has


def _bench(options: argparse.Namespace) -> int:
    """Run `python -m benchmarks` of a checkout, which imports natgrad from there too.

    So what is measured is always the checkout's code, whichever natgrad was started.
    """
    root = str(find_checkout(options.checkout))
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "benchmarks", *options.names]
    for flag in ("list", "show", "quick"):
        command += [f"--{flag}"] * getattr(options, flag)
    for name in ("results", "run"):
        value = getattr(options, f"{name}_directory")
        command += [] if value is None else [f"--{name}", value]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    return done.returncode if done.returncode >= 0 else FAILED  # below 0: ended by a signal


def find_checkout(given: str | None) -> Path:
    """Return the directory given, or the nearest that has benchmarks, or natgrad's own."""
    here = Path.cwd()
    beside = Path(__file__).resolve().parents[2]
    places = [Path(given).absolute()] if given is not None else [here, *here.parents, beside]
    for place in places:
        if all((place / mark).is_file() for mark in MARKS):
            return place
    where = f"{given} has no" if given is not None else f"neither {here} nor what is above it has"
    raise ValueError(
        f"{where} benchmarks/ beside natgrad/: they are in natgrad's repository, and not in the "
        "installed package. Go to a clone of the repository, or name it by --from CHECKOUT"
    )


def add_bench(command: _Command) -> None:
    """Declare the command."""
    bench = command("bench", "run benchmarks of a checkout, or print what they have measured")
    bench.add_argument("names", nargs="*", metavar="NAME", help="which to run; or all")
    bench.add_argument("--list", action="store_true", help="tell what there is to run")
    bench.add_argument(
        "--show", action="store_true", help="print saved results (so it is without a NAME)"
    )
    bench.add_argument("--quick", action="store_true", help="see whether all runs, in seconds")
    bench.add_argument(
        "--results",
        dest="results_directory",
        metavar="DIR",
        help="where results are (benchmarks/results)",
    )
    bench.add_argument(
        "--run",
        dest="run_directory",
        metavar="DIR",
        help="of a speech recipe that is done, for decode",
    )
    bench.add_argument(
        "--from",
        dest="checkout",
        metavar="CHECKOUT",
        help="the repository (default: where this is, or what natgrad is imported from)",
    )
    bench.set_defaults(run=_bench)
