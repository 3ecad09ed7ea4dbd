"""The mean of models: equal to its definition in float64, the same bits however it is computed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.parallel import average as average_module
from natgrad.parallel.average import (
    NonFiniteModelError,
    average,
    average_files,
    non_finite_tensors,
)
from natgrad.run.model_file import write_model


@pytest.fixture(autouse=True)
def _keep_num_threads() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def random_models(num_models: int, seed: int = 0, scale: float = 1.0) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "weight": scale * torch.randn(7, 5, generator=generator),
            "bias": scale * torch.randn(5, generator=generator),
            "steps": torch.tensor(3),
        }
        for _ in range(num_models)
    ]


def literal_mean(tensors: list[Tensor], weights: list[float]) -> Tensor:
    """The definition, on numpy's float64 and with one sum per element."""
    shape, dtype = tensors[0].shape, tensors[0].dtype
    total = math.fsum(weights)
    arrays = [tensor.double().numpy().ravel() for tensor in tensors]
    values = [
        math.fsum(w * float(x) for w, x in zip(weights, column, strict=True)) / total
        for column in np.stack(arrays, axis=1)
    ]
    return torch.tensor(values, dtype=torch.float64).view(shape).to(dtype)


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name
        if a[name].is_floating_point():
            assert torch.equal(a[name].signbit(), b[name].signbit()), name


# -- the mean --------------------------------------------------------------------------------


@settings(deadline=None)
@given(
    num_models=st.integers(1, 17),
    seed=st.integers(0, 1000),
    scale=st.floats(1e-30, 1e30),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
    data=st.data(),
)
def test_mean_is_that_of_its_definition(
    num_models: int, seed: int, scale: float, dtype: torch.dtype, data: st.DataObject
) -> None:
    scale = 1.0 if dtype == torch.float16 else scale
    models = [{"w": m["weight"].to(dtype)} for m in random_models(num_models, seed, scale)]
    positive = st.floats(1e-3, 1e9)
    weights = data.draw(st.lists(positive, min_size=num_models, max_size=num_models))
    mean = average(models, weights)["w"]
    expected = literal_mean([model["w"] for model in models], weights)
    assert mean.dtype == dtype
    # Float64 sums differ by round-off, which may decide the rounding to a narrower type.
    epsilon = torch.finfo(dtype).eps
    largest = max(float(model["w"].abs().max()) for model in models)
    error = float((mean.double() - expected.double()).abs().max())
    assert error <= max(epsilon * float(expected.abs().max()), 1e-14 * largest)


def test_sums_are_in_float64() -> None:
    """In float32 each of the small terms would vanish beside the first."""
    values = [2.0**24, *[1.0] * 62, -(2.0**24)]
    models = [{"w": torch.tensor([value])} for value in values]
    assert average(models, [1.0] * 64)["w"].item() == 62 / 64


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_model_comes_back_bit_by_bit(dtype: torch.dtype) -> None:
    model = {"w": torch.randn(1000, dtype=torch.float64).to(dtype), "n": torch.tensor(7)}
    model["w"][:2] = torch.tensor([-0.0, torch.finfo(dtype).max], dtype=dtype)
    for weight in (1e-3, 1.0, 3.0, 400_000.0):
        assert_same_bits(average([model], [weight]), model)


@given(num_models=st.integers(1, 16), weight=st.floats(1e-3, 1e9))
@settings(deadline=None)
def test_models_that_are_equal_have_themselves_as_mean(num_models: int, weight: float) -> None:
    (model,) = random_models(1)
    weights = [weight * (i + 1) for i in range(num_models)]
    assert_same_bits(average([model] * num_models, weights), model)


