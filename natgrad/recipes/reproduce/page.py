"""The pages of experiments: one for each, and one that gathers their answers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from natgrad.atomic import write_atomically
from natgrad.recipes.reproduce.conduct import Record
from natgrad.recipes.reproduce.experiment import Experiment, Figure, Report
from natgrad.run.config import to_mapping

__all__ = ["command_of", "render_page", "write_index", "write_page"]

INTRODUCTION = """\
# Results

What was measured with `natgrad reproduce`, a section per experiment: the question, the answer, and
a page with everything else: tables, plots, the command, the seeds, the date and the machine. This
page is put together by `natgrad reproduce NAME --docs docs`; `natgrad reproduce --list` tells which
experiments there are.
"""
LINK = re.compile(r"(\]\()(?![a-z]+:|#|/)")


def write_page(
    directory: Path, experiment: Experiment[Any], page: str, drawn: Mapping[str, str]
) -> Path:
    """Write an experiment's page and its figures, by their files' names; return where it is."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, svg in drawn.items():
        write_atomically(directory / name, [svg.encode()])
    file = directory / f"{experiment.name}.md"
    write_atomically(file, [page.encode()])
    return file


def render_page(
    experiment: Experiment[Any],
    settings: Any,
    data: Path | None,
    records: Mapping[str, Record],
    report: Report,
    draw: Callable[[Figure], str],
) -> tuple[str, dict[str, str]]:
    """Return the page as Markdown, and its figures as SVG by the names of their files.

    `records` are the experiment's own, without those that it goes on from.
    """
    drawn: dict[str, str] = {}
    parts = [f"# {report.title}", f"*{experiment.asks}*", report.answer.strip()]
    for part in report.body:
        if isinstance(part, Figure):
            file = f"{experiment.name}-{part.name}.svg"
            drawn[file] = draw(part)
            parts.append(f"![{part.caption}]({file})\n\n*Figure.* {part.caption}.")
        else:
            parts.append(part.strip())
    parts.append(_origin(experiment, settings, data, list(records.values())))
    return "\n\n".join(parts) + "\n", drawn


def _origin(
    experiment: Experiment[Any], settings: Any, data: Path | None, records: Sequence[Record]
) -> str:
    """Return how all of it was made: commands, settings, dates, machines."""
    after = "" if experiment.after is None else f" after those of {experiment.after.name}"
    dates = sorted(record.finished for record in records)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    machines = dict.fromkeys(record.machine for record in records)
    minutes = sum(record.seconds for record in records) / 60
    cpu_minutes = sum(record.cpu_seconds for record in records) / 60
    return "\n".join(
        [
            "## How it was made",
            "",
            "```",
            *(command_of(one, settings, data) for one in experiment.chain),
            "```",
            "",
            f"{len(records)} measurements{after}, finished {when} (UTC): {cpu_minutes:.1f} minutes "
            f"of a processor in all, {minutes:.1f} minutes by the clock.",
            *(f"On: {machine}." for machine in machines),
            "",
            "| setting | value |",
            "|---|---|",
            *(f"| {name} | {_written(value)} |" for name, value in _flat(settings).items()),
        ]
    )


def command_of(experiment: Experiment[Any], settings: Any, data: Path | None) -> str:
    """Return the command that makes this page again, with these settings."""
    words = ["natgrad", "reproduce", experiment.name]
    if data is not None:
        words += ["--data", str(data)]
    default = _flat(experiment.settings())
    for name, value in _flat(settings).items():
        if value != default.get(name):
            words += ["--set", f"{name}={_as_toml(value)}"]
    return shlex.join([*words, "--docs", "docs"])


def _flat(settings: Any) -> dict[str, Any]:
    """Return settings by the names that --set takes: those of tables within have dots."""

    def walk(mapping: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for name, value in mapping.items():
            if isinstance(value, dict):
                yield from walk(value, f"{before}{name}.")
            else:
                yield f"{before}{name}", value

    return dict(walk(to_mapping(settings), ""))


def _written(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value)


def _as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value if value.isidentifier() else f'"{value}"'
    if isinstance(value, list):
        return f"[{','.join(_as_toml(item) for item in value)}]"
    return str(value)


def write_index(docs: Path, order: Sequence[str]) -> Path:
    """Write docs/results.md from the heads of the pages in docs/results; return where it is.

    Experiments are in this order; pages of others follow by their names.
    """
    pages = {file.stem: file for file in sorted((docs / "results").glob("*.md"))}
    names = [name for name in order if name in pages]
    names += [name for name in pages if name not in order]
    sections = [INTRODUCTION.strip()]
    for name in names:
        head = pages[name].read_text(encoding="utf-8").split("\n## ")[0].strip()
        if not head.startswith("# "):
            raise ValueError(
                f"{pages[name]} does not begin with a heading, as an experiment's page does: take "
                "it away, or make it again with natgrad reproduce"
            )
        sections.append("#" + LINK.sub(r"\1results/", head))
        sections.append(f"[Everything about it](results/{name}.md)")
    index = docs / "results.md"
    write_atomically(index, [("\n\n".join(sections) + "\n").encode()])
    return index
