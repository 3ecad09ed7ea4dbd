"""Table 1: read from what recipes have left."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from natgrad.cli import main
from natgrad.recipes.reproduce import finished_recipe
from natgrad.recipes.reproduce.table_1 import TABLE_1, Table1
from tests.recipes.small_demo import SmallDemo, small_demo

ONLY = ["--set", 'recipes=["librispeech"]']


@pytest.fixture
def data(whole_demo: SmallDemo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small demo in the place of LibriSpeech: what the table needs of it."""
    monkeypatch.setitem(finished_recipe.CONFIGS, "librispeech", lambda: small_demo().config)
    copy = tmp_path / "exp" / "librispeech"
    for part in ("data/report", "decode"):
        shutil.copytree(whole_demo.root / part, copy / part)
    shutil.copy(whole_demo.files.results, copy)
    return tmp_path / "exp"


def test_table_has_what_the_recipe_reports(
    data: Path, whole_demo: SmallDemo, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ["reproduce", "table-1", "--data", str(data), "-o", str(out), *ONLY]
    assert main(arguments) == 0
    page = (out / "table-1.md").read_text()
    gmm = whole_demo.facts["decode-sat"]["sat"]
    dnn = whole_demo.facts["decode-dnn"]["dnn"]
    assert f"| GMM | {100 * gmm['wer']:.2f} (" in page
    assert f"| DNN1 | {100 * dnn['wer']:.2f} (" in page

    # Another run of the recipe: its results are read again.
    results = json.loads((data / "librispeech" / "results.json").read_text())
    results["dnn"]["wer"] = 0.125
    (data / "librispeech" / "results.json").write_text(json.dumps(results))
    assert main(arguments) == 0
    assert "| DNN1 | 12.50 (" in (out / "table-1.md").read_text()


def test_recipe_that_is_missing_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "table-1", "--data", str(tmp_path), "-o", str(tmp_path / "o")]) != 0
    assert f"{tmp_path / 'librispeech'} is not the directory of a finished recipe" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("recipes", [(), ("fisher",)])
def test_only_known_recipes_can_be_asked_for(recipes: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected some of librispeech, an4"):
        Table1(recipes)


@pytest.mark.parametrize(
    ("dnn", "told"), [(0.15, "25.0 % fewer errors"), (0.25, "25.0 % more errors")]
)
def test_gain_is_told_with_its_sign(dnn: float, told: str) -> None:
    def system(wer: float) -> dict[str, Any]:
        errors = {"num_words": 100, "substitutions": 9, "insertions": 8, "deletions": 7}
        return {"wer": wer, "interval": [wer - 0.01, wer + 0.01], "errors": errors}

    found = {"an4": {"sat": system(0.2), "dnn": system(dnn), "better": 0.8}}
    report = TABLE_1.report(Table1(("an4",)), found)
    assert f"On AN4 DNN1 makes {told} than the GMM" in report.answer
    assert "with a probability of 0.80" in report.answer
    assert "| AN4 | DNN1 | 100 | 9 | 8 | 7 |" in str(report.body[0])
