"""What is told of the words: Table 2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from natgrad.recipes.reproduce.across_seeds import markdown_table
from natgrad.recipes.reproduce.experiment import Found, Report
from natgrad.recipes.reproduce.job_counts.results import JobCountResults
from natgrad.recipes.reproduce.job_counts.settings import METHODS, JobCounts, System

__all__ = ["report_words"]

SURE = 0.95  # the share of draws from which on a difference is told as one


def report_words(corpus: str, runs: str) -> Callable[[JobCounts, Mapping[str, Found]], Report]:
    """Return what makes the report on one corpus; the page `runs` tells of the training runs."""

    def report(settings: JobCounts, found: Mapping[str, Found]) -> Report:
        results = JobCountResults(settings, found)
        return Report(
            f"Word errors of SGD and NG-SGD with 1 to {settings.max_jobs} jobs, on {corpus}",
            f"{_answer(results)}\nThe runs are those of [{runs}]({runs}.md), which has their "
            "objectives, times and settings.",
            ["## Word error rates\n\n" + _table(results)],
        )

    return report


def _answer(results: JobCountResults) -> str:
    s = results.settings
    rows: dict[str, list[str]] = {}
    for system in results.in_order():
        errors = f"{100 * results.words(system)['wer']:.2f} ({system.num_jobs})"
        rows.setdefault(METHODS[system.method], []).append(errors)
    listed = "\n".join(f"- {title}: {'; '.join(errors)}" for title, errors in rows.items())
    return f"""\
Word errors, in per cent of {_num_words(results)} words, of the final models with (1) and more jobs:

{listed}

When utterances are drawn again, online NG-SGD with one job has
{_interval(results.words(s.reference))} % of its words wrong in 95 % of the draws; the widest of
such intervals is {_widest(results)}. When they are drawn for two systems together, fewer errors
than online NG-SGD with one job are made

- in at least {100 * SURE:.0f} % of the draws by {_titles(results, lambda p: p >= SURE)};
- in at most {100 * (1 - SURE):.0f} % of the draws by {_titles(results, lambda p: p <= 1 - SURE)}.

Each system is one run from one seed: what another would change is not in these numbers.
"""


def _titles(results: JobCountResults, is_meant: Callable[[float], bool]) -> str:
    """Return the systems that are meant, given in which share of draws each is the better one."""
    others = [system for system in results.in_order() if system != results.settings.reference]
    meant = [system.title for system in others if is_meant(results.words(system)["better"])]
    return "; ".join(meant) or "none"


def _num_words(results: JobCountResults) -> int:
    return int(results.words(results.settings.reference)["errors"]["num_words"])


def _interval(words: Mapping[str, Any]) -> str:
    low, high = words["interval"]
    return f"{100 * low:.1f} to {100 * high:.1f}"


def _widest(results: JobCountResults) -> str:
    def width(system: System) -> float:
        low, high = results.words(system)["interval"]
        return float(high - low)

    widest = max(results.in_order(), key=width)
    return f"{_interval(results.words(widest))} % ({widest.title})"


def _table(results: JobCountResults) -> str:
    s = results.settings
    rows = []
    for method, title in METHODS.items():
        cells = []
        for n in s.num_jobs:
            system = System(method, n, s.seed)
            cells.append(_cell(results.words(system)) if system in s.systems else "")
        rows.append([title, *cells])
    return f"""\
Per cent of {_num_words(results)} words, with 95 % intervals by drawing utterances again, and in
italics the probability, by drawing them for both systems together, that the system is better than
online NG-SGD with one job. All are the final models, combined from the last ones, with the settings
of the search that are best on other speakers.

{markdown_table(["jobs", *map(str, s.num_jobs)], rows)}
"""


def _cell(words: Mapping[str, Any]) -> str:
    better = f", *{words['better']:.3f}*" if "better" in words else ""
    return f"{100 * words['wer']:.2f} ({_interval(words)}){better}"
