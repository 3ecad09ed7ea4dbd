"""What becomes of the jobs' models right after random initialisation: outer.fresh."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from natgrad.data import open_examples
from natgrad.recipes.train import plan_of, train
from natgrad.run.config import ConfigError
from natgrad.run.model_file import read_model
from tests.recipes.small_run import events_of, small_config, small_examples

AVERAGE = {"fresh": "average"}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fresh") / "examples"
    small_examples(directory)
    return directory


def test_only_what_is_fresh_differs_between_the_plans(examples: Path, tmp_path: Path) -> None:
    usual, average = (
        plan_of(small_config(tmp_path, examples, outer=outer), open_examples(examples))
        for outer in ({}, AVERAGE)
    )
    assert [it.number for it in usual if it.is_fresh] == [1, 3]  # the second layer comes before 3
    assert not any(it.is_fresh for it in average)
    assert [replace(it, is_fresh=False) for it in usual] == average


def test_fresh_models_are_really_averaged(examples: Path, tmp_path: Path) -> None:
    """Against a mean by hand, in float64, of what the jobs have left."""
    expected: dict[int, dict[str, Tensor]] = {}
    samples: dict[tuple[int, int], float] = {}

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "job":
            samples[event["iteration"], event["job"]] = event["samples"]
        if event["event"] != "iteration":
            return
        number = event["iteration"]
        files = sorted((tmp_path / "jobs" / f"{number:04d}").glob("*.safetensors"))
        assert [file.stem for file in files] == ["0", "1"]
        weights = torch.tensor([samples[number, job] for job in (0, 1)], dtype=torch.float64)
        models = [read_model(file).tensors for file in files]
        expected[number] = {
            name: sum(w * m[name].double() for w, m in zip(weights, models, strict=True))
            / weights.sum()
            for name in models[0]
        }

    config = small_config(tmp_path, examples, outer=AVERAGE, run={"keep_models": True})
    train(config, on_event=look)
    assert {event["chosen"] for event in events_of(tmp_path, "iteration")} == {"average"}
    for number in (1, 3):
        found = read_model(tmp_path / "models" / f"{number:04d}.safetensors").tensors
        for name, mean in expected[number].items():
            torch.testing.assert_close(found[name].double(), mean, rtol=1e-6, atol=1e-7)


def test_default_takes_the_best_with_the_bits_of_before_there_was_the_option(
    examples: Path, tmp_path: Path
) -> None:
    best = train(small_config(tmp_path / "best", examples, outer={"fresh": "best"}))
    usual = train(small_config(tmp_path / "usual", examples))
    average = train(small_config(tmp_path / "average", examples, outer=AVERAGE))
    assert best.read_bytes() == usual.read_bytes() != average.read_bytes()
    chosen = [event["chosen"] for event in events_of(tmp_path / "usual", "iteration")]
    assert chosen[:4] == ["best of 2", "average"] * 2


def test_run_with_a_table_from_before_there_was_the_option_is_resumed(
    examples: Path, tmp_path: Path
) -> None:
    config = small_config(tmp_path, examples, outer={"momentum": 0.5})
    final = train(config)
    before = final.read_bytes()
    older = json.loads((tmp_path / "config.json").read_text())
    del older["outer"]["fresh"]
    (tmp_path / "config.json").write_text(json.dumps(older))
    with pytest.raises(ConfigError, match=r'outer\.fresh was "best" and is "average"'):
        train(small_config(tmp_path, examples, outer={"momentum": 0.5, **AVERAGE}))
    final.unlink()
    assert train(config).read_bytes() == before
