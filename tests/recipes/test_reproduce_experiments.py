"""The experiments of section 5, small: they run, and what they find is what the theory says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from natgrad.cli import main
from natgrad.nn import NetworkConfig, build
from natgrad.optim.diagnose import measure_fisher
from natgrad.recipes.reproduce.commands import list_experiments, reproduce
from natgrad.recipes.reproduce.eigenvalues.experiment import EigenvalueSettings, num_invariances
from natgrad.recipes.reproduce.eigenvalues.phone_frames import speak_frames
from natgrad.recipes.reproduce.eigenvalues.small_training import SmallTraining, trained
from natgrad.recipes.reproduce.experiment import Figure
from natgrad.recipes.reproduce.online_update.experiment import SPECTRA, OnlineUpdateSettings

SMALL_UPDATE = [
    "seeds=[1,2]", "dimension=8", "rank=2", "etas=[0.5]", "num_updates=400", "batch_sizes=[32,64]",
    "histories=[200,400]", "start_samples=640",
]  # fmt: skip
SMALL_EIGENVALUES = [
    "seeds=[1]", "moments=[5,60]", "fisher_frames=500", "ranks=[1,2]", "alphas=[1.0]",
    "training.num_frames=1500", "training.num_classes=5", "training.context=0",
    "training.hidden=[[6,3],[6,3]]", "training.num_minibatches=60", "training.minibatch_size=64",
    "training.rank_in=2", "training.rank_out=2",
]  # fmt: skip


def found_in(directory: Path) -> dict[str, Any]:
    files = sorted((directory / "measurements").iterdir())
    return {file.stem: json.loads(file.read_text())["found"] for file in files}


@pytest.fixture(scope="module")
def small_update(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("online-update")
    reproduce("online-update", out, None, SMALL_UPDATE, None, lambda figure: "<svg/>")
    return out


@pytest.fixture(scope="module")
def small_eigenvalues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("eigenvalues")
    settings = [word for setting in SMALL_EIGENVALUES for word in ("--set", setting)]
    assert main(["reproduce", "eigenvalues", "-o", str(out), *settings]) == 0
    return out


def test_both_experiments_are_listed() -> None:
    assert {name for name, _ in list_experiments()} >= {"eigenvalues", "online-update"}


# -- online update -------------------------------------------------------------------------------


def test_infinite_minibatches_reach_the_limit_at_the_derived_rate(small_update: Path) -> None:
    found = found_in(small_update)
    for spectrum in SPECTRA:
        infinite = found[f"infinite-{spectrum}-0.5"]
        key = "beyond_limit" if spectrum in ("tie", "flat") else "from_limit"
        for curve in infinite["curves"]:
            assert abs(curve[-1][key]) < 1e-10, spectrum
    for rate in found["infinite-decaying-0.5"]["rates"]:
        assert rate == pytest.approx(found["infinite-decaying-0.5"]["predicted_rate"], rel=1e-3)


def test_wrong_fixed_point_is_kept_exactly_and_left_otherwise(small_update: Path) -> None:
    found = found_in(small_update)["wrong-gap"]
    assert found["exact"][-1]["space"] == pytest.approx(2.0)
    for seed in (1, 2):
        assert found[f"seed-{seed}"][-1]["from_limit"] < 1e-9


def test_noise_of_the_steady_state_is_about_as_expected(small_update: Path) -> None:
    found = found_in(small_update)
    for spectrum in ("gap", "decaying"):
        for cell in found[f"finite-{spectrum}-seed-1"]["cells"]:
            ratio = cell["factor_rms"] / cell["expected_factor_rms"]
            assert 0.6 < ratio < 1.6, (spectrum, cell)
    methods = [cell["method"] for cell in found["finite-gap-seed-1"]["cells"]]
    assert methods.count("eigenvectors") == 1


def test_page_of_the_online_update_tells_both_answers(small_update: Path) -> None:
    page = (small_update / "online-update.md").read_text()
    assert "**With infinite minibatches, yes.**" in page
    assert "**With finite minibatches it settles" in page
    assert page.count("![") == 4
    assert "nan" not in page
    assert len(list(small_update.glob("online-update-*.svg"))) == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rank": 1}, "rank from 2 to half"),
        ({"rank": 40}, "rank from 2 to half"),
        ({"etas": (1.0,)}, "numbers between 0 and 1"),
        ({"seeds": ()}, "expected some seeds"),
        ({"batch_sizes": (0,)}, "at least 1"),
    ],
)
def test_settings_of_the_online_update_are_checked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineUpdateSettings(**changed)


def test_spectra_are_descending() -> None:
    for spectrum in SPECTRA.values():
        for dimension, rank in ((64, 8), (8, 2), (10, 5)):
            values = spectrum(dimension, rank)
            assert len(values) == dimension
            assert bool((values.diff() <= 0).all())
    assert SPECTRA["tie"](10, 4)[3] == SPECTRA["tie"](10, 4)[4]


# -- eigenvalues ---------------------------------------------------------------------------------


def test_changed_variables_bring_eigenvalues_closer(small_eigenvalues: Path) -> None:
    found = found_in(small_eigenvalues)["seed-1-after-60"]
    for kind in ("true", "empirical"):
        spectra = found[kind]
        assert spectra["exact"]["log10_std"] < spectra["before"]["log10_std"]
        assert spectra["exact"]["flatness"] > spectra["before"]["flatness"]
        assert spectra["exact"]["mean"] == pytest.approx(1.0, abs=0.7)
        assert spectra["blocks"]["mean"] == pytest.approx(1.0, abs=1e-3)
        assert spectra["blocks"]["flatness"] > spectra["exact"]["flatness"]
        for block in spectra["blocks"]["blocks"]:
            assert block["log10_std"] < 1e-6
    names = {"before", "online", "exact", "online-alpha", "exact-alpha", "as-steps", "simple"}
    names |= {"blocks"}
    assert set(found["true"]) == {*names, "online-1", "exact-1", "best-1", "best-2"}
    assert set(found["empirical"]) == names
    assert "empirical" not in found_in(small_eigenvalues)["seed-1-after-5"]


def test_smoothing_lies_between_nothing_and_everything(small_eigenvalues: Path) -> None:
    """alpha = 0 is the factored matrix, and a large alpha the unit matrix."""
    spectra = found_in(small_eigenvalues)["seed-1-after-60"]["true"]
    for name in ("online", "exact"):
        none, one, four = (spectra[f"{name}{end}"]["log10_std"] for end in ("", "-1", "-alpha"))
        assert none < one < four < spectra["before"]["log10_std"] * 1.02


def test_zeros_are_found_where_they_are_counted(small_eigenvalues: Path) -> None:
    for found in found_in(small_eigenvalues).values():
        assert found["num_invariances"] == 4 + 4 + 4
        for spectrum in found["true"].values():
            assert spectrum["largest_zero"] < 1e-12
            assert spectrum["num"] == found["num_parameters"] - found["num_invariances"]
            quantiles = spectrum["quantiles"]
            assert quantiles == sorted(quantiles)
            assert quantiles[-1] == pytest.approx(spectrum["largest"])


def test_page_of_eigenvalues_has_all_tables_and_figures(small_eigenvalues: Path) -> None:
    page = (small_eigenvalues / "eigenvalues.md").read_text()
    assert page.count("![") == 3
    assert page.count("| as NGSGD steps, simple |") == 2
    assert "| output | exact covariances |" in page
    assert "nan" not in page
    for figure in ("quantiles", "alpha", "rank"):
        svg = (small_eigenvalues / f"eigenvalues-{figure}.svg").read_text()
        assert "polyline" in svg


def test_the_same_measurement_gives_the_same_numbers(
    small_eigenvalues: Path, tmp_path: Path
) -> None:
    def draw(figure: Figure) -> str:
        return ""

    only = [s for s in SMALL_EIGENVALUES if not s.startswith("seeds")]
    reproduce("eigenvalues", tmp_path, None, [*only, "seeds=[1]"], None, draw)
    assert found_in(tmp_path) == found_in(small_eigenvalues)


@pytest.mark.parametrize(
    ("hidden", "num_classes"),
    [([(4, 2)], 3), ([(6, 3), (6, 3)], 4), ([(9, 3), (8, 4)], 3), ([(5, 5), (6, 3)], 3)],
)
def test_invariances_are_the_kernel_of_the_fisher_matrix(
    hidden: list[tuple[int, int]], num_classes: int
) -> None:
    generator = torch.Generator().manual_seed(1)
    network = build(5, num_classes, hidden, generator=generator).double()
    layers = [*network.hidden_linears(), network.output]
    for parameter in [network.output.weight, *(layer.bias for layer in layers)]:
        torch.nn.init.normal_(parameter, generator=generator)
    inputs = torch.randn(1000, 5, generator=generator, dtype=torch.float64)
    eigenvalues = torch.linalg.eigvalsh(measure_fisher(network, layers, inputs).matrix)
    num_zero = sum(num_invariances(network.config))
    assert float(eigenvalues[num_zero - 1]) < 1e-14 * float(eigenvalues[-1])
    assert float(eigenvalues[num_zero]) > 100 * float(eigenvalues[num_zero - 1].abs())


def test_more_zeros_than_were_counted_are_told(tmp_path: Path) -> None:
    two_groups = [s for s in SMALL_EIGENVALUES if "hidden" not in s]
    with pytest.raises(ValueError, match=r"there are more zeros than the network's shape tells of"):
        reproduce(
            "eigenvalues", tmp_path, None, [*two_groups, "training.hidden=[[6,2],[4,2]]"], None, str
        )


def test_invariances_of_other_networks_are_not_made_up() -> None:
    with pytest.raises(ValueError, match="only known for pnorm with p = 2"):
        num_invariances(NetworkConfig(3, 2, [4], nonlinearity="relu"))
    with pytest.raises(ValueError, match="only known for pnorm with p = 2"):
        num_invariances(NetworkConfig(3, 2, [(4, 2)], p=1.0))


def test_training_learns_and_its_beginning_does_not_depend_on_its_end() -> None:
    frames = speak_frames(1000, seed=2, num_classes=4, context=0)
    training = SmallTraining(
        num_frames=1000, num_classes=4, context=0, hidden=((6, 3),), num_minibatches=40
    )
    seen: list[int] = []
    objectives = []
    for num_minibatches in (0, 40):
        network, _ = trained(training, frames, 3, num_minibatches, seen.append)
        with torch.no_grad():
            loss = torch.nn.functional.cross_entropy(network(frames.features), frames.labels)
        objectives.append(-float(loss))
    assert objectives[0] == pytest.approx(-math.log(4), abs=1e-5)
    assert objectives[1] > objectives[0] + 0.3
    assert len(seen) == 40


def test_frames_of_another_call_have_the_same_classes() -> None:
    first = speak_frames(400, seed=1, num_classes=6, context=1)
    second = speak_frames(400, seed=2, num_classes=6, context=1, phones=first.phones)
    again = speak_frames(400, seed=1, num_classes=6, context=1)
    assert first.phones == second.phones
    assert torch.equal(first.features, again.features)
    assert torch.equal(first.labels, again.labels)
    assert first.features.shape == (len(first), 39)
    assert 0 <= int(second.labels.min()) <= int(second.labels.max()) < 6
    assert first.phones[-1] == "other"
    assert abs(float(first.features[:, 13:26].mean(dim=0).abs().max())) < 1e-3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"moments": (10, 20)}, "training ends after 3000 minibatches"),
        ({"moments": (3000, 100)}, "in ascending order"),
        ({"seeds": ()}, "expected some of each"),
        ({"ranks": (0,)}, "all at least 1"),
        ({"alphas": (0.0,)}, "all above 0"),
        ({"training": SmallTraining(num_minibatches=7)}, "training ends after 7"),
    ],
)
def test_settings_of_eigenvalues_are_checked(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EigenvalueSettings(**changed)


@pytest.mark.parametrize(
    "changed", [{"rank_in": 0}, {"num_classes": 1}, {"final_lr": 0.5}, {"initial_lr": 0.0}]
)
def test_settings_of_the_training_are_checked(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected both positive|at least"):
        SmallTraining(**changed)
