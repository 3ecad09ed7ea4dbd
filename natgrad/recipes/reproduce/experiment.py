"""What an experiment is, what it measures, and what is told; the package says how to add one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

__all__ = [
    "Bench",
    "Experiment",
    "Figure",
    "Found",
    "Line",
    "Measurement",
    "Progress",
    "Report",
    "no_progress",
]

Found = dict[str, Any]
S = TypeVar("S")
# Given what is done and how much of it there is: something to call with how much more is done.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]
NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def no_progress(what: str, total: int) -> AbstractContextManager[Callable[[int], object]]:
    """Return a progress bar that nobody sees."""
    return nullcontext(lambda amount: None)


@dataclass(frozen=True)
class Bench:
    """What a measurement works with.

    directory: its own, which is kept
    found: what the measurements that it needs have found
    progress: makes progress bars
    on_event: to be called with the events of training runs
    """

    directory: Path
    found: Mapping[str, Found] = field(default_factory=dict)
    progress: Progress = no_progress
    on_event: Callable[[dict[str, Any]], None] | None = None

    def beside(self, name: str) -> Path:
        """Return the directory of a measurement that this one needs."""
        if name not in self.found:
            raise ValueError(
                f"{self.directory.name} reads what {name} has left, but does not need it: it needs "
                f"{', '.join(self.found) or 'nothing'}"
            )
        return self.directory.with_name(name)


@dataclass(frozen=True)
class Measurement:
    """One thing to find out: the smallest that is kept when a run is killed.

    name: of its file; lower case letters, digits, dots and hyphens
    settings: what it depends on, as JSON takes it
    run: does it
    needs: the names of measurements, before it in the list, whose findings it is handed
    """

    name: str
    settings: Mapping[str, Any]
    run: Callable[[Bench], Found]
    needs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_name("measurement", self.name)


@dataclass(frozen=True)
class Line:
    """Points (x, y), joined or not, and for some x a range (x, low, high).

    A y that is None, or not finite, is a gap. The name is written at the line's end unless
    `is_named` is False. Lines of one color belong together: it counts from 0 to 7, and is by
    default the line's number.
    """

    name: str
    points: Sequence[tuple[float, float | None]]
    style: Literal["strong", "plain", "thin", "dashed", "dots"] = "plain"
    color: int | None = None
    ranges: Sequence[tuple[float, float, float]] = ()
    is_named: bool = True


@dataclass(frozen=True)
class Figure:
    """A plot: what is in it, not how it looks.

    name: of its file, after the experiment's
    caption: a sentence under it, without its full stop, which also stands in for it
    marks: values of y to mark by a line across, with what they are
    """

    name: str
    caption: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    marks: Sequence[tuple[float, str]] = ()

    def __post_init__(self) -> None:
        _check_name("figure", self.name)


@dataclass(frozen=True)
class Report:
    """What is told of an experiment.

    title: of the page
    answer: a few sentences of Markdown, with the numbers that matter and their uncertainty
    body: Markdown and figures, in order; headings begin with ##
    """

    title: str
    answer: str
    body: Sequence[str | Figure]


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """A question, and how it is answered.

    name: lower case letters, digits, dots and hyphens
    asks: the question, in a sentence
    settings: a dataclass whose fields have defaults
    measurements: what is measured, with these settings and what --data gave
    report: what is told, with these settings, of what all measurements found
    data: what --data must be, in words; None: the experiment takes none
    after: the experiment whose measurements this one goes on from, in the same directory. Those
        that are done are not done again, those that are not are done first; with other settings
        they are other ones, and so done again. Settings and data are of the same kind.
    """

    name: str
    asks: str
    settings: type[S]
    measurements: Callable[[S, Path | None], Sequence[Measurement]]
    report: Callable[[S, Mapping[str, Found]], Report]
    data: str | None = None
    after: Experiment[S] | None = None

    def __post_init__(self) -> None:
        _check_name("experiment", self.name)
        if self.after is not None and (self.after.settings, self.after.data) != (
            self.settings,
            self.data,
        ):
            raise ValueError(
                f"the experiment {self.name!r} goes on from {self.after.name!r}: expected the same "
                "settings and data, as one command does both"
            )

    @property
    def chain(self) -> list[Experiment[S]]:
        """The experiments that this one goes on from, the first one first, and itself."""
        return [self] if self.after is None else [*self.after.chain, self]


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"a {what} is named {name!r}; expected lower case letters, digits, dots and hyphens, "
            "as it names a file"
        )
