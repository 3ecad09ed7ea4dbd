"""The page's first table: how the runs ended or how far they are, and in what they differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from natgrad.report.history import RunHistory
from natgrad.report.learning import newest_diagnostics
from natgrad.report.markup import Markup, element, join
from natgrad.report.scale import format_count, format_duration, format_objective, format_value
from natgrad.report.section import colored_name, section
from natgrad.report.timing import waiting_share

__all__ = ["flattened", "notices", "state_badge", "summary_section"]

NONE = "\N{EN DASH}"
STATES = {
    "complete": "complete",
    "failed": "failed",
    "interrupted": "interrupted",
    "running": "running",
    "stopped": "stopped",
    "unfinished": "no end yet",
}


def state_badge(run: RunHistory) -> Markup:
    """Return a run's state as a small coloured word."""
    state = run.state()
    return element("span", STATES.get(state, state), class_=f"badge {state}")


def summary_section(runs: Sequence[RunHistory]) -> Markup:
    """Return the table of results, a column per run, and the differing keys of configurations."""
    head = [element("th", colored_name(runs, i), scope="col") for i in range(len(runs))]
    table = element(
        "table",
        element("thead", element("tr", element("td"), *head)),
        element("tbody", *(_row(name, runs, tell) for name, tell in ROWS)),
        class_="summary",
    )
    results = element("div", table, class_="scroll")
    content = _beside_configuration(results, runs[0]) if len(runs) == 1 else results
    return section("summary", "Summary", "", *notices(runs), content, _differences(runs))


def _beside_configuration(results: Markup, run: RunHistory) -> Markup:
    rows = [
        element("tr", element("th", element("code", key), scope="row"), _code_cell(value))
        for key, value in flattened(run.config).items()
    ]
    if not rows:
        return results
    head = element("thead", element("tr", element("th", "Configuration", colspan="2")))
    table = element("table", head, element("tbody", *rows), class_="summary")
    configuration = element("div", table, class_="scroll long", tabindex="0")
    return element("div", results, configuration, class_="figures columns-2")


def _code_cell(text: str) -> Markup:
    return element("td", element("code", text))


def _row(
    name: str, runs: Sequence[RunHistory], tell: Callable[[RunHistory], str | Markup]
) -> Markup:
    cells = [tell(run) for run in runs]
    best = _best(cells) if name in GREATEST_IS_BEST and len(runs) > 1 else None
    return element(
        "tr",
        element("th", name, scope="row"),
        *(element("td", cell, class_="best" if cell == best else None) for cell in cells),
    )


def _best(cells: list[str | Markup]) -> str | None:
    numbers = {}
    for cell in cells:
        word = cell.split(" ")[0].replace("\N{MINUS SIGN}", "-").rstrip("%")
        try:
            numbers[float(word)] = cell
        except ValueError:
            continue  # a run that has no such number yet
    return numbers[max(numbers)] if numbers else None


def _progress(run: RunHistory) -> str:
    if not run.iterations:
        return "none yet"
    last = run.iterations[max(run.iterations)]
    return (
        f"{last['iteration']} of {last['num_iterations']} "
        f"({last['epoch']:.2f} of {last['num_epochs']:g} epochs)"
    )


def _job_objective(run: RunHistory) -> str:
    if not run.iterations:
        return NONE
    return format_objective(run.iterations[max(run.iterations)].get("objective"))


def _diagnostic(kind: str, what: str) -> Callable[[RunHistory], str]:
    def tell(run: RunHistory) -> str:
        newest = newest_diagnostics(run)
        value = newest[1][kind].get(what) if newest else None
        if newest is None or value is None:
            return NONE
        text = f"{100 * value:.2f}%" if what == "accuracy" else format_objective(value)
        last = max(run.iterations, default=0)
        return text if newest[0] == last else f"{text} (iteration {newest[0]})"

    return tell


def _combined(run: RunHistory) -> str:
    return NONE if run.combine is None else format_objective(run.combine.get("objective"))


def _samples(run: RunHistory) -> str:
    return format_count(sum(event["samples"] for event in run.iterations.values()))


def _seconds(run: RunHistory) -> str:
    return format_duration(run.running_seconds(run.last_time))


def _throughput(run: RunHistory) -> str:
    seconds = sum(event["seconds"] for event in run.iterations.values())
    samples = sum(event["samples"] for event in run.iterations.values())
    return f"{format_count(samples / seconds)} samples/s" if seconds else NONE


