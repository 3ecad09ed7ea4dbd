"""All benchmarks by one command: run some, list them, or show what was measured before.

    python -m benchmarks [NAME ...] [--list] [--show] [--quick] [--results DIR] [--run DIR]

`natgrad bench` is the same. Each benchmark runs in a process of its own: what one leaves behind
(threads, memory, compiled code) does not disturb the next.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import INTERRUPTED, QUICK, RESULTS, USAGE, tell
from benchmarks.machine import ROOT
from benchmarks.result_file import Results
from benchmarks.table import ResultsError
from benchmarks.text import format_results

NAMES = ("step", "convergence", "averaging", "data", "decode", "combination")
ALL = "all"
FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        code = _do(options)
        sys.stdout.flush()
    except BrokenPipeError:  # as by `natgrad bench | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _do(options: argparse.Namespace) -> int:
    unknown = [name for name in options.names if name not in (*NAMES, ALL)]
    if unknown:
        tell(f"there is no benchmark {unknown[0]!r}: the benchmarks are {', '.join(NAMES)}, or all")
        return USAGE
    names = NAMES if ALL in options.names else tuple(dict.fromkeys(options.names))
    if options.list:
        print(list_benchmarks())
        return 0
    if options.show or not names:
        directory = options.results or (RESULTS / QUICK if options.is_quick else RESULTS)
        return show(names, directory)
    if options.run is not None and "decode" not in names:
        tell(f"--run is for the benchmark decode, which is not among {', '.join(names)}")
        return USAGE
    try:
        codes = [_run(name, options) for name in names]
    except KeyboardInterrupt:
        return INTERRUPTED
    failed = [name for name, code in zip(names, codes, strict=True) if code != 0]
    if len(names) > 1 and failed:
        tell(f"failed: {', '.join(failed)}")
    return FAILED if any(code not in (0, USAGE) for code in codes) else max(codes)


def list_benchmarks() -> str:
    """Return the benchmarks, and what each says of itself; none is imported, which takes long."""
    lines = []
    for name in NAMES:
        source = Path(__file__).with_name(f"{name}.py").read_text()
        about = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
        lines.append(f"{name:13} {' '.join(about.split())}")
    return "\n".join(lines)


def show(names: Sequence[str], directory: Path) -> int:
    """Print what was saved of some benchmarks, or of all that there are results of."""
    found = [name for name in names or NAMES if names or (directory / f"{name}.json").exists()]
    if not found:
        tell(f"no benchmark has results in {directory}: run one, as in  natgrad bench step")
        return USAGE
    code = 0
    for name in found:
        path = directory / f"{name}.json"
        try:
            if not path.exists():
                raise ResultsError(f"{path} is not there: run  natgrad bench {name}  to have it")
            print(f"{format_results(Results.read(path))}\n")
        except ResultsError as error:
            sys.stdout.flush()
            tell(str(error))
            code = USAGE
    return code


def _run(name: str, options: argparse.Namespace) -> int:
    command = [sys.executable, "-P", "-m", f"benchmarks.{name}"]
    if options.is_quick:
        command.append("--quick")
    if options.results is not None:
        command += ["--results", str(options.results)]
    if options.run is not None and name == "decode":
        command += ["--run", str(options.run)]
    print(f"== {name}\n", flush=True)
    # Whatever is in the current directory: benchmarks and natgrad are those of this checkout.
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=(__doc__ or "").split("\n\n")[0],
        epilog="python -m benchmarks.NAME --help tells the further options of each.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run; or all")
    parser.add_argument("--list", action="store_true", help="tell what there is to run")
    parser.add_argument(
        "--show", action="store_true", help="print saved results (so it is without a NAME)"
    )
    parser.add_argument("--quick", dest="is_quick", action="store_true", help="in seconds each")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where results are")
    parser.add_argument("--run", type=Path, metavar="DIR", help="of a speech recipe, for decode")
    return parser


if __name__ == "__main__":
    sys.exit(main())
