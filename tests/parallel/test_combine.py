"""The generalised combination: known optima, exact derivatives, and never worse than its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from natgrad.nn import Network, build
from natgrad.optim import NGSGD
from natgrad.parallel.combine import CombinationError, Objective, combine
from natgrad.parallel.layer_weights import LayerWeights

LAYERS = {"a": ["a.weight", "a.bias"], "b": ["b.weight"]}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def random_models(num_models: int, seed: int = 0) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            "a.weight": torch.randn(3, 4, generator=generator),
            "a.bias": torch.randn(3, generator=generator),
            "b.weight": torch.randn(5, generator=generator),
            "count": torch.tensor(7),
        }
        for _ in range(num_models)
    ]


def quadratic(target: dict[str, Tensor]) -> Objective:
    """-|theta - target|^2 / 2: its maximum is the projection on what the models span."""

    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        names = [name for layer in LAYERS.values() for name in layer]
        gradient = {name: (target[name] - tensors[name]).double() for name in names}
        return -0.5 * sum(float(g.square().sum()) for g in gradient.values()), gradient

    return objective


# -- where the optimum is known --------------------------------------------------------------


@pytest.mark.parametrize("precondition", [True, False])
def test_target_within_the_span_of_the_models_is_found_layer_by_layer(precondition: bool) -> None:
    models = random_models(3)
    weights = {"a": [0.5, -0.25, 1.5], "b": [0.0, 2.0, 0.125]}
    expected = LayerWeights(models, LAYERS).combined(torch.tensor(list(weights.values())))
    found = combine(models, quadratic(expected), LAYERS, precondition=precondition, tolerance=1e-12)
    assert found.chosen == "combination"
    assert found.objective > -1e-9
    for layer, values in weights.items():
        assert found.weights[layer] == pytest.approx(values, abs=1e-4)
    for name, tensor in expected.items():
        assert torch.allclose(found.tensors[name], tensor, atol=1e-4), name


def test_result_is_stored_in_the_types_and_with_the_buffers_of_the_models() -> None:
    models = random_models(2)
    found = combine(models, quadratic(random_models(1, seed=5)[0]), LAYERS)
    assert {n: t.dtype for n, t in found.tensors.items()} == {
        n: t.dtype for n, t in models[0].items()
    }
    assert found.tensors["count"].item() == 7
    assert quadratic(random_models(1, seed=5)[0])(found.tensors)[0] == found.objective


@settings(deadline=None, max_examples=40)
@given(
    num_models=st.integers(1, 5),
    seed=st.integers(0, 1000),
    roughness=st.floats(0.0, 30.0),
    max_evaluations=st.integers(1, 10),
    precondition=st.booleans(),
)
def test_combination_is_never_worse_than_its_best_input(
    num_models: int, seed: int, roughness: float, max_evaluations: int, precondition: bool
) -> None:
    """Also where the objective has many maxima, and its stated gradient is none of it."""
    models = random_models(num_models, seed)
    smooth = quadratic(random_models(1, seed + 1)[0])

    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        f, gradient = smooth(tensors)
        return f + roughness * math.sin(50.0 * float(tensors["b.weight"].sum())), gradient

    found = combine(
        models, objective, LAYERS, precondition=precondition, max_evaluations=max_evaluations
    )
    assert found.objective >= max(found.objectives)
    assert found.objective >= found.mean_objective
    assert objective(found.tensors)[0] == found.objective
    if found.chosen.startswith("model"):
        number = int(found.chosen.split()[1])
        assert all(torch.equal(found.tensors[name], t) for name, t in models[number].items())
        assert found.objective == found.objectives[number]


def test_gradient_that_points_the_wrong_way_leaves_the_best_input_and_says_so() -> None:
    models = random_models(3)
    right = quadratic(models[1])

    def wrong(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        f, gradient = right(tensors)
        return f, {name: -g - 1.0 for name, g in gradient.items()}

    found = combine(models, wrong, LAYERS)
    assert found.chosen == "model 1"
    assert found.start == 1
    assert found.weights == {"a": [0.0, 1.0, 0.0], "b": [0.0, 1.0, 0.0]}
    assert all(torch.equal(found.tensors[name], t) for name, t in models[1].items())


def test_mean_is_the_start_where_it_is_best() -> None:
    models = random_models(4)
    mean = LayerWeights(models, LAYERS).combined(torch.full((2, 4), 0.25))
    found = combine(models, quadratic(mean), LAYERS)
    assert found.start is None
    assert found.mean_objective > max(found.objectives)
    assert found.objective >= found.mean_objective


def test_one_model_can_still_be_scaled() -> None:
    (model,) = random_models(1)
    found = combine([model], quadratic({n: 3.0 * t for n, t in model.items()}), LAYERS)
    assert found.weights["a"] == pytest.approx([3.0], abs=1e-3)


def test_equal_models_do_not_upset_the_preconditioner() -> None:
    models = random_models(1) * 4
    found = combine(models, quadratic(random_models(1, seed=3)[0]), LAYERS)
    assert found.objective > found.mean_objective
    assert all(math.isfinite(w) for layer in found.weights.values() for w in layer)


def test_regularizer_keeps_weights_from_growing_without_end() -> None:
    """f = w grows forever; w - w^2 / 2 has its maximum at 1, where the search starts."""
    models = [{"w": torch.ones(1)}]

    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        return float(tensors["w"]), {"w": torch.ones(1)}

    assert combine(models, objective, {"l": ["w"]}, regularizer=0.5).weights == {"l": [1.0]}
    assert combine(models, objective, {"l": ["w"]}, regularizer=0.0).weights["l"][0] > 1e6


# -- derivatives -----------------------------------------------------------------------------


def test_derivative_by_weights_is_that_of_finite_differences() -> None:
    models = [{n: t.double() for n, t in m.items() if n != "count"} for m in random_models(3)]
    space = LayerWeights(models, LAYERS)

    def value(weights: Tensor) -> tuple[float, dict[str, Tensor]]:
        tensors = space.combined(weights)
        f = math.sin(float(tensors["a.weight"].sum())) + float(tensors["b.weight"].square().sum())
        gradient = {
            "a.weight": torch.full((3, 4), math.cos(float(tensors["a.weight"].sum()))),
            "a.bias": torch.zeros(3),
            "b.weight": 2.0 * tensors["b.weight"],
        }
        return f, gradient

    weights = torch.tensor([[0.2, 0.3, 0.4], [0.1, -0.5, 1.0]], dtype=torch.float64)
    derivative = space.derivative(value(weights)[1])
    for layer in range(2):
        for model in range(3):
            step = torch.zeros_like(weights)
            step[layer, model] = 1e-6
            numeric = (value(weights + step)[0] - value(weights - step)[0]) / 2e-6
            assert float(derivative[layer, model]) == pytest.approx(numeric, rel=1e-6, abs=1e-8)


def test_gram_and_norms_are_inner_products_by_layer() -> None:
    models = random_models(3)
    space = LayerWeights(models, LAYERS)
    flat = [torch.cat([m[n].reshape(-1).double() for n in LAYERS["a"]]) for m in models]
    expected = torch.stack([torch.stack([x @ y for y in flat]) for x in flat])
    assert torch.allclose(space.gram()[0], expected)
    assert space.num_parameters().tolist() == [15.0, 5.0]
    assert torch.allclose(space.squared_norms(models[1])[0], expected[1, 1])


# -- a network -------------------------------------------------------------------------------


def network_layers(network: Network) -> dict[str, list[str]]:
    layers: dict[str, list[str]] = {}
    for name, _ in network.named_parameters():
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    return layers


def objective_of(network: Network, x: Tensor, y: Tensor) -> Objective:
    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        names = [name for name, _ in network.named_parameters()]
        live = {name: t.detach().requires_grad_(name in names) for name, t in tensors.items()}
        f = -F.cross_entropy(functional_call(network, live, (x,)), y)
        gradient = torch.autograd.grad(f, [live[name] for name in names])
        return float(f.detach()), dict(zip(names, gradient, strict=True))

    return objective


@cache
def trained_models(num_models: int) -> tuple[Network, list[dict[str, Tensor]], Tensor, Tensor]:
    """The last models of a training that goes on at a high learning rate, and the data."""
    generator = torch.Generator().manual_seed(1)
    centers = torch.randn(5, 8, generator=generator)
    y = torch.randint(5, (800,), generator=generator)
    x = centers[y] + torch.randn(800, 8, generator=generator)
    network = build(8, 5, [(20, 5)] * 2, generator=generator)
    optimizer = NGSGD(network, lr=0.02)
    models = []
    for step in range(200 + 10 * num_models):
        rows = torch.randint(800, (32,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(network(x[rows]), y[rows], reduction="sum").backward()
        optimizer.step()
        if step >= 200 and step % 10 == 9:
            models.append({n: t.detach().clone() for n, t in network.state_dict().items()})
    optimizer.release()
    return network, models, x, y


def test_preconditioner_saves_evaluations_on_models_that_are_nearly_equal() -> None:
    network, models, x, y = trained_models(8)
    layers, objective = network_layers(network), objective_of(network, x, y)
    parts = [objective_of(network, x[i::16], y[i::16]) for i in range(16)]

    def values_met(precondition: bool) -> list[float]:
        values = []

        def recorded(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
            f, gradient = objective(tensors)
            values.append(f)
            return f, gradient

        combine(
            models,
            recorded,
            layers,
            value=lambda tensors: objective(tensors)[0],  # to choose the start: not recorded
            parts=parts,
            precondition=precondition,
            max_evaluations=80,
            tolerance=1e-8,
        )
        return values

    fast, slow = values_met(precondition=True), values_met(precondition=False)
    best = max(fast + slow)
    almost = best - 0.02 * (best - fast[0])
    num_fast = next(i for i, value in enumerate(fast) if value >= almost)
    num_slow = next((i for i, value in enumerate(slow) if value >= almost), len(slow))
    assert num_fast < num_slow / 2, (num_fast, num_slow)


def test_combination_of_a_network_beats_all_of_its_inputs_and_their_mean() -> None:
    network, models, x, y = trained_models(8)
    objective = objective_of(network, x, y)
    found = combine(models, objective, network_layers(network))
    assert found.chosen == "combination"
    assert found.objective > max(*found.objectives, found.mean_objective) + 0.005
    network.load_state_dict(found.tensors)
    assert -float(F.cross_entropy(network(x), y).detach()) == pytest.approx(found.objective)


def test_value_alone_chooses_the_start() -> None:
    models = random_models(4)
    objective = quadratic(random_models(1, seed=9)[0])
    num_gradients = 0

    def counted(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        nonlocal num_gradients
        num_gradients += 1
        return objective(tensors)

    with_value = combine(models, counted, LAYERS, value=lambda tensors: objective(tensors)[0])
    assert num_gradients == with_value.num_evaluations - len(models) - 1
    without = combine(models, objective, LAYERS)
    assert with_value.objective == without.objective
    assert with_value.num_evaluations == without.num_evaluations


# -- what is not finite, and what is refused -------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_input_that_is_not_finite_is_left_out(bad: float) -> None:
    models = random_models(3)
    models[1]["b.weight"][0] = math.nan
    smooth = quadratic(random_models(1, seed=4)[0])

    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        f, gradient = smooth(tensors)
        return (f if math.isfinite(f) else bad), gradient

    found = combine(models, objective, LAYERS)
    assert found.left_out == [1]
    assert found.start != 1
    assert all(weights[1] == 0.0 for weights in found.weights.values())
    same = combine([models[0], models[2]], objective, LAYERS)
    assert found.objective == same.objective
    assert all(torch.equal(found.tensors[name], same.tensors[name]) for name in models[0])


def test_mean_that_is_not_finite_is_not_the_start() -> None:
    models = random_models(2)
    smooth = quadratic(models[0])

    def objective(tensors: dict[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
        is_input = any(torch.equal(tensors["b.weight"], model["b.weight"]) for model in models)
        f, gradient = smooth(tensors)
        return (f if is_input else math.nan), gradient

    found = combine(models, objective, LAYERS)
    assert math.isnan(found.mean_objective)
    assert (found.start, found.chosen) == (0, "model 0")


def test_no_finite_input_is_a_clear_error() -> None:
    with pytest.raises(CombinationError, match="finite for none of the 2 models"):
        combine(random_models(2), lambda tensors: (math.nan, tensors), LAYERS)


def test_layers_that_do_not_fit_the_models_are_refused_by_name() -> None:
    models, objective = random_models(2), quadratic(random_models(1)[0])
    with pytest.raises(ValueError, match=r"layer 'a' names 'c\.weight'"):
        combine(models, objective, {"a": ["c.weight"]})
    with pytest.raises(ValueError, match=r"'b\.weight' is in layers 'a' and 'b'"):
        combine(models, objective, {**LAYERS, "a": ["b.weight"]})
    with pytest.raises(ValueError, match=r"'count' of layer 'c' is of type torch\.int64"):
        combine(models, objective, {**LAYERS, "c": ["count"]})
    with pytest.raises(ValueError, match=r"'a\.weight' belongs to no layer but differs"):
        combine(models, objective, {"b": ["b.weight"]})
    with pytest.raises(ValueError, match="nothing to combine"):
        combine(random_models(1), objective, {})


def test_models_that_do_not_fit_one_another_are_refused_by_name() -> None:
    models, objective = random_models(3), quadratic(random_models(1)[0])
    models[2]["a.bias"] = torch.ones(4)
    with pytest.raises(ValueError, match=r"'a\.bias' of model 2"):
        combine(models, objective, LAYERS)
    models = random_models(3)
    models[1]["count"] = torch.tensor(8)
    with pytest.raises(ValueError, match="'count' belongs to no layer but differs"):
        combine(models, objective, LAYERS)
    with pytest.raises(ValueError, match="no model"):
        combine([], objective, LAYERS)


def test_gradient_that_lacks_a_parameter_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"gradient for 'a\.weight' is missing"):
        combine(random_models(2), lambda tensors: (0.0, {}), LAYERS)


def test_part_that_is_not_finite_is_refused() -> None:
    models, objective = random_models(2), quadratic(random_models(1)[0])
    with pytest.raises(ValueError, match="part 1 of the subset has the objective nan"):
        combine(models, objective, LAYERS, parts=[objective, lambda t: (math.nan, objective(t)[1])])