def _jobs(run: RunHistory) -> str:
    jobs = [job for jobs in run.jobs.values() for job in jobs]
    num_left_out = sum(not job.get("accepted", True) for job in jobs)
    num_retries = sum(map(len, run.retries.values()))
    return f"{len(jobs)} ({num_retries} retries, {num_left_out} left out)"


def _waiting(run: RunHistory) -> str:
    share = waiting_share(run)
    return NONE if share is None else f"{100 * share:.0f}%"


def _agreement(run: RunHistory) -> str:
    known = run.cosines()
    return format_value(known[max(known)], 2) if known else NONE


def _origin(run: RunHistory) -> str:
    if not run.starts:
        return NONE
    start = run.starts[-1]
    return f"{start.get('engine')}, from {start.get('host')}, natgrad {start.get('version')}"


ROWS: list[tuple[str, Callable[[RunHistory], str | Markup]]] = [
    ("State", state_badge),
    ("Iterations", _progress),
    ("Objective: validation", _diagnostic("valid", "objective")),
    ("Objective: training subset", _diagnostic("train", "objective")),
    ("Objective: jobs, last iteration", _job_objective),
    ("Objective: combined, where it was fitted", _combined),
    ("Accuracy: validation", _diagnostic("valid", "accuracy")),
    ("Accuracy: training subset", _diagnostic("train", "accuracy")),
    ("Samples", _samples),
    ("Time of running", _seconds),
    ("Throughput", _throughput),
    ("Jobs", _jobs),
    ("Waiting", _waiting),
    ("Agreement of jobs: last mean cosine", _agreement),
    ("Warnings", lambda run: str(len(run.warnings))),
    ("Engine", _origin),
]
GREATEST_IS_BEST = {name for name, _ in ROWS if name.startswith(("Objective", "Accuracy"))}
GREATEST_IS_BEST -= {"Objective: combined, where it was fitted"}  # each run has its own subset


def notices(runs: Sequence[RunHistory]) -> list[Markup]:
    """Return what must be known before a plot is believed: what is not there, and why."""
    found = []
    for index, run in enumerate(runs):
        sentences = _sentences(run)
        if sentences:
            name = join(colored_name(runs, index), ": ") if len(runs) > 1 else None
            found.append(element("p", name, " ".join(sentences), class_="notice"))
    return found


def _sentences(run: RunHistory) -> list[str]:
    found = []
    state = run.state()
    if state == "failed":
        message = str(run.end.get("message") if run.end else "")
        found.append(f"The run failed: {message}.")
    elif state == "interrupted":
        found.append("The run was interrupted by hand; the same command resumes it.")
    elif state == "running":
        found.append("The run is still going on; this page shows it so far.")
    elif state == "stopped":
        found.append("The run was stopped before its end; the same command resumes it.")
    elif state == "unfinished":
        found.append("The run has recorded no end: it goes on elsewhere, or was stopped.")
    if run.torn:
        found.append("The last line of its events is incomplete and was ignored.")
    if run.num_resumed:
        times = "once" if run.num_resumed == 1 else f"{run.num_resumed} times"
        num, noun = run.num_repeated, "iteration" if run.num_repeated == 1 else "iterations"
        again = f", {num} {noun} done again" if num else ""
        found.append(f"Resumed {times}{again}; only the last of each iteration is shown.")
    if not run.iterations:
        found.append("No iteration is complete yet.")
    if not run.diagnostics:
        found.append("There are no diagnostics yet: no validation objective is known.")
    return found


def _differences(runs: Sequence[RunHistory]) -> Markup | None:
    if len(runs) < 2:
        return None
    flat = [flattened(run.config) for run in runs]
    keys = dict.fromkeys(key for config in flat for key in config)
    differing = [key for key in keys if len({config.get(key, NONE) for config in flat}) > 1]
    if not differing:
        return element("p", "The configurations of these runs are the same.", class_="facts")
    head = [element("th", colored_name(runs, i), scope="col") for i in range(len(runs))]
    rows = [
        element(
            "tr",
            element("th", element("code", key), scope="row"),
            *(_code_cell(config.get(key, NONE)) for config in flat),
        )
        for key in differing
    ]
    table = element(
        "table",
        element("thead", element("tr", element("td"), *head)),
        element("tbody", *rows),
        class_="summary",
    )
    heading = element("h3", "Where the configurations differ")
    return join(heading, element("div", table, class_="scroll"))


def flattened(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a nested configuration as dotted keys and values as in JSON.

    >>> flattened({"training": {"num_jobs": 4}, "seed": None})
    {'training.num_jobs': '4', 'seed': 'null'}
    """
    flat: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.dumps(value, ensure_ascii=False)
    return flat
