from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from natgrad.recipes.an4 import an4_config
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_table import TITLES, format_table, write_table
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Workshop
from tests.recipes.silent import silent


def facts_of(wer: float) -> dict[str, Any]:
    return {
        "wer": wer,
        "interval": [wer / 2, wer * 2],
        "errors": {"substitutions": 1, "insertions": 20, "deletions": 300, "num_words": 4000},
        "settings": [
            {"lm_weight": 9.0, "word_penalty": -0.5},
            {"lm_weight": 12.0, "word_penalty": 0.0},
        ],
        "real_time_factor": 0.123,
    }


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(an4_config(), SpeechFiles(tmp_path), EngineConfig("inline"), silent)


def put(shop: Workshop, system: str, wer: float) -> None:
    directory = shop.files.decoded(system, shop.config.report)
    directory.mkdir(parents=True)
    (directory / "result.json").write_text(json.dumps(facts_of(wer)))


def test_table_has_the_systems_in_their_order_whatever_the_files_are(shop: Workshop) -> None:
    for number, system in enumerate(reversed(TITLES)):
        put(shop, system, number / 10)
    results = write_table(shop)
    assert list(results) == list(TITLES)
    assert json.loads(shop.files.results.read_bytes()) == results
    rows = format_table(results).splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(TITLES.values())


def test_table_has_no_system_that_the_recipe_does_not_decode(shop: Workshop) -> None:
    for system in TITLES:  # all of them, of an earlier configuration
        put(shop, system, 0.1)
    fewer = replace(shop, config=replace(shop.config, decoded=("tri", "sat")))
    assert list(write_table(fewer)) == ["tri", "sat-unadapted", "sat", "dnn"]
    unadapted_only = replace(shop, config=replace(shop.config, decoded=("mono",)))
    assert list(write_table(unadapted_only)) == ["mono", "dnn"]


def test_columns_are_aligned_and_figures_are_in_percent() -> None:
    table = format_table({"mono": facts_of(0.1234), "dnn": facts_of(0.01)})
    lines = table.splitlines()
    assert len({len(line) for line in lines}) == 1
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == [
        *("monophones", "12.34 %", "6.2 - 24.7", "1", "20", "300", "4000"),
        *("9, -0.5; 12, 0", "0.12"),
    ]
    bars = [[place for place, letter in enumerate(line) if letter == "|"] for line in lines]
    assert all(places == bars[0] for places in bars)


def test_table_of_nothing_is_its_header() -> None:
    assert format_table({}).splitlines()[0].startswith("| system | WER |")
