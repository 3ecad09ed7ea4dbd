"""Which of the last models are averaged, and how many."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from natgrad.parallel.average import average
from natgrad.parallel.combine import CombinationError
from natgrad.parallel.last_models import iteration_groups, mean_of_last


def models_of(*values: float) -> list[dict[str, Tensor]]:
    return [{"w": torch.tensor([value])} for value in values]


def distance_from(target: float, tensors: dict[str, Tensor]) -> float:
    return -abs(float(tensors["w"]) - target)


# -- the mean of the last n ------------------------------------------------------------------


@pytest.mark.parametrize(("target", "num_models"), [(0.0, 1), (1.1, 2), (2.1, 3), (9.0, 4)])
def test_number_of_models_is_that_of_the_best_mean(target: float, num_models: int) -> None:
    models = models_of(6.0, 4.0, 2.0, 0.0)
    found = mean_of_last(models, lambda tensors: distance_from(target, tensors))
    assert found.num_models == num_models
    assert torch.equal(found.tensors["w"], average(models[-num_models:], [1.0] * num_models)["w"])
    assert found.objectives == [-abs(mean - target) for mean in (0.0, 1.0, 2.0, 3.0)]
    assert found.objective == max(found.objectives)


def test_fewest_models_of_equally_good_means_are_taken() -> None:
    assert mean_of_last(models_of(1.0, 1.0, 1.0), lambda _: -1.0).num_models == 1


def test_means_with_a_model_that_is_not_finite_are_not_chosen() -> None:
    found = mean_of_last(models_of(5.0, math.nan, 2.0, 0.0), lambda t: distance_from(5.0, t))
    assert found.num_models == 2
    assert [math.isfinite(objective) for objective in found.objectives] == [
        True,
        True,
        False,
        False,
    ]


def test_no_finite_mean_is_a_clear_error() -> None:
    with pytest.raises(CombinationError, match="none of the means of the last 1 to 2 models"):
        mean_of_last(models_of(1.0, math.nan), lambda _: 0.0)


# -- groups of iterations --------------------------------------------------------------------


@given(
    num_iterations=st.integers(1, 200),
    iterations_per_epoch=st.floats(0.1, 300.0),
    max_models=st.integers(1, 25),
    data=st.data(),
)
def test_groups_are_consecutive_and_end_with_the_last_iteration(
    num_iterations: int, iterations_per_epoch: float, max_models: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, num_iterations))
    groups = iteration_groups(num_iterations, iterations_per_epoch, max_models, first)
    flat = [iteration for group in groups for iteration in group]
    assert flat == list(range(flat[0], num_iterations + 1))
    assert flat[0] >= first
    assert 1 <= len(groups) <= max_models
    sizes = [len(group) for group in groups]
    assert max(sizes) - min(sizes) <= 1
    # As many as there may be, over an epoch if there is one.
    available = num_iterations - first + 1
    assert len(groups) == min(max_models, available)
    assert len(flat) == min(available, max(max_models, math.ceil(iterations_per_epoch)))


def test_structure_that_changed_in_the_last_epoch_shortens_the_groups() -> None:
    groups = iteration_groups(100, iterations_per_epoch=80, max_models=4, first_iteration=89)
    assert groups == [[89, 90, 91], [92, 93, 94], [95, 96, 97], [98, 99, 100]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, 3.0, 2, 6), "first_iteration=6 of 5"),
        ((0, 3.0, 2, 1), "first_iteration=1 of 0"),
        ((5, 3.0, 0, 1), "max_models=0"),
        ((5, 0.0, 2, 1), "iterations_per_epoch=0"),
    ],
)
def test_impossible_numbers_are_refused(
    arguments: tuple[int, float, int, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        iteration_groups(*arguments)
