"""One HTML page about one or several runs, in one file that needs nothing else."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from natgrad.atomic import write_atomically
from natgrad.report.combination import combination_section
from natgrad.report.history import RunHistory, read_runs
from natgrad.report.job_section import job_section
from natgrad.report.layer_sections import change_section, spectra_section
from natgrad.report.learning import learning_rate_section, objective_section
from natgrad.report.markup import Markup, element, join
from natgrad.report.section import colored_name, section
from natgrad.report.summary import state_badge, summary_section

__all__ = ["render", "write_report"]

SECTIONS = (
    ("summary", "Summary", summary_section),
    ("objective", "Objective", objective_section),
    ("learning-rate", "Learning rate", learning_rate_section),
    ("layers", "Layers", change_section),
    ("spectra", "Fisher factors", spectra_section),
    ("jobs", "Jobs", job_section),
    ("combination", "Combination", combination_section),
)


def write_report(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write the page about these run directories to a file, and return where it is."""
    runs = read_runs(paths)
    now = datetime.datetime.now().astimezone()
    write_atomically(Path(out), [render(runs, now).encode()], durable=False)
    return Path(out)


def render(runs: Sequence[RunHistory], now: datetime.datetime) -> str:
    """Return the page about these runs, as of now."""
    made = [(anchor, name, draw(runs)) for anchor, name, draw in SECTIONS]
    shown = [(anchor, name, content) for anchor, name, content in made if content is not None]
    remarks = _warning_section(runs)
    if remarks is not None:
        shown.append(("warnings", "Warnings", remarks))
    title = "natgrad: " + ", ".join(run.name for run in runs)
    body = element(
        "body",
        _header(runs, now),
        element("nav", *(element("a", name, href=f"#{anchor}") for anchor, name, _ in shown)),
        element("main", *(content for _, _, content in shown)),
        element("script", _resource("page.js")),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", _resource("page.css")),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _header(runs: Sequence[RunHistory], now: datetime.datetime) -> Markup:
    names = [
        element("li", colored_name(runs, index), " ", state_badge(run))
        for index, run in enumerate(runs)
    ]
    what = "Training run" if len(runs) == 1 else f"{len(runs)} training runs"
    return element(
        "header",
        element("p", "natgrad report", class_="brand"),
        element("h1", runs[0].name if len(runs) == 1 else what),
        element("ul", *names, class_="runs") if len(runs) > 1 else None,
        element(
            "p",
            state_badge(runs[0]) if len(runs) == 1 else None,
            " " if len(runs) == 1 else None,
            f"as of {now:%Y-%m-%d %H:%M}",
            class_="as-of",
        ),
    )


def _warning_section(runs: Sequence[RunHistory]) -> Markup | None:
    """List warnings, and the changes of the network, in order."""
    parts: list[Markup] = []
    for index, run in enumerate(runs):
        told = [(event, str(event.get("message"))) for event in run.warnings]
        told += [(event, _remodel_text(event)) for event in run.remodels]
        rows = [
            element(
                "tr",
                element("th", f"iteration {event.get('iteration')}", scope="row"),
                element("td", text),
            )
            for event, text in sorted(told, key=lambda pair: float(pair[0]["time"]))
        ]
        if rows:
            if len(runs) > 1:
                parts.append(element("h3", colored_name(runs, index)))
            parts.append(element("table", element("tbody", *rows), class_="log"))
    if not parts:
        return None
    lede = "What the runs have warned of, and where their networks changed."
    return section("warnings", "Warnings and changes", lede, *parts)


def _remodel_text(event: dict[str, object]) -> str:
    others = {
        key: value
        for key, value in event.items()
        if key not in ("time", "event", "iteration", "change")
    }
    details = ", ".join(f"{key} {value}" for key, value in others.items())
    change = str(event.get("change")).replace("_", " ")
    return f"before it: {change}" + (f" ({details})" if details else "")


def _resource(name: str) -> Markup:
    """Return a file of this package: style and script, which are not to be escaped."""
    text = resources.files("natgrad.report").joinpath(name).read_text(encoding="utf-8")
    return join(Markup("\n" + text))
