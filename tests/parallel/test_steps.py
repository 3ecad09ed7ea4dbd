"""How far jobs go and whether in one direction: against the definition, pair by pair."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.parallel import steps as steps_module
from natgrad.parallel.steps import relative_change, step_cosines

Tensors = dict[str, Tensor]


def random_models(
    num: int, seed: int, common: float, scale: float
) -> tuple[Tensors, list[Tensors]]:
    """A start, and models whose steps have something in common."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a.weight": (7, 5), "a.bias": (7,), "b.weight": (3, 7), "b.scales": (3,)}
    start = {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    shared = {name: common * torch.randn(*s, generator=generator) for name, s in shapes.items()}
    models = [
        {
            name: x + scale * (shared[name] + torch.randn(x.shape, generator=generator))
            for name, x in start.items()
        }
        for _ in range(num)
    ]
    for model in models:
        model["b.scales"] = start["b.scales"]
    return start, models


def literal_cosine(start: Tensors, models: list[Tensors], names: list[str]) -> float | None:
    """The mean over pairs, of steps that are not zero, in float64."""
    steps = [
        torch.cat([(model[name].double() - start[name].double()).flatten() for name in names])
        for model in models
    ]
    pairs = list(combinations([step for step in steps if step.norm() > 0], 2))
    if not pairs:
        return None
    return sum(float(x @ y / (x.norm() * y.norm())) for x, y in pairs) / len(pairs)


@settings(deadline=None, max_examples=50)
@given(
    num=st.integers(2, 9),
    seed=st.integers(0, 1000),
    common=st.floats(0.0, 3.0),
    scale=st.floats(1e-3, 1e3),
    chunk=st.sampled_from([1, 8, 16384]),
)
def test_cosines_are_those_of_their_definition(
    num: int, seed: int, common: float, scale: float, chunk: int
) -> None:
    start, models = random_models(num, seed, common, scale)
    names = ["a.weight", "a.bias", "b.weight"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps_module, "CHUNK_ELEMENTS", chunk)
        patch.setattr(steps_module, "MOST_CHUNKS", 100)
        found = step_cosines(start, models, names)
    assert found.all == pytest.approx(literal_cosine(start, models, names), abs=2e-5)
    assert found.layers == {
        "a": pytest.approx(literal_cosine(start, models, names[:2]), abs=2e-5),
        "b": pytest.approx(literal_cosine(start, models, names[2:]), abs=2e-5),
    }


def test_of_large_tensors_a_part_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "CHUNK_ELEMENTS", 4)
    monkeypatch.setattr(steps_module, "MOST_CHUNKS", 3)
    start = {"large.w": torch.zeros(30), "small.w": torch.zeros(2)}
    x, y = torch.full((30,), torch.nan), torch.full((30,), torch.nan)
    for begin in (0, 12, 24):  # of eight chunks, every third
        x[begin : begin + 4], y[begin : begin + 4] = 1.0, 2.0
    models = [
        {"large.w": x, "small.w": torch.tensor([3.0, 0.0])},
        {"large.w": y, "small.w": torch.tensor([0.0, 1.0])},
    ]
    found = step_cosines(start, models, ["large.w", "small.w"])
    assert found.layers == {"large": pytest.approx(1.0), "small": 0.0}
    # As if all 30 elements of the large one were like those.
    expected = 30 * 2.0 / ((30 + 9.0) * (30 * 4.0 + 1.0)) ** 0.5
    assert found.all == pytest.approx(expected)


@pytest.mark.parametrize("common", [0.0, 0.3, 3.0])
def test_cosines_of_large_tensors_are_close(common: float) -> None:
    generator = torch.Generator().manual_seed(1)
    shape = (700, 3000)
    start = {"a.w": torch.randn(*shape, generator=generator)}
    shared = common * torch.randn(*shape, generator=generator)
    models = [
        {"a.w": start["a.w"] + shared + torch.randn(*shape, generator=generator)} for _ in range(4)
    ]
    found = step_cosines(start, models, ["a.w"]).all
    assert found == pytest.approx(literal_cosine(start, models, ["a.w"]), abs=0.005)


def test_jobs_that_do_the_same_agree_wholly_and_opposite_ones_do_not() -> None:
    start = {"a.w": torch.zeros(3)}
    up, down = {"a.w": torch.tensor([1.0, 2.0, 3.0])}, {"a.w": torch.tensor([-2.0, -4.0, -6.0])}
    assert step_cosines(start, [up, up, up], ["a.w"]).all == pytest.approx(1.0)
    assert step_cosines(start, [up, down], ["a.w"]).all == pytest.approx(-1.0)


def test_what_has_not_moved_has_no_say() -> None:
    start = {"a.w": torch.zeros(2), "b.w": torch.zeros(2)}
    x, y = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    models = [{"a.w": x, "b.w": x}, {"a.w": y, "b.w": torch.zeros(2)}, start]
    found = step_cosines(start, models, ["a.w", "b.w"])
    assert found.layers == {"a": pytest.approx(0.5**0.5), "b": None}
    assert found.all == pytest.approx(literal_cosine(start, models, ["a.w", "b.w"]))
    assert step_cosines(start, [start, start], ["a.w"]).all is None


def test_steps_beyond_float32_have_no_cosine_rather_than_a_wrong_one() -> None:
    start = {"a.w": torch.zeros(2)}
    far = {"a.w": torch.full((2,), 1e30)}
    assert step_cosines(start, [far, far], ["a.w"]).all is None
    double = {name: x.double() for name, x in far.items()}
    both = [double, double]
    assert step_cosines({"a.w": torch.zeros(2).double()}, both, ["a.w"]).all == pytest.approx(1.0)


def test_relative_change_is_per_layer_and_none_of_a_layer_of_zeros() -> None:
    before = {"a.w": torch.tensor([3.0, 4.0]), "b.w": torch.zeros(2), "n": torch.tensor(1)}
    after = {"a.w": torch.tensor([3.0, 4.5]), "b.w": torch.ones(2), "n": torch.tensor(1)}
    assert relative_change(before, after) == {"a": pytest.approx(0.1), "b": None}


def test_relative_change_that_is_beyond_all_numbers_is_none() -> None:
    before, after = {"a.w": torch.ones(2)}, {"a.w": torch.full((2,), 3e38)}
    assert relative_change(before, after) == {"a": None}
