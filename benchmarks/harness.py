"""What all benchmarks share: rounds in which the methods take turns, and a command around them.

A noisy machine disturbs all methods of a round alike, so ratios are taken within rounds, and what
is told is their median over the rounds, with quartiles. Each round begins with another method: a
machine that becomes steadily slower or faster favours none.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import facts_of_now, load_average
from benchmarks.result_file import Results
from benchmarks.table import Table
from benchmarks.text import format_facts, format_table

__all__ = [
    "RESULTS",
    "Benchmark",
    "Findings",
    "above_zero",
    "per_call",
    "run_benchmark",
    "take_rounds",
    "tell",
    "whole_above_zero",
]

RESULTS = Path(__file__).with_name("results")
QUICK = "quick"  # the directory in it where quick runs are kept apart
QUICK_ROUNDS = 2
USAGE, INTERRUPTED = 2, 130

Method = Callable[[], float]  # does something once, and returns the value that it had


# -- rounds --------------------------------------------------------------------------------------


def take_rounds(
    methods: Mapping[str, Method], num_rounds: int, num_warm_up: int = 1
) -> dict[str, tuple[float, ...]]:
    """Let the methods take turns, and return the values of each, in the order of rounds.

    >>> order = []
    >>> methods = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    >>> take_rounds(methods, num_rounds=2)
    {'a': (6, 8), 'b': (4, 9), 'c': (5, 7)}
    >>> "".join(order)
    'abcbcacab'

    Args:
        methods: by name; each is called once a round.
        num_rounds: how many values of each method are wanted.
        num_warm_up: the number of rounds before, whose values are dropped.
    """
    if num_rounds < 1:
        raise ValueError(f"a benchmark needs at least one round, but got {num_rounds}")
    values: dict[str, list[float]] = {name: [] for name in methods}
    order = deque(methods)
    for _ in range(num_warm_up + num_rounds):
        for name in order:
            values[name].append(methods[name]())
        order.rotate(-1)
    return {name: tuple(of_method[num_warm_up:]) for name, of_method in values.items()}


def per_call(
    action: Callable[[], object],
    num_calls: int = 1,
    scale: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Method:
    """Return the method that takes the time of an action.

    Args:
        action: what is timed.
        num_calls: how often it is done for one value, which is the mean of them.
        scale: of the value: 1000 makes it milliseconds.
        clock: in seconds.
    """

    def method() -> float:
        begin = clock()
        for _ in range(num_calls):
            action()
        return scale * (clock() - begin) / num_calls

    return method


# -- a benchmark as a command --------------------------------------------------------------------


@dataclass
class Findings:
    """Collects what a benchmark finds, and prints each table when it is there."""

    tables: list[Table] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def add(self, table: Table) -> None:
        """Keep a table, and print it."""
        self.tables.append(table)
        print(f"{format_table(table)}\n", flush=True)


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Args:
        name: of its module and of its results.
        about: its module's docstring; the first paragraph says what is measured.
        measure: does it. `options` has is_quick, num_rounds, and what `add_options` declares.
        num_rounds: unless the command says otherwise; None if it has no rounds to choose.
        add_options: declares options of its own.
    """

    name: str
    about: str
    measure: Callable[[argparse.Namespace, Findings], None]
    num_rounds: int | None = None
    add_options: Callable[[argparse.ArgumentParser], None] | None = None


def run_benchmark(benchmark: Benchmark, arguments: Sequence[str] | None = None) -> int:
    """Measure, print tables, write NAME.json into the directory of results; return the exit code.

    A quick run is of everything, but so small that it takes seconds; its results are kept apart.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    options = _parser(benchmark).parse_args(arguments)
    if benchmark.num_rounds is not None and options.num_rounds is None:
        options.num_rounds = QUICK_ROUNDS if options.is_quick else benchmark.num_rounds
    directory = options.results or (RESULTS / QUICK if options.is_quick else RESULTS)
    findings = Findings()
    try:
        _prepare(directory)
        facts = facts_of_now()
        facts["command"] = shlex.join(["python", "-m", f"benchmarks.{benchmark.name}", *arguments])
        began = time.perf_counter()
        benchmark.measure(options, findings)
        facts["seconds"] = round(time.perf_counter() - began, 1)
        facts["load_after"] = load_average()
        path = directory / f"{benchmark.name}.json"
        _results(benchmark, options, facts, findings).write(path)
    except (OSError, ValueError) as error:
        tell(f"benchmarks.{benchmark.name}: {error}")
        return USAGE
    except KeyboardInterrupt:
        tell(f"benchmarks.{benchmark.name}: interrupted; nothing is written")
        return INTERRUPTED
    print(f"{format_facts(facts)}\n{path}")
    return 0


def tell(text: str) -> None:
    """Say how far a benchmark is, or what is wrong."""
    print(text, file=sys.stderr, flush=True)


def whole_above_zero(text: str) -> int:
    """Read an option that counts something."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, but got {text!r}")
    return int(text)


def above_zero(text: str) -> float:
    """Read an option that measures something."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, but got {text!r}")
    return number


def _prepare(directory: Path) -> None:
    """Make the place of the results; that they cannot be written is not found after hours."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise OSError(
            f"cannot write results into {directory}: {error.strerror}. Name a directory that can "
            "be written by --results DIR"
        ) from error


def _results(
    benchmark: Benchmark,
    options: argparse.Namespace,
    facts: Mapping[str, Any],
    findings: Findings,
) -> Results:
    return Results(
        benchmark.name,
        options.is_quick,
        facts,
        findings.settings,
        tuple(findings.tables),
        findings.details,
    )


def _parser(benchmark: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python -m benchmarks.{benchmark.name}", description=benchmark.about.split("\n\n")[0]
    )
    parser.add_argument(
        "--quick", dest="is_quick", action="store_true", help="does it run at all? in seconds"
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        help=f"where NAME.json is written ({RESULTS}; quick runs: {QUICK} in it)",
    )
    if benchmark.num_rounds is not None:
        parser.add_argument(
            "--rounds",
            dest="num_rounds",
            type=whole_above_zero,
            metavar="N",
            help=f"in which the methods take turns ({benchmark.num_rounds})",
        )
    if benchmark.add_options is not None:
        benchmark.add_options(parser)
    return parser