@pytest.mark.parametrize("equal", [True, False])
def test_bits_depend_neither_on_threads_nor_on_layout_nor_on_chunks(
    equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [{"w": torch.randn(301, 407)} for _ in range(5)]
    weights = [1e5] * 5 if equal else [1e5, 7.0, 99999.0, 12345.6, 1 / 3]
    torch.set_num_threads(1)
    expected = average(models, weights)
    transposed = [{"w": model["w"].t().contiguous().t()} for model in models]
    strided = [{"w": torch.stack([model["w"]] * 3, dim=2)[..., 1]} for model in models]
    for num_threads in (1, 2, 3):
        for chunk in (1000, 65537, 131072):
            monkeypatch.setattr(average_module, "CHUNK_ELEMENTS_PER_THREAD", chunk)
            torch.set_num_threads(num_threads)
            for layout in (models, transposed, strided):
                mean = average(layout, weights)
                assert_same_bits(mean, expected)
                assert mean["w"].is_contiguous()


def test_result_shares_no_memory_with_the_models() -> None:
    models = random_models(1)
    mean = average(models, [1.0])
    mean["weight"].zero_()
    mean["steps"].zero_()
    assert_same_bits(models[0], random_models(1)[0])


def test_parameters_that_require_gradients_are_averaged_without() -> None:
    mean = average([{"w": torch.ones(2, requires_grad=True)}] * 2, [1.0, 2.0])
    assert not mean["w"].requires_grad


def test_empty_and_scalar_tensors_are_averaged() -> None:
    models = [{"e": torch.empty(0, 3), "s": torch.tensor(float(i))} for i in range(3)]
    mean = average(models, [1.0] * 3)
    assert mean["e"].shape == (0, 3)
    assert mean["s"].shape == ()
    assert mean["s"].item() == 1.0


# -- refusals --------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.tensor(4), torch.tensor(3.0), torch.tensor([3])])
def test_integers_that_differ_are_refused_by_name(bad: Tensor) -> None:
    models = random_models(3)
    models[2]["steps"] = bad
    with pytest.raises(ValueError, match="'steps' of model 2"):
        average(models, [1.0] * 3)


def test_boolean_buffers_must_be_equal_and_are_kept() -> None:
    models = [{"mask": torch.tensor([True, False])} for _ in range(2)]
    assert_same_bits(average(models, [1.0, 2.0]), models[0])
    models[1]["mask"] = torch.tensor([True, True])
    with pytest.raises(ValueError, match=r"'mask' of model 1 .* torch\.bool"):
        average(models, [1.0, 2.0])


def test_complex_tensor_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'z' is of type torch\.complex64"):
        average([{"z": torch.zeros(1, dtype=torch.complex64)}], [1.0])


def test_other_names_shapes_and_types_are_refused_by_name() -> None:
    models = random_models(2)
    del models[1]["bias"]
    models[1]["scale"] = torch.ones(1)
    with pytest.raises(ValueError, match=r"model 1 .* missing bias; not expected scale"):
        average(models, [1.0] * 2)
    models = random_models(2)
    models[1]["bias"] = torch.ones(6)
    with pytest.raises(ValueError, match=r"'bias' of model 1 has shape \(6,\)"):
        average(models, [1.0] * 2)
    models[1]["bias"] = torch.ones(5, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"'bias' of model 1 .* torch\.float64"):
        average(models, [1.0] * 2)


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_weight_that_is_not_positive_and_finite_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=f"weight of model 1 is {weight}"):
        average(random_models(2), [1.0, weight])


def test_one_weight_per_model_is_needed() -> None:
    with pytest.raises(ValueError, match="3 weights for 2 models"):
        average(random_models(2), [1.0] * 3)
    with pytest.raises(ValueError, match="no model"):
        average([], [])


@pytest.mark.parametrize("values", [[math.nan], [math.inf], [math.inf, -math.inf]])
def test_model_that_is_not_finite_is_refused_by_name(values: list[float]) -> None:
    """Also where infinities of two models would cancel."""
    models = random_models(4)
    for model, value in zip(models[1:], values, strict=False):
        model["weight"][3, 2] = value
    with pytest.raises(NonFiniteModelError, match=r"model 1 .* in weight"):
        average(models, [1.0, 2.0, 3.0, 4.0])


def test_large_finite_models_are_not_taken_for_infinite() -> None:
    """Their sum overflows float32, their mean does not."""
    largest = torch.finfo(torch.float32).max
    models = [{"w": torch.full((3,), largest)} for _ in range(5)]
    assert average(models, [1.0, 2.0, 3.0, 4.0, 5.0])["w"].tolist() == [largest] * 3
    assert non_finite_tensors(models[0]) == []


# -- files -----------------------------------------------------------------------------------


def write_models(directory: Path, models: list[dict[str, Tensor]]) -> list[Path]:
    paths = [directory / f"{i}.safetensors" for i in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        write_model(path, model, {}, durable=False)
    return paths


def test_mean_of_files_is_the_mean_of_what_is_in_them(tmp_path: Path) -> None:
    models, weights = random_models(4), [1.0, 5.0, 2.0, 3.0]
    mean = average_files(write_models(tmp_path, models), weights)
    assert_same_bits(mean, average(models, weights))


def test_mean_outlives_its_files(tmp_path: Path) -> None:
    models = random_models(2)
    paths = write_models(tmp_path, models)
    mean = average_files(paths, [1.0, 1.0])
    for path in paths:
        path.unlink()
    assert_same_bits(mean, average(models, [1.0, 1.0]))


def test_errors_name_the_file(tmp_path: Path) -> None:
    models = random_models(3)
    models[1]["bias"][0] = math.nan
    paths = write_models(tmp_path, models)
    with pytest.raises(NonFiniteModelError, match=r"1\.safetensors .* in bias"):
        average_files(paths, [1.0] * 3)
    with pytest.raises(ValueError, match=r"weight of .*2\.safetensors is 0"):
        average_files(paths, [1.0, 1.0, 0.0])
