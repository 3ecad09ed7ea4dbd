"""What OnlineFisher keeps, what it takes, and what it refuses."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch

from natgrad.optim import NonFiniteError, OnlineFisher, precondition_simple
from tests.optim.samples import minibatch, relative_error


def test_no_rows_change_nothing() -> None:
    fisher = OnlineFisher(rank=3)
    empty = torch.zeros(0, 8)
    assert fisher.precondition(empty)[0].shape == (0, 8)
    fisher.precondition(minibatch("iid", 20, 8, seed=0).float())
    before = fisher.state_dict()
    X_bar, squared_row_norms = fisher.precondition(empty)
    assert X_bar.shape == (0, 8)
    assert squared_row_norms.shape == (0,)
    assert fisher.state_dict() == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_before", [0, 1, 11])
def test_loaded_state_gives_the_same_bits(dtype: torch.dtype, num_before: int) -> None:
    batches = [minibatch("correlated", 20, 9, seed=t).to(dtype) for t in range(20)]
    first = OnlineFisher(rank=4)
    for X in batches[:num_before]:
        first.precondition(X)
    second = OnlineFisher(rank=4)
    for t in range(12):  # to be forgotten, also what it had computed for the next minibatch
        second.precondition(minibatch("iid", 5, 9, seed=90 + t).to(dtype))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for X in batches[num_before:]:
        for a, b in zip(first.precondition(X), second.precondition(X), strict=True):
            assert torch.equal(a, b)


def test_state_is_a_snapshot() -> None:
    fisher = OnlineFisher(rank=4)
    fisher.precondition(minibatch("iid", 20, 9, seed=0))
    state = fisher.state_dict()
    copied = copy.deepcopy(state)
    fisher.precondition(minibatch("iid", 20, 9, seed=1))
    assert torch.equal(state["R"], copied["R"])
    assert torch.equal(state["d"], copied["d"])
    assert not torch.equal(fisher.state_dict()["R"], copied["R"])
    assert (state["t"], state["rho"]) == (copied["t"], copied["rho"])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"t": 1, "R": torch.eye(2, 3)}, r"keys \['R', 'd', 'rho', 't'\], but got \['R', 't'\]"),
        ({}, r"keys \['R', 'd', 'rho', 't'\], but got \[\]"),
        (
            {"t": 1, "R": torch.eye(3), "d": torch.ones(3), "rho": 1.0},
            r"0 < rank < D, .* R has shape \(3, 3\)",
        ),
        (
            {"t": 1, "R": torch.eye(2, 3), "d": torch.ones(3), "rho": 1.0},
            r"R has shape \(2, 3\) and d \(3,\)",
        ),
    ],
)
def test_state_that_makes_no_sense_is_refused(state: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineFisher().load_state_dict(state)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("started", [False, True])
def test_what_is_not_finite_is_refused_and_changes_nothing(bad: float, started: bool) -> None:
    batches = [minibatch("correlated", 20, 9, seed=t).float() for t in range(3)]
    fisher, undisturbed = OnlineFisher(rank=4), OnlineFisher(rank=4)
    if started:
        fisher.precondition(batches[0])
        undisturbed.precondition(batches[0])
    X = batches[1].clone()
    X[3, 2] = bad
    with pytest.raises(NonFiniteError, match=r"NaN|infinite|overflow"):
        fisher.precondition(X)
    for X in batches[1:]:
        assert torch.equal(fisher.precondition(X)[0], undisturbed.precondition(X)[0])
    assert fisher.t == undisturbed.t


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": -1}, r"rank must be .*0.* or more.* got -1"),
        ({"alpha": -0.5}, r"alpha must be 0 or more .*, but got -0.5"),
        ({"alpha": float("nan")}, r"alpha must be 0 or more .*, but got nan"),
        ({"num_samples_history": 0.0}, "num_samples_history must be positive, but got 0.0"),
        ({"update_period": 0}, r"update_period must be .*1 or more.* got 0"),
    ],
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OnlineFisher(**options)


def test_what_is_not_a_matrix_is_refused_with_advice() -> None:
    for shape, written in (((5,), r"\(5,\)"), ((2, 3, 4), r"\(2, 3, 4\)")):
        with pytest.raises(ValueError, match=rf"got shape {written}: use X.reshape\(-1"):
            OnlineFisher().precondition(torch.ones(shape))


def test_another_dimension_is_refused_with_advice_and_changes_nothing() -> None:
    fisher = OnlineFisher(rank=2)
    fisher.precondition(minibatch("iid", 10, 6, seed=0))
    before = fisher.state_dict()
    with pytest.raises(ValueError, match="dimension 6, but got 5: use one OnlineFisher for each"):
        fisher.precondition(minibatch("iid", 10, 5, seed=1))
    assert fisher.state_dict() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_in_its_dtype(dtype: torch.dtype) -> None:
    fisher, single = OnlineFisher(rank=4), OnlineFisher(rank=4)
    for t in range(12):
        X = (100 * minibatch("iid", 20, 9, seed=t)).to(dtype)
        X_bar, squared_row_norms = fisher.precondition(X)
        expected, expected_norms = single.precondition(X.float())
        assert X_bar.dtype == dtype
        assert torch.equal(X_bar, expected.to(dtype))
        # Not in half precision, where the squares, above 65504, would be infinite.
        assert torch.equal(squared_row_norms, expected_norms)


def test_input_is_left_alone_and_needs_no_gradient() -> None:
    X = minibatch("correlated", 20, 9, seed=0).requires_grad_()
    before = X.detach().clone()
    fisher = OnlineFisher(rank=4)
    for _ in range(2):
        X_bar, squared_row_norms = fisher.precondition(X)
        assert not X_bar.requires_grad
        assert not squared_row_norms.requires_grad
    assert torch.equal(X, before)


def test_factor_follows_rows_of_another_type() -> None:
    fisher, other = OnlineFisher(3), OnlineFisher(3)
    batches = [minibatch("correlated", 20, 8, seed=seed) for seed in range(4)]
    for X in batches[:3]:
        fisher.precondition(X.float())
        other.precondition(X)
    X_bar, _ = fisher.precondition(batches[3])
    assert X_bar.dtype == torch.float64
    assert relative_error(X_bar, other.precondition(batches[3])[0]) < 1e-4


def test_state_may_mix_types() -> None:
    fisher = OnlineFisher(3)
    fisher.precondition(minibatch("correlated", 20, 8, seed=0).float())
    state = fisher.state_dict()
    other = OnlineFisher(3)
    other.load_state_dict(
        state | {"d": state["d"].double().numpy(), "rho": torch.tensor(state["rho"])}
    )
    X = minibatch("correlated", 20, 8, seed=1).float()
    torch.testing.assert_close(other.precondition(X)[0], fisher.precondition(X)[0])


def test_first_minibatch_without_rows_starts_nothing() -> None:
    fisher, expected = OnlineFisher(rank=3), OnlineFisher(rank=3)
    fisher.precondition(torch.zeros(0, 8))
    assert fisher.state_dict() == {"t": 0}
    X = minibatch("correlated", 20, 8, seed=0).float()
    assert torch.equal(fisher.precondition(X)[0], expected.precondition(X)[0])


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_what_is_no_floating_point_matrix_is_refused(dtype: torch.dtype) -> None:
    for precondition in (OnlineFisher(rank=2).precondition, precondition_simple):
        with pytest.raises(TypeError, match=f"takes a floating-point matrix, but got {dtype}"):
            precondition(torch.ones(4, 3, dtype=dtype))


def test_what_is_no_tensor_is_refused_with_advice() -> None:
    for precondition in (OnlineFisher(rank=2).precondition, precondition_simple):
        with pytest.raises(TypeError, match=r"takes a torch.Tensor, but got list: use torch.as_"):
            precondition([[1.0, 2.0]])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("R", math.nan),
        ("R", math.inf),
        ("d", math.nan),
        ("d", -1.0),
        ("rho", math.inf),
        ("rho", -1.0),
    ],
)
def test_saved_factor_that_is_none_is_refused(name: str, value: float) -> None:
    fisher = OnlineFisher(rank=3)
    fisher.precondition(minibatch("correlated", 20, 8, seed=0))
    state = copy.deepcopy(fisher.state_dict())
    if name == "rho":
        state["rho"] = value
    else:
        state[name][0] = value
    with pytest.raises(ValueError, match="R must be finite, and d and rho must not be negative"):
        OnlineFisher(rank=3).load_state_dict(state)
