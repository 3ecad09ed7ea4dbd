"""The command `natgrad`: thin commands, each body one call.

What a command needs is imported when it runs: `natgrad --help` must not wait for torch.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence

from natgrad.cli.bench import add_bench
from natgrad.cli.exits import FAILED, INTERRUPTED, USAGE, RunFailedError
from natgrad.cli.reproduce import add_reproduce
from natgrad.cli.speech import add_speech
from natgrad.cli.training import add_training
from natgrad.version import __version__

__all__ = ["main"]

EPILOG = "natgrad COMMAND --help tells the options of each."
RESUMABLE = ("train", "recipe", "reproduce")
# What to do about what the operating system says; errors with words of their own say it there.
WHAT_TO_DO = {
    FileExistsError: "it is in the way, choose another name",
    FileNotFoundError: "check the name",
    IsADirectoryError: "expected a file",
    NotADirectoryError: "expected a directory where there is a file",
    PermissionError: "change its permissions or those of its directory, or choose another name",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    It is 0, 1 (a run failed, or a check found something), 2 (usage) or 130 (Ctrl-C).
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    parser = _parser()
    _refuse_empty(arguments, parser)
    options = parser.parse_args(arguments)
    debug = "debug" in options  # given before or after the command
    try:
        code: int | None = options.run(options)
        sys.stdout.flush()
    except KeyboardInterrupt:
        again = shlex.join(["natgrad", *_to_go_on(arguments, options)])
        resume = f"; to go on: {again}" if options.command in RESUMABLE else ""
        print(f"interrupted{resume}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # as by `natgrad info MODEL | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (RunFailedError, RuntimeError) as error:
        where = f"{error}: " if isinstance(error, RunFailedError) and str(error) else ""
        return _complain(error.__cause__ or error, FAILED, debug, where)
    except (ImportError, OSError, ValueError) as error:
        return _complain(error, USAGE, debug)
    return code or 0


def _refuse_empty(arguments: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuse what a shell makes of "$OUT" if OUT is not set; as a path it would be "."."""
    for before, argument in zip(["natgrad", *arguments], arguments, strict=False):
        if not argument:
            parser.error(f"the argument after {before!r} is empty: expected a name or a value")
        if re.fullmatch(r"--[\w-]+=", argument):
            parser.error(f"{argument} is empty: expected a name or a value after it")


def _to_go_on(arguments: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Return the command that goes on: what --from asked to be done again has been begun again."""
    kept = list(arguments)
    if getattr(options, "has_begun", False):
        for number, argument in enumerate(kept):
            if argument == "--from":
                return kept[:number] + kept[number + 2 :]
            if argument.startswith("--from="):
                return kept[:number] + kept[number + 1 :]
    return kept


def _complain(error: BaseException, code: int, debug: bool, where: str = "") -> int:
    if debug:
        traceback.print_exception(error)
    text = str(error)
    if isinstance(error, OSError) and error.strerror is not None:
        file = f"{error.filename}: " if error.filename is not None else ""
        text = f"{file}{error.strerror}"
        if error.errno and error.strerror == os.strerror(error.errno) and type(error) in WHAT_TO_DO:
            text += f": {WHAT_TO_DO[type(error)]}"
    elif isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error)) is not None:
        text += f": pip install 'natgrad[{extra}]'"
    print(f"natgrad: {where}{text or type(error).__name__}", file=sys.stderr)
    return code


def _extra_with(error: ModuleNotFoundError) -> str | None:
    """Return which of natgrad's extras brings a module that Python has not found."""
    if str(error) != f"No module named {error.name!r}":  # it has words of its own
        return None
    try:
        requirements = importlib.metadata.requires("natgrad") or []
    except importlib.metadata.PackageNotFoundError:  # run from a checkout
        return None
    module = str(error.name).partition(".")[0]
    for requirement in requirements:
        found = re.match(r"([\w-]+).*\bextra == .(\w+)", requirement)
        if found and found[1].replace("-", "_").lower() == module:
            return found[2]
    return None


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--debug",
        action="store_true",
        default=argparse.SUPPRESS,
        help="show where in the program an error came from",
    )
    parser = argparse.ArgumentParser(
        "natgrad",
        description="Natural-gradient SGD and parameter averaging: train, look, combine, export; "
        "and speech recognition with them.",
        epilog=EPILOG,
        parents=[shared],
    )
    parser.add_argument("--version", action="version", version=f"natgrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help_: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=help_, description=help_, parents=[shared])

    add_training(command)
    add_speech(command, shared)
    add_reproduce(command)
    add_bench(command)
    return parser
