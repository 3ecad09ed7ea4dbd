"""The table that a speech recipe ends on: the word error rate of each system."""

from __future__ import annotations

import json

from natgrad.atomic import write_atomically
from natgrad.recipes.workshop import Workshop
from natgrad.run.stages import Facts

__all__ = ["TITLES", "format_table", "write_table"]

TITLES = {
    "mono": "monophones",
    "tri": "triphones",
    "lda": "triphones, LDA + MLLT",
    "sat-unadapted": "triphones, LDA + MLLT + SAT, unadapted",
    "sat": "triphones, LDA + MLLT + SAT, fMLLR",
    "dnn": "DNN1 on the features of the above",
}


def write_table(shop: Workshop) -> Facts:
    """Gather the results of all systems, write them, and return them."""
    config = shop.config
    models = (*config.decoded, "dnn")  # others may be left from another configuration
    facts: Facts = {}
    for system in TITLES:
        path = shop.files.decoded(system, config.report) / "result.json"
        if system.removesuffix("-unadapted") in models and path.exists():
            facts[system] = json.loads(path.read_bytes())
    write_atomically(shop.files.results, [json.dumps(facts, indent=1).encode()])
    return facts


def format_table(results: Facts) -> str:
    """Return the table as text.

    >>> errors = {"substitutions": 2, "insertions": 1, "deletions": 0, "num_words": 50}
    >>> facts = {"wer": 0.06, "interval": [0.02, 0.1], "errors": errors, "real_time_factor": 0.1}
    >>> settings = [{"lm_weight": 9, "word_penalty": 0.0}]
    >>> print(format_table({"mono": {**facts, "settings": settings}}))
    | system     | WER    | 95 %       | sub | ins | del | words | settings | x real time |
    |------------|--------|------------|-----|-----|-----|-------|----------|-------------|
    | monophones | 6.00 % | 2.0 - 10.0 |   2 |   1 |   0 |    50 | 9, 0     |        0.10 |

    Settings are language-model weight and word penalty.
    """
    header = ["system", "WER", "95 %", "sub", "ins", "del", "words", "settings", "x real time"]
    rows = [header, *(_row(name, facts) for name, facts in results.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    numeric = {3, 4, 5, 6, 8}
    lines = [
        "| "
        + " | ".join(
            cell.rjust(width) if column in numeric and number else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        + " |"
        for number, row in enumerate(rows)
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row(name: str, facts: Facts) -> list[str]:
    errors = facts["errors"]
    settings = "; ".join(f"{s['lm_weight']:g}, {s['word_penalty']:g}" for s in facts["settings"])
    return [
        TITLES[name],
        f"{100 * facts['wer']:.2f} %",
        "{:.1f} - {:.1f}".format(*(100 * bound for bound in facts["interval"])),
        *(str(errors[kind]) for kind in ("substitutions", "insertions", "deletions", "num_words")),
        settings,
        f"{facts['real_time_factor']:.2f}",
    ]
