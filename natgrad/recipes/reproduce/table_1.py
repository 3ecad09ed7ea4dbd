"""Table 1: the word error rates of whole systems, from the directories of finished recipes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from natgrad.recipes.reproduce.across_seeds import markdown_table
from natgrad.recipes.reproduce.experiment import Bench, Experiment, Found, Measurement, Report
from natgrad.recipes.reproduce.speech_runs import DATA

__all__ = ["TABLE_1", "Table1"]

# As the paper names them, by their names in a recipe's table.
SYSTEMS = {"sat": "GMM", "dnn": "DNN1"}
CORPORA = {"librispeech": "LibriSpeech", "an4": "AN4"}
ERRORS = ("num_words", "substitutions", "insertions", "deletions")


@dataclass(frozen=True)
class Table1:
    """recipes: those that are in the table."""

    recipes: tuple[str, ...] = tuple(CORPORA)

    def __post_init__(self) -> None:
        unknown = set(self.recipes) - set(CORPORA)
        if unknown or not self.recipes:
            raise ValueError(
                f"recipes is {list(self.recipes)}; expected some of {', '.join(CORPORA)}"
            )


def measurements(settings: Table1, data: Path | None) -> list[Measurement]:
    """Return what reads each recipe's results; other results are read again."""
    assert data is not None, "the experiment says that it needs data"
    return [_read(recipe, data) for recipe in settings.recipes]


def _read(recipe: str, data: Path) -> Measurement:
    def read(bench: Bench) -> Found:
        from natgrad.recipes.reproduce.finished_recipe import find_recipe
        from natgrad.speech.data.directory import DataDirectory
        from natgrad.speech.score import compare, read_hypotheses, score

        finished = find_recipe(data, recipe)
        where = finished.config.report
        data_directory = DataDirectory.read(finished.files.data(where))
        said = {key: u.text for key, u in data_directory.utterances.items() if u.text}
        gmm, dnn = (
            score(said, read_hypotheses(finished.files.decoded(system, where) / "text"))
            for system in SYSTEMS
        )
        results = finished.results
        return {
            **{system: results[system] for system in SYSTEMS},
            "better": compare(gmm, dnn).probability_second_is_better,
        }

    file = data / recipe / "results.json"
    content = file.read_bytes() if file.exists() else b""
    own = {"recipe": recipe, "results": hashlib.sha256(content).hexdigest()}
    return Measurement(recipe, own, read)


def report(settings: Table1, found: Mapping[str, Found]) -> Report:
    """Return the table."""
    rows = [
        [title, *(_cell(found[recipe][system]) for recipe in settings.recipes)]
        for system, title in SYSTEMS.items()
    ]
    head = ["", *(CORPORA[recipe] for recipe in settings.recipes)]
    gains = " ".join(_gain(CORPORA[recipe], found[recipe]) for recipe in settings.recipes)
    return Report(
        "Word error rates of whole systems",
        f"Per cent, with 95 % intervals by drawing utterances again:\n\n"
        f"{markdown_table(head, rows)}\n\n{gains}",
        [
            "## What they are\n\n"
            "GMM is a GMM-HMM with speaker-adaptive training and two or more passes; DNN1 a p-norm "
            "network on its features and alignments, as in section 6.1. The paper has 31.07 % and "
            "23.66 % on Fisher English, with 1600 hours to train on; here there are 5.3 and 0.7 "
            "hours. DNN2 needs i-vectors. Each recipe is `natgrad recipe NAME --out DIR/NAME`; "
            "this experiment only reads what it has left. On AN4 the number of speeds that DNN1 "
            "is trained on was chosen on the test set (LOG.md), so its figure there is a little "
            "too good.\n\n" + _counts(settings, found)
        ],
    )


def _cell(system: Mapping[str, Any]) -> str:
    low, high = system["interval"]
    return f"{100 * system['wer']:.2f} ({100 * low:.1f} to {100 * high:.1f})"


def _gain(corpus: str, found: Mapping[str, Any]) -> str:
    gmm, dnn = (found[system]["wer"] for system in SYSTEMS)
    change = (dnn - gmm) / gmm
    word = "fewer" if change < 0 else "more"
    return (
        f"On {corpus} DNN1 makes {100 * abs(change):.1f} % {word} errors than the GMM, and is "
        f"better with a probability of {found['better']:.2f} (utterances drawn again for both)."
    )


def _counts(settings: Table1, found: Mapping[str, Found]) -> str:
    rows = [
        [
            CORPORA[recipe],
            title,
            *(str(found[recipe][system]["errors"][key]) for key in ERRORS),
        ]
        for recipe in settings.recipes
        for system, title in SYSTEMS.items()
    ]
    return markdown_table(["", "", *(key.replace("num_", "") for key in ERRORS)], rows)


TABLE_1 = Experiment(
    name="table-1",
    asks="How many words do whole systems get wrong (Table 1)?",
    settings=Table1,
    measurements=measurements,
    report=report,
    data=DATA,
)
