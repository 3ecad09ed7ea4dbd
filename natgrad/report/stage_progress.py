"""Progress of a run in stages: what each found and what went wrong, and bars on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm import tqdm

from natgrad.report.progress import Progress
from natgrad.report.scale import format_duration

__all__ = ["StageProgress", "format_facts"]

Event = dict[str, Any]
MOST_COMPLAINTS = 20
MOST_ITEMS = 8
# What has gone wrong gets lines of its own, with the names of what it happened to.
COMPLAINTS = {"problems": "problem", "failures": "failed"}
# Its facts are those of the stages before, once more.
TABLE = "table"


class StageProgress:
    """Shows the events of stages (`handle`), of training (`handle_training`), and bars (`bar`).

    >>> progress = StageProgress(sys.stdout)
    >>> progress.handle(dict(event="stage", name="features", number=3, num_stages=17))
    stages 1 to 2 are done
    stage 3/17: features
    >>> found = {"train": {"utterances": 948, "hours": 0.702, "failures": {"b": "is broken"}}}
    >>> progress.handle(dict(event="stage_done", name="features", seconds=24.0, facts=found))
      24.0 s; train: utterances 948, hours 0.702
      failed in train: b: is broken

    stream: where to write; None is stderr. Bars are drawn if it is a terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._training = Progress(stream)
        self._bars: list[tqdm[Any]] = []
        self.stage: str | None = None  # that goes on

    def handle(self, event: Event) -> None:
        """Show what an event of stages tells."""
        if event["event"] == "stage":
            if self.stage is None and event["number"] > 1:
                before = event["number"] - 1
                self._say("stage 1 is done" if before == 1 else f"stages 1 to {before} are done")
            self.stage = event["name"]
            self._say(f"stage {event['number']}/{event['num_stages']}: {event['name']}")
        elif event["event"] == "stage_done":
            for line in _done_lines(event):
                self._say(f"  {line}")

    def handle_training(self, event: Event) -> None:
        """Show what an event of a training run tells."""
        self._training.handle(event)

    @contextmanager
    def bar(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        """Draw a bar for as long as something goes on; call what it gives with how much is done."""
        if not self._stream.isatty():
            yield lambda amount: None
            return
        with tqdm(
            total=total,
            desc=f"  {what}",
            file=self._stream,
            leave=False,
            dynamic_ncols=True,
            bar_format="{desc} {percentage:3.0f}% |{bar}| {elapsed}, {remaining} left",
        ) as drawn:
            self._bars.append(drawn)
            try:
                yield drawn.update
            finally:
                self._bars.remove(drawn)

    def close(self) -> None:
        """Take all bars away, also after an error."""
        self._training.close()
        for drawn in self._bars:
            drawn.close()

    def _say(self, line: str) -> None:
        if self._bars:
            self._bars[-1].write(line, file=self._stream)
        else:
            print(line, file=self._stream, flush=True)


def _done_lines(event: Event) -> Iterator[str]:
    facts = {} if event["name"] == TABLE else event["facts"]
    found = format_facts(facts)
    yield format_duration(event["seconds"]) + (f"; {found}" if found else "")
    complaints = list(_complaints(facts))
    yield from complaints[:MOST_COMPLAINTS]
    num_more = len(complaints) - MOST_COMPLAINTS
    if num_more > 0:
        yield f"... and {num_more} more: all of them are in stages/{event['name']}.json"


def format_facts(facts: Mapping[str, Any]) -> str:
    """Write what a stage found in a line; what went wrong is left out.

    >>> format_facts({"pdfs": 1800, "loss": {"train": 0.51234, "valid": None}, "failures": {}})
    'pdfs 1800; loss: train 0.5123, valid unknown'
    >>> format_facts({"mono": {"wer": 0.1061, "interval": [0.08, 0.13], "unfinished": 1}})
    'mono: WER 10.61 % (8.0 - 13.0), 1 utterance cut short'
    """
    plain, nested = [], []
    for name, value in facts.items():
        if name in COMPLAINTS:
            continue
        words = str(name).replace("_", " ")
        if isinstance(value, Mapping):
            inner = _format_rate(value) if "wer" in value else format_facts(value)
            nested.append(f"{words}: {inner.replace('; ', ', ')}")
        else:
            plain.append(f"{words} {_format_value(value)}")
    return "; ".join([*([", ".join(plain)] if plain else []), *nested])


def _format_rate(facts: Mapping[str, Any]) -> str:
    low, high = (100 * bound for bound in facts["interval"])
    num_cut = facts.get("unfinished") or 0
    cut = f", {num_cut} utterance{'s' * (num_cut != 1)} cut short" if num_cut else ""
    return f"WER {100 * facts['wer']:.2f} % ({low:.1f} - {high:.1f}){cut}"


def _format_value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        more = [f"... ({len(value)} in all)"] if len(value) > MOST_ITEMS else []
        return " ".join([*map(_format_value, value[:MOST_ITEMS]), *more]) or "none"
    return str(value)


def _complaints(facts: Mapping[str, Any], where: str = "") -> Iterator[str]:
    for name, value in facts.items():
        if name in COMPLAINTS:
            found = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, Mapping) else value
            yield from (f"{COMPLAINTS[name]}{where}: {each}" for each in found)
        elif isinstance(value, Mapping):
            yield from _complaints(value, f" in {name}")
