"""The paper's options, one at a time: what is changed, what is measured, what is told of it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.parallel.dispatch import RunFailedError
from natgrad.parallel.judge import NoJobLeftError
from natgrad.recipes.reproduce import speech_runs
from natgrad.recipes.reproduce.ablations.experiment import ABLATIONS
from natgrad.recipes.reproduce.ablations.figures import alpha_figure, differences_figure
from natgrad.recipes.reproduce.ablations.results import (
    AblationResults,
    Difference,
    chance_of_passing,
)
from natgrad.recipes.reproduce.ablations.runs import train_baseline, train_variant
from natgrad.recipes.reproduce.ablations.settings import Ablations
from natgrad.recipes.reproduce.ablations.variants import (
    COMBINATIONS,
    all_variants,
    trained_variants,
)
from natgrad.recipes.reproduce.commands import reproduce
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.train_config import TrainConfig
from natgrad.run.config import from_mapping, to_mapping
from tests.recipes.small_demo import files_of, found_in

# -- what is changed -----------------------------------------------------------------------------

# By the names of variants, all that they change, as the tables of a configuration have it.
EXPECTED: dict[str, dict[str, Any]] = {
    **{f"alpha-{alpha:g}": {"optimizer.alpha": alpha} for alpha in (0.1, 0.5, 1.0, 10.0)},
    "rank-5-20": {"optimizer.rank_in": 5, "optimizer.rank_out": 20},
    "rank-10-40": {"optimizer.rank_in": 10, "optimizer.rank_out": 40},
    "rank-40-40": {"optimizer.rank_in": 40, "optimizer.rank_out": 40},
    "rank-40-160": {"optimizer.rank_in": 40, "optimizer.rank_out": 160},
    "update-period-1": {"optimizer.update_period": 1},
    "update-period-16": {"optimizer.update_period": 16},
    "history-500": {"optimizer.num_samples_history": 500.0},
    "history-8000": {"optimizer.num_samples_history": 8000.0},
    "max-change-off": {"optimizer.max_change_per_sample": None},
    "fresh-average": {"outer.fresh": "average"},
    "all-layers": {"network.initial_num_hidden": None},
    "output-mix-up": {"network.output": "mix_up"},
    "output-plain": {"network.output": "plain"},
    "simple": {"optimizer.method": "simple"},
    "sgd": {"optimizer.method": "none"},
}


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    assert before.keys() == after.keys()
    return {
        f"{table}.{field.name}": getattr(after[table], field.name)
        for table in before
        for field in fields(before[table])
        if getattr(before[table], field.name) != getattr(after[table], field.name)
    }


def test_each_change_is_what_its_name_says_and_nothing_else() -> None:
    tables = Ablations().tables()
    found = {v.name: differing(tables, v.apply(tables)) for v in trained_variants(Ablations())}
    assert found == EXPECTED


def test_changes_of_combination_need_no_training() -> None:
    tables = Ablations().tables()
    for variant in COMBINATIONS:
        assert differing(tables, variant.apply(tables)) == {}
    named = [variant.name for variant in all_variants(Ablations())]
    assert len(set(named)) == len(named) == len(EXPECTED) + len(COMBINATIONS)


def test_the_baseline_has_the_papers_options_and_combines_on_training_data_alone() -> None:
    tables = Ablations().tables()
    optimizer, network = tables["optimizer"], tables["network"]
    assert (optimizer.alpha, optimizer.rank_in, optimizer.rank_out) == (4.0, 20, 80)
    assert (optimizer.update_period, optimizer.num_samples_history) == (4, 2000.0)
    assert optimizer.max_change_per_sample == 0.075
    assert (network.initial_num_hidden, network.output) == (1, "prior_scale")
    assert (tables["combination"].method, tables["combination"].data) == ("generalised", "train")
    assert tables["outer"].fresh == "best"


def test_what_a_measurement_depends_on_is_a_whole_configuration() -> None:
    """Its settings are all tables, so that no option can change without being measured again."""
    listed = ABLATIONS.measurements(Ablations(), Path("exp"))
    runs = [m for m in listed if "network" in m.settings]
    assert len(runs) == 3 * (1 + len(EXPECTED))
    assert len({json.dumps(dict(m.settings), sort_keys=True) for m in runs}) == len(runs)
    for measurement in runs:
        tables = {k: v for k, v in measurement.settings.items() if isinstance(v, dict)}
        whole = {"run": {"directory": "d"}, "data": {"examples": "e"}, **tables}
        config = from_mapping(TrainConfig, whole)
        assert to_mapping(config).keys() - tables.keys() == {"run", "data", "engine"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seeds": (1,)}, "expected at least two"),
        ({"seeds": (1, 1)}, "expected at least two"),
        ({"alphas": (1.0, 4.0)}, "not 4.0, which is what they are compared with"),
        ({"ranks": ((20, 80),)}, r"not \(20, 80\)"),
        ({"ranks": ((20,),)}, "of inputs, of derivatives"),
        ({"update_periods": (1, 1)}, "each value once"),
        ({"histories": (2000.0,)}, "not 2000.0"),
    ],
)
def test_settings_are_checked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ablations(**changed)


# -- which differences are more than chance ------------------------------------------------------


@given(
    st.lists(st.floats(-1, 1), min_size=2, max_size=5),
    st.floats(0, 1),
)
def test_more_than_chance_means_that_all_seeds_agree(values: list[float], chance: float) -> None:
    sign = Difference(values, chance).sign
    if sign:
        assert all(sign * value > 0 for value in values)
        assert abs(sum(values) / len(values)) > chance
    assert Difference([-value for value in values], chance).sign == -sign
    assert Difference(values, chance, num_diverged=1).sign == 0


@pytest.mark.parametrize(
    ("values", "chance", "sign"),
    [
        ([0.10, 0.11, 0.12], 0.05, 1),
        ([-0.10, -0.11, -0.12], 0.05, -1),
        ([0.10, 0.11, 0.12], 0.15, 0),  # the baseline's seeds are further apart
        ([0.01, 0.20, 0.30], 0.05, 0),  # they agree, but not on how much
        ([], 0.05, 0),
    ],
)
def test_sign_of_a_difference(values: list[float], chance: float, sign: int) -> None:
    assert Difference(values, chance).sign == sign


def test_chance_of_passing_falls_with_seeds() -> None:
    """Of 1e6 draws with numpy: 0.199, 0.0410, 0.0083 for 2, 3 and 4 seeds."""
    for num_seeds, expected in ((2, 0.199), (3, 0.041), (4, 0.0083)):
        noise = math.sqrt(expected * (1 - expected) / 20_000)
        assert chance_of_passing(num_seeds) == pytest.approx(expected, abs=4 * noise)


# -- the report, on findings that were made up ---------------------------------------------------

BASELINE = {1: -2.00, 2: -2.02, 3: -2.01}  # a range of 0.02


def reached(train: float, valid: float | None = None) -> dict[str, float]:
    valid = train - 0.3 if valid is None else valid
    return {
        "train_objective": train, "train_accuracy": 0.5, "valid_objective": valid,
        "valid_accuracy": 0.4 + valid + 2.3,
    }  # fmt: skip


def run_that_reaches(train: float, valid: float | None = None) -> Found:
    final, last = reached(train, valid), reached(train - 0.05, valid)
    return {
        "diverged": None, "num_iterations": 9, "num_left_out": 0, "last": last, "final": final,
    }  # fmt: skip


def made_up(settings: Ablations) -> dict[str, Found]:
    """All changes change nothing, but for noise that is the same for all of them."""
    found: dict[str, Found] = {"examples": {"samples": 1000, "blocks": 10, "classes": 100}}
    for seed, own in BASELINE.items():
        found[f"baseline-seed-{seed}"] = run_that_reaches(own)
        found[f"combinations-seed-{seed}"] = {
            "mean": {**reached(own - 0.001), "num_models": seed},
            "each": {**reached(own + 0.001), "num_models": 2},
            "inputs": [[5, 6], [7], [8, 9]],
            "last_inputs": [7, 8, 9],
        }
        for variant in trained_variants(settings):
            found[f"{variant.name}-seed-{seed}"] = run_that_reaches(own + 0.01 * (seed - 2))
    return found


@pytest.fixture
def found() -> dict[str, Found]:
    return made_up(Ablations())


def told(found: dict[str, Found]) -> str:
    return " ".join(ABLATIONS.report(Ablations(), found).answer.split())


def body(found: dict[str, Found]) -> list[str]:
    parts = ABLATIONS.report(Ablations(), found).body
    return "\n".join(part for part in parts if isinstance(part, str)).splitlines()


def row(found: dict[str, Found], option: str, value: str) -> list[str]:
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in body(found)]
    (cells,) = [cells for cells in rows if cells[1:2] == [option] and cells[3] == value]
    return cells[4:]


def diverged(message: str = "iteration 3 failed") -> Found:
    return {"diverged": message, "num_iterations": 2, "num_left_out": 5}


def test_answer_says_that_nothing_matters_if_nothing_does(found: dict[str, Found]) -> None:
    for seed in BASELINE:  # the last iteration's is worse by 0.05, unless it is told otherwise
        found[f"baseline-seed-{seed}"]["last"] = found[f"baseline-seed-{seed}"]["final"]
    answer = told(found)
    assert "the objective is -2.010 (-2.020 to -2.000) on training data" in answer
    assert "- training, better: none - training, worse: none - held out, better: none" in answer
    assert "- held out, worse: none More than chance" in answer
    assert "diverged" not in answer
    assert "Of 22 changes" in answer
    assert "up to 4 % would pass: of all rows about 0.9" in answer


def test_answer_has_the_signs_of_the_numbers(found: dict[str, Found]) -> None:
    for seed, own in BASELINE.items():
        found[f"alpha-0.1-seed-{seed}"] = run_that_reaches(own - 0.2)
        found[f"alpha-1-seed-{seed}"] = run_that_reaches(own + 0.04, own - 0.3)
        found[f"update-period-1-seed-{seed}"] = run_that_reaches(own + 0.1, own - 0.5)
        found[f"sgd-seed-{seed}"] = run_that_reaches(own - 1.0)
    answer = told(found)
    assert "- training, better: update period 1 (+0.100); alpha 1 (+0.040) - " in answer
    assert "- training, worse: method SGD (-1.000); alpha 0.1 (-0.200); final model the" in answer
    assert "- held out, better: none - held out, worse: method SGD (-1.000); " in answer
    held_out = answer[answer.index("- held out") :]
    assert "update period 1 (-0.200)" in held_out
    assert "alpha 1 (" not in held_out
    claims = {line.split("|")[1].strip(): line for line in body(found) if line.startswith("| ")}
    assert "| 0.1: -0.200; 1: +0.040 | 0.1: -0.200 |" in claims["alpha"]
    assert claims["S"].endswith("| no more than chance | no more than chance |")


def test_rows_are_paired_differences_and_bold_if_more_than_chance(found: dict[str, Found]) -> None:
    found |= {f"alpha-1-seed-{seed}": run_that_reaches(own + 0.1) for seed, own in BASELINE.items()}
    assert row(found, "alpha", "1")[:2] == ["**+0.100**", "**+0.100**"]
    assert row(found, "alpha", "1")[2] == "**+10.00**"
    assert row(found, "S", "500")[0] == "+0.000 (-0.010 to +0.010)"
    # Other ends of the same run have its last model, of which there is nothing to tell.
    last = row(found, "final model", "the last iteration's")
    assert last == ["**-0.050**", "**-0.050**", "**-5.00**", "", "", ""]


def test_runs_that_diverged_are_told(found: dict[str, Found]) -> None:
    for seed, own in BASELINE.items():
        found[f"max-change-off-seed-{seed}"] = diverged()
        found[f"sgd-seed-{seed}"] = run_that_reaches(own - 1.0)
    found["sgd-seed-2"] = diverged()
    found["simple-seed-3"] = run_that_reaches(-13179.0)  # finite, but it knows less than nothing
    answer = told(found)
    assert (
        "- diverged: max-change none (3 of 3 seeds); method simple NG (1 of 3 seeds); method "
        "SGD (1 of 3 seeds) More than" in answer
    )
    assert "SGD (-1" not in answer  # no verdict from some of the seeds
    off = row(found, "max-change", "none")
    assert off == ["diverged"] * 5 + ["15"]
    assert row(found, "method", "SGD")[0] == "-1.000, 1 diverged"
    assert row(found, "method", "simple NG")[0] == "-0.005 (-0.010 to +0.000), 1 diverged"
    (claim,) = [line for line in body(found) if line.startswith("| max-change |")]
    assert claim.endswith("| none diverges | none diverges |")


def test_figures_have_a_dot_per_row_and_alpha_in_order(found: dict[str, Found]) -> None:
    for seed in BASELINE:
        found[f"history-500-seed-{seed}"] = diverged()
    results = AblationResults(Ablations(), found)
    lines = {line.name: line for line in differences_figure(results).lines}
    assert "method" not in lines
    assert [value for value, _ in differences_figure(results).marks] == pytest.approx([-0.02, 0.02])
    numbers = [v.name for v in results.variants]
    (only,) = lines["S"].points  # the other has diverged
    assert only[0] == numbers.index("history-8000") + 1
    assert only[1] == pytest.approx(0.0)
    assert lines["S"].ranges[0][1:] == pytest.approx((-0.01, 0.01))
    for line in alpha_figure(results).lines:
        assert [x for x, _ in line.points] == [0.1, 0.5, 1.0, 4.0, 10.0]
        assert line.points[3] == (4.0, 0.0)


# -- what is measured ----------------------------------------------------------------------------

SMALL = [
    "seeds=[1,2]", "alphas=[]", "ranks=[[5,4]]", "update_periods=[1]", "histories=[]",
    "num_jobs=2", "hidden=[[20,5],[20,5]]", "num_epochs=0.5", "num_models=2", "minibatch_size=32",
    "examples.samples_per_job=500", "examples.validation_samples=300",
    "examples.train_subset_samples=300",
]  # fmt: skip


def test_whole_experiment_in_small(finished_recipes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pages = reproduce("ablations", out, finished_recipes, SMALL, None, lambda figure: "<svg/>")
    measured = found_in(out)
    changes = {
        "rank-5-4", "update-period-1", "max-change-off", "fresh-average", "all-layers",
        "output-mix-up", "output-plain", "simple", "sgd",
    }  # fmt: skip
    names = {"baseline", "combinations", *changes}
    assert set(measured) == {"examples", *(f"{n}-seed-{s}" for n in names for s in (1, 2))}
    baseline = measured["baseline-seed-1"]
    for name in changes:
        run = measured[f"{name}-seed-1"]
        assert run["diverged"] is None
        assert run["num_iterations"] == baseline["num_iterations"]
        # Each change does something, but for a limit that is not met in so small a run.
        assert (run["last"] != baseline["last"]) == (name != "max-change-off"), name
        assert not list((out / "work" / f"{name}-seed-1" / "run" / "models").iterdir())
    combined = measured["combinations-seed-1"]
    # Weights per layer are never worse than the best of what they weigh, and than its mean.
    better = baseline["final"]["train_objective"] - combined["mean"]["train_objective"]
    assert better > -1e-6
    better = combined["each"]["train_objective"] - baseline["last"]["train_objective"]
    assert better > -1e-6
    assert len(combined["last_inputs"]) == 2
    page = pages[0].read_text()
    assert page.count("![") == 1  # there is no alpha to draw
    assert "nan" not in page

    # Nothing is done again.
    before = files_of(out / "measurements")
    reproduce("ablations", out, finished_recipes, SMALL, None, lambda figure: "<svg/>")
    assert files_of(out / "measurements") == before


def test_run_that_really_diverges_is_a_finding(finished_recipes: Path, tmp_path: Path) -> None:
    settings = Ablations(
        seeds=(1, 2), alphas=(), ranks=(), update_periods=(), histories=(), num_jobs=2,
        hidden=((20, 5), (20, 5)), num_epochs=1.0, num_models=2, initial_effective_lr=1e30,
        final_effective_lr=1e30, examples=speech_runs.ExampleSettings(800, 300, 300),
    )  # fmt: skip
    by_name = {m.name: m for m in ABLATIONS.measurements(settings, finished_recipes)}
    examples = by_name["examples"]
    place = tmp_path / "examples"
    place.mkdir()
    bench = Bench(tmp_path / "max-change-off-seed-1", {"examples": examples.run(Bench(place))})
    off = by_name["max-change-off-seed-1"].run(bench)
    assert "iteration 1 failed: no job of this outer iteration" in off["diverged"]
    assert (off["num_iterations"], off["num_left_out"]) == (0, 0)
    assert by_name["max-change-off-seed-1"].run(bench) == off  # also if it was killed before


def failing(cause: BaseException | None) -> Any:
    def train(bench: Bench) -> Found:
        raise RunFailedError("it failed") from cause

    return train


@pytest.mark.parametrize("cause", [None, OSError("the disk is full"), NoJobLeftError("diverged")])
def test_only_divergence_of_a_variant_is_a_finding(
    tmp_path: Path, cause: BaseException | None
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "events.jsonl").touch()
    with pytest.raises(RunFailedError, match="it failed"):
        train_baseline(Bench(tmp_path), failing(cause))
    if isinstance(cause, NoJobLeftError):
        found = train_variant(Bench(tmp_path), failing(cause))
        assert found == {"diverged": "it failed", "num_iterations": 0, "num_left_out": 0}
    else:
        with pytest.raises(RunFailedError, match="it failed"):
            train_variant(Bench(tmp_path), failing(cause))
