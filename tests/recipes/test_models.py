from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from natgrad.nn import Network, build, mix_up
from natgrad.recipes.combination import combine_models
from natgrad.recipes.describe import format_bytes
from natgrad.recipes.models import average_models, describe, export_onnx, restore_network
from natgrad.recipes.plain_network import PlainNetwork
from natgrad.run.events import EventLog
from natgrad.run.model_file import ModelFileError, read_model, write_model


def random_network(seed: int = 0, **options: Any) -> Network:
    generator = torch.Generator().manual_seed(seed)
    options = {"hidden": [(20, 5), (20, 5)], **options}
    network = build(12, 7, generator=generator, **options)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return network


def mixed_up_network() -> Network:
    generator = torch.Generator().manual_seed(1)
    transform = (torch.randn(8, 12, generator=generator), torch.randn(8, generator=generator))
    network = random_network(input_transform=transform, class_counts=torch.arange(1, 8))
    return mix_up(network, torch.arange(1, 8), num_subclasses=15, generator=generator)


NETWORKS = {
    "pnorm": random_network,
    "p=3": lambda: random_network(p=3.0),
    "relu": lambda: random_network(hidden=[30, 20], nonlinearity="relu"),
    "sigmoid": lambda: random_network(hidden=[30], nonlinearity="sigmoid"),
    "mixed up, with all fixed layers": mixed_up_network,
}


def write(path: Path, network: Network, **description: Any) -> Path:
    write_model(path, network.state_dict(), {"network": asdict(network.config), **description})
    return path


