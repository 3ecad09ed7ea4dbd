"""What the command `natgrad reproduce` does."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from natgrad.recipes.reproduce.conduct import conduct
from natgrad.recipes.reproduce.experiment import Experiment, Figure, Progress, no_progress
from natgrad.recipes.reproduce.page import render_page, write_index, write_page
from natgrad.recipes.reproduce.registry import EXPERIMENTS
from natgrad.run.config import from_mapping, set_key, to_mapping

__all__ = ["list_experiments", "reproduce"]


def list_experiments() -> list[tuple[str, str]]:
    """Return the name of every experiment, and what it asks."""
    return [(experiment.name, experiment.asks) for experiment in EXPERIMENTS.values()]


def reproduce(
    name: str,
    out: str | Path | None,
    data: str | Path | None,
    assignments: Sequence[str],
    docs: str | Path | None,
    draw: Callable[[Figure], str],
    *,
    progress: Progress = no_progress,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    on_training: Callable[[dict[str, Any]], None] | None = None,
) -> list[Path]:
    """Do an experiment, or go on with it, and write its pages; return where they are.

    Args:
        name: of the experiment.
        out: of all that is measured; None means reproduce/NAME, with the NAME of the experiment
            that this one goes on from, if there is one.
        data: what the experiment needs, if it needs any.
        assignments: settings to change, as KEY=VALUE.
        docs: a directory whose results.md and results/ are to tell of it, too.
        draw: makes SVG of a figure.
        progress: makes progress bars.
        on_event: called when a measurement begins and when it has ended.
        on_training: called with the events of training runs.
    """
    experiment = _named(name)
    settings = _settings(experiment, assignments)
    where = _checked_data(experiment, data)
    if docs is not None and not Path(docs).is_dir():
        raise ValueError(f"--docs is {docs}; expected a directory that is there")
    directory = Path("reproduce", experiment.chain[0].name) if out is None else Path(out)
    measurements = [one.measurements(settings, where) for one in experiment.chain]
    records = conduct(
        directory,
        list(chain.from_iterable(measurements)),
        progress=progress,
        on_event=on_event,
        on_training=on_training,
    )
    report = experiment.report(settings, {key: record.found for key, record in records.items()})
    own = {measurement.name: records[measurement.name] for measurement in measurements[-1]}
    page, drawn = render_page(experiment, settings, where, own, report, draw)
    written = [write_page(directory, experiment, page, drawn)]
    if docs is not None:
        written.append(write_page(Path(docs) / "results", experiment, page, drawn))
        written.append(write_index(Path(docs), list(EXPERIMENTS)))
    return written


def _named(name: str) -> Experiment[Any]:
    if name not in EXPERIMENTS:
        close = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(
            f"there is no experiment {name!r}{hint}: expected one of {', '.join(EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def _settings(experiment: Experiment[Any], assignments: Sequence[str]) -> Any:
    mapping = to_mapping(experiment.settings())
    for assignment in assignments:
        set_key(mapping, assignment)
    return from_mapping(experiment.settings, mapping)


def _checked_data(experiment: Experiment[Any], data: str | Path | None) -> Path | None:
    if experiment.data is None:
        if data is not None:
            raise ValueError(
                f"--data is {data}, but {experiment.name} makes its own data: leave it out"
            )
        return None
    if data is None:
        raise ValueError(f"{experiment.name} needs --data DIR: {experiment.data}")
    if not Path(data).is_dir():
        raise ValueError(f"--data is {data}; expected a directory: {experiment.data}")
    return Path(data)
