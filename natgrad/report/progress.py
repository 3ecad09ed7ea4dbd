"""Progress while a run goes on: a line per outer iteration, and a bar where there is a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TextIO

from tqdm import tqdm

from natgrad.report.scale import format_count, format_duration

__all__ = ["Progress"]

Event = dict[str, Any]


class Progress:
    """Shows the events of a run that is going on: give each to `handle`.

    Validation runs in the background, so its objective comes late: the newest one known is shown,
    with its iteration if that is an earlier one, as in "valid(36) -1.31".

    >>> progress = Progress(sys.stdout)
    >>> iteration = dict(event="iteration", iteration=37, num_iterations=120, num_jobs=4,
    ...     epoch=1.5417, num_epochs=5.0, learning_rate=0.0061, objective=-1.2345)
    >>> progress.handle(iteration)
    iter 37/120, 4 jobs, epoch 1.54/5.0, lr 0.0061, train -1.23
    >>> progress.handle(dict(event="diagnostics", iteration=36, valid={"objective": -1.31}))
    >>> progress.handle(iteration)
    iter 37/120, 4 jobs, epoch 1.54/5.0, lr 0.0061, train -1.23, valid(36) -1.31

    stream: where to write; None is stderr. A bar is drawn if it is a terminal, below the lines.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._bar: tqdm[Any] | None = None
        self._valid: tuple[int, float] | None = None
        self._last: Event | None = None
        self.started = False
        self._handlers: dict[str, Callable[[Event], None]] = {
            "start": self._start,
            "iteration": self._iteration,
            "diagnostics": self._diagnostics,
            "retry": self._retry,
            "remodel": self._remodel,
            "warning": self._warning,
            "combine": self._combine,
            "end": self._end,
        }

    def handle(self, event: Event) -> None:
        """Show what an event tells; those of which there is nothing to show are let pass."""
        handler = self._handlers.get(event["event"])
        if handler is not None:
            handler(event)

    def close(self) -> None:
        """Take the bar away, also after an error."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)

    def _start(self, event: Event) -> None:
        self.started = True
        self._valid = self._last = None  # of a run before this one
        done = event.get("resumed_from")
        if done is not None:
            self._say(f"resumed after iteration {done} of {event['num_iterations']}")
        self.close()
        if self._stream.isatty():
            self._bar = tqdm(
                total=event["num_iterations"],
                initial=done or 0,
                file=self._stream,
                unit="iter",
                dynamic_ncols=True,
                smoothing=0.3,
                bar_format="{percentage:3.0f}% |{bar}| {elapsed}, {remaining} left{postfix}",
            )

    def _iteration(self, event: Event) -> None:
        self._last = event
        self._say(iteration_line(event, self._valid))
        if self._bar is not None:
            rate = format_count(event.get("samples_per_second"))
            self._bar.set_postfix_str(
                f"{rate} samples/s, objective {format_log(event.get('objective'))}, "
                f"lr {event['learning_rate']:.2g}",
                refresh=False,
            )
            self._bar.update(event["iteration"] - self._bar.n)

    def _diagnostics(self, event: Event) -> None:
        objective = (event.get("valid") or {}).get("objective")
        is_newer = self._valid is None or event["iteration"] >= self._valid[0]
        if objective is not None and is_newer:
            self._valid = (event["iteration"], objective)

    def _retry(self, event: Event) -> None:
        self._say(
            f"iter {event['iteration']}: job {event['job']} was lost and runs again: "
            f"{event.get('reason')}"
        )

    def _remodel(self, event: Event) -> None:
        change = str(event.get("change")).replace("_", " ")
        self._say(f"before iter {event['iteration']}: {change}")

    def _warning(self, event: Event) -> None:
        iteration = event.get("iteration")
        where = "" if iteration is None else f"iter {iteration}: "
        self._say(f"warning: {where}{event.get('message')}")

    def _combine(self, event: Event) -> None:
        if event.get("objective") is None:  # the last model was taken as it is
            return
        self._say(
            f"combined {len(event.get('inputs') or [])} models: objective "
            f"{format_log(event.get('objective'))}, in {format_duration(event.get('seconds'))}"
        )

    def _end(self, event: Event) -> None:
        self.close()
        status, message = str(event.get("status")), event.get("message")
        if message == "KeyboardInterrupt":  # Ctrl-C: nothing has failed
            status, message = "interrupted", None
        parts = [status]
        if self._last is not None:
            parts[0] += f" after iter {self._last['iteration']}/{self._last['num_iterations']}"
            parts.append(f"train {format_log(self._last.get('objective'))}")
            parts += valid_part(self._valid, self._last["iteration"])
        self._say(", ".join(parts) + (f": {message}" if message else ""))


def iteration_line(event: Event, valid: tuple[int, float] | None) -> str:
    """Return the line about an outer iteration; `valid`: the newest one's number and objective."""
    num_jobs = event["num_jobs"]
    parts = [
        f"iter {event['iteration']}/{event['num_iterations']}",
        f"{num_jobs} job{'' if num_jobs == 1 else 's'}",
        f"epoch {event['epoch']:.2f}/{event['num_epochs']:.1f}",
        f"lr {event['learning_rate']:.2g}",
        f"train {format_log(event.get('objective'))}",
    ]
    return ", ".join(parts + valid_part(valid, event["iteration"]))


def valid_part(valid: tuple[int, float] | None, iteration: int) -> list[str]:
    """Return how the newest validation objective is told beside an iteration's own values."""
    if valid is None:
        return []
    whose = "" if valid[0] == iteration else f"({valid[0]})"
    return [f"valid{whose} {format_log(valid[1])}"]


def format_log(value: float | None) -> str:
    """Write a log-probability: two digits behind the point, near zero as many as tell something.

    >>> [format_log(v) for v in (-1.2345, -12.0, -0.00456, None)]
    ['-1.23', '-12.00', '-0.0046', 'unknown']
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if value == 0 or abs(value) >= 0.1:
        return f"{value:.2f}"
    return f"{value:.{1 - math.floor(math.log10(abs(value)))}f}"