def features(num_rows: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(num_rows, 12, generator=torch.Generator().manual_seed(num_rows))


# -- info ----------------------------------------------------------------------------------------


def test_description_tells_layers_counts_norms_and_priors(tmp_path: Path) -> None:
    network = random_network(class_counts=torch.arange(1, 8))
    counts = [0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    path = write(tmp_path / "m.safetensors", network, class_counts=counts, iteration=3)
    text = describe(path)
    num_trained = sum(parameter.numel() for parameter in network.parameters())
    assert f"{num_trained} parameters are trained" in text
    assert f"in {len(network.state_dict())} tensors, {format_bytes(path.stat().st_size)}\n" in text
    assert "7 classes counted on 27 samples" in text
    assert "1 of them never seen" in text
    assert "iteration: 3" in text
    assert 'nonlinearity "pnorm"' in text
    row = next(line for line in text.splitlines() if line.startswith("hidden.0.linear.weight"))
    assert row.split()[1:5] == ["20", "x", "12", "240"]
    assert float(row.split()[5]) == pytest.approx(
        network.hidden_linears()[0].weight.norm().item(), rel=1e-3
    )
    assert "all values are finite" in text
    assert next(line for line in text.splitlines() if "prior_scale.scales" in line).endswith(
        "not trained"
    )


def test_values_that_are_not_finite_are_told_by_tensor(tmp_path: Path) -> None:
    network = random_network()
    with torch.no_grad():
        network.output.bias[2:4] = torch.tensor([torch.nan, torch.inf])
    text = describe(write(tmp_path / "m.safetensors", network))
    assert "WARNING: 2 values of output.bias are NaN or infinite" in text
    assert "all values are finite" not in text


@pytest.mark.parametrize("network", [{"depth": 3}, 5, "other shapes"])
def test_tensors_that_do_not_fit_the_description_are_told_with_a_warning(
    tmp_path: Path, network: Any
) -> None:
    other = asdict(random_network(hidden=[(20, 4)]).config)
    described = other if network == "other shapes" else network
    path = tmp_path / "m"
    write_model(path, random_network().state_dict(), {"network": described, "class_counts": 7})
    text = describe(path)
    assert "class_counts: 7" in text
    assert "output.weight" in text
    (warning,) = [line for line in text.splitlines() if line.startswith("WARNING")]
    assert "do not fit the description" in warning


def test_tensors_without_a_network_are_described_too(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_model(path, {"counts": torch.arange(3), "empty": torch.ones(0)}, {"long": [1] * 99})
    text = describe(path)
    assert "long: 99 values" in text
    assert "trained" not in text


def test_run_directory_is_described_by_its_events(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("start", num_iterations=4, resumed_from=None)
    assert "no iteration is complete yet" in describe(tmp_path)
    log.append(
        "iteration", iteration=2, num_iterations=4, epoch=0.5, num_epochs=1.0, num_jobs=3,
        objective=-1.25,
    )  # fmt: skip
    valid = {"objective": -1.5, "accuracy": 0.625}
    log.append("diagnostics", iteration=1, train=None, valid=valid)
    text = describe(tmp_path)
    assert "without an end so far" in text
    assert "iteration 2 of 4, epoch 0.50 of 1, 3 jobs, objective of jobs -1.2500" in text
    assert "after iteration 1: valid objective -1.5000, accuracy 62.50%" in text
    log.append("combine", inputs=[1, 2], objective=-1.125)
    log.append("end", status="failed", message="disk is full")
    text = describe(tmp_path)
    assert "a run, failed: disk is full" in text
    assert "combined from 2 models: objective -1.1250" in text
    log.append("start", num_iterations=4, resumed_from=2)
    assert "without an end so far" in describe(tmp_path)
    (tmp_path / "models").mkdir()
    write(tmp_path / "models" / "0002.safetensors", random_network())
    assert f"last model: {tmp_path / 'models' / '0002.safetensors'}" in describe(tmp_path)


def test_interrupted_run_has_not_failed(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("end", status="failed", message="KeyboardInterrupt")
    assert "a run, interrupted by hand" in describe(tmp_path)


def test_directory_of_stages_tells_how_far_they_are(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("stage", name="dnn", number=2, num_stages=3)
    assert describe(tmp_path) == f"{tmp_path}: stages, in number 2 of 3, dnn"
    log.append("stage_done", name="dnn", seconds=1.0, facts={})
    assert describe(tmp_path) == f"{tmp_path}: stages, after number 2 of 3, dnn"


def test_event_that_is_not_whole_is_refused_by_its_file(tmp_path: Path) -> None:
    EventLog(tmp_path / "events.jsonl").append("iteration", iteration=2)
    with pytest.raises(ValueError, match=r"events\.jsonl has an event that is not whole"):
        describe(tmp_path)


def test_results_that_are_not_finite_are_told_so(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.append("diagnostics", iteration=1, valid={"objective": math.nan, "accuracy": math.nan})
    assert "valid objective not finite, accuracy not finite" in describe(tmp_path)


def test_run_whose_final_model_was_cut_short_is_described_with_a_warning(tmp_path: Path) -> None:
    EventLog(tmp_path / "events.jsonl").append("start", num_iterations=4, resumed_from=None)
    path = write(tmp_path / "final.safetensors", random_network())
    assert f"final model: {path}" in describe(tmp_path)
    path.write_bytes(path.read_bytes()[:-8])
    text = describe(tmp_path)
    assert f"WARNING: the final model cannot be used: {path} is not a whole model file" in text
    assert "final model: " not in text


def test_what_is_neither_model_nor_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no events\.jsonl"):
        describe(tmp_path)
    with pytest.raises(ModelFileError, match="there is no model file"):
        describe(tmp_path / "missing")


# -- average -------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, [3.0, 1.0]])
def test_average_is_the_weighted_mean_and_says_of_what(
    tmp_path: Path, weights: list[float] | None
) -> None:
    networks = [random_network(seed) for seed in (1, 2)]
    paths = [write(tmp_path / f"{i}.safetensors", n, x=i) for i, n in enumerate(networks)]
    average_models(paths, tmp_path / "mean.safetensors", weights)
    mean = read_model(tmp_path / "mean.safetensors")
    first, second = weights or [1.0, 1.0]
    for name, value in mean.tensors.items():
        a, b = (network.state_dict()[name].double() for network in networks)
        expected = (first * a + second * b) / (first + second)
        torch.testing.assert_close(value, expected.float(), rtol=0, atol=1e-7)
    assert mean.description["averaged_from"] == {
        "models": [str(path) for path in paths],
        "weights": weights or [1.0, 1.0],
    }
    assert restore_network(tmp_path / "mean.safetensors").config == networks[0].config


def test_models_of_other_networks_are_not_averaged_or_combined(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a.safetensors", random_network()),
        write(tmp_path / "b.safetensors", random_network(p=3.0)),
    ]
    out = tmp_path / "mean.safetensors"
    with pytest.raises(ModelFileError, match=r"b\.safetensors is of another network than"):
        average_models(paths, out)
    with pytest.raises(ModelFileError, match=r"b\.safetensors is of another network than"):
        combine_models(paths, out, tmp_path / "examples")
    with pytest.raises(ValueError, match="3 weights for 1 models"):
        average_models(paths[:1], out, [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="nothing to average"):
        average_models([], out)
    assert not out.exists()


# -- export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e3])
def test_plain_network_is_the_network(name: str, scale: float) -> None:
    network = NETWORKS[name]()
    x = features(9, scale)
    with torch.no_grad():
        torch.testing.assert_close(
            PlainNetwork(network)(x), network.log_posteriors(x), rtol=1e-5, atol=1e-5
        )


def test_plain_pnorm_does_not_overflow_where_the_network_does_not() -> None:
    network = random_network()
    x = features(4, 1e25)
    with torch.no_grad():
        expected = network.log_posteriors(x)
        torch.testing.assert_close(PlainNetwork(network)(x), expected, rtol=1e-5, atol=1e-5)
    assert bool(expected.isfinite().all())


# Exporting takes seconds: the plain network is compared above, so one with every layer will do.
def test_onnxruntime_computes_what_torch_does(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    network = mixed_up_network()
    path = write(tmp_path / "m.safetensors", network, class_counts=[1.0] * 7)
    export_onnx(path, tmp_path / "m.onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"))
    for num_rows in (1, 2, 33):
        x = features(num_rows)
        (found,) = session.run(["log_posteriors"], {"features": x.numpy()})
        with torch.no_grad():
            expected = network.log_posteriors(x)
        torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-5, atol=1e-5)
    kept = json.loads(session.get_modelmeta().custom_metadata_map["natgrad"])
    assert kept == read_model(path).description


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_missing_onnx_is_an_error_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"'{package}': pip install 'natgrad\[onnx\]'"):
        export_onnx(write(tmp_path / "m.safetensors", random_network()), tmp_path / "m.onnx")


def test_model_that_does_not_fit_its_description_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd.safetensors"
    network = random_network()
    write_model(path, {"output.weight": torch.ones(2, 2)}, {"network": asdict(network.config)})
    with pytest.raises(ModelFileError, match=r"odd\.safetensors does not fit its own description"):
        restore_network(path)
    write_model(path, {}, {})
    with pytest.raises(ModelFileError, match=r"odd\.safetensors does not say which network"):
        restore_network(path)
