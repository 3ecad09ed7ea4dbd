"""The command that repeats experiments."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import Any

from natgrad.cli.exits import RunFailedError

__all__ = ["add_reproduce"]

_Command = Callable[[str, str], argparse.ArgumentParser]
WIDTH, HEIGHT = 820.0, 400.0  # of a figure


def _reproduce(options: argparse.Namespace) -> None:
    from natgrad.recipes.reproduce.commands import list_experiments, reproduce
    from natgrad.report.stage_progress import StageProgress

    if options.list:
        for name, asks in list_experiments():
            print(textwrap.fill(asks, 100, initial_indent=f"{name:16}", subsequent_indent=16 * " "))
        return
    if options.name is None:
        raise ValueError("give the NAME of an experiment: natgrad reproduce --list tells them")
    progress = StageProgress()
    try:
        written = reproduce(
            options.name,
            options.out,
            options.data,
            options.set,
            options.docs,
            _draw,
            progress=progress.bar,
            on_event=progress.handle,
            on_training=progress.handle_training,
        )
    except (OSError, ValueError, RuntimeError) as error:
        if progress.stage is not None:
            raise RunFailedError(f"measurement {progress.stage}") from error
        raise
    finally:
        progress.close()
    for file in written:
        print(file)


def _draw(figure: Any) -> str:
    """Return a figure of an experiment as the text of an SVG file."""
    from natgrad.report.figure_file import figure_color, figure_file
    from natgrad.report.line_plot import LinePlot, Mark, Series

    plot = LinePlot(
        figure.caption,
        figure.x_label,
        figure.y_label,
        width=WIDTH,
        height=HEIGHT,
        log=figure.log_y,
        log_x=figure.log_x,
        hover=False,
    )
    series = [
        Series(
            line.name,
            line.points,
            figure_color(number if line.color is None else line.color),
            line.style,
            line.name if line.is_named else None,
            line.ranges,
        )
        for number, line in enumerate(figure.lines)
    ]
    return figure_file(plot, series, [Mark(value, text) for value, text in figure.marks])


def add_reproduce(command: _Command) -> None:
    """Declare the command, with a function that declares one by its name and help."""
    parser = command("reproduce", "repeat an experiment and write its page, or go on with it")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the experiment")
    parser.add_argument("--list", action="store_true", help="only tell which there are")
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="of what is measured (reproduce/NAME, or that of the experiment it goes on from)",
    )
    parser.add_argument("--data", metavar="DIR", help="for experiments that need a corpus or a run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting, as in seeds=[1,2]; may be repeated",
    )
    parser.add_argument(
        "--docs",
        metavar="DIR",
        help="write the page to DIR/results, too, and put DIR/results.md together",
    )
    parser.set_defaults(run=_reproduce)
