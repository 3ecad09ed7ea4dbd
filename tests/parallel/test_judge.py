"""Jobs that diverged are left out; those whose objectives are merely the worst are not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.parallel.judge import NoJobLeftError, best, judge

NUM_JOBS = (2, 3, 4, 16)


def test_job_that_is_not_finite_is_left_out_with_its_reason() -> None:
    verdict = judge([-2.0, math.nan, -math.inf, -2.1], [None, None, None, "weight is not finite"])
    assert verdict.accepted == [0]
    assert verdict.reasons == {
        1: "its objective is nan",
        2: "its objective is -inf",
        3: "weight is not finite",
    }


@pytest.mark.parametrize("num_jobs", NUM_JOBS)
@pytest.mark.parametrize("diverged", [-3.3, -9.2, -1e6])
def test_job_that_diverged_is_left_out(num_jobs: int, diverged: float) -> None:
    """Also late in its block: 9 tenths at -2 and one at -15 make -3.3."""
    objectives = [-2.0 - 0.02 * (i % 3) for i in range(num_jobs)]
    for job in range(num_jobs):
        some = [*objectives[:job], diverged, *objectives[job + 1 :]]
        verdict = judge(some)
        assert list(verdict.reasons) == [job]
        assert "far worse than the median" in verdict.reasons[job]
        assert verdict.accepted == [i for i in range(num_jobs) if i != job]


@pytest.mark.parametrize("num_jobs", [4, 16])
def test_up_to_half_of_the_jobs_can_be_left_out(num_jobs: int) -> None:
    half = num_jobs // 2
    verdict = judge([-9.0] * half + [-2.0] * half)
    assert verdict.accepted == list(range(half, num_jobs))


@given(
    mean=st.floats(-12.0, 0.0),
    spread=st.floats(0.0, 0.1),
    ranks=st.lists(st.floats(-4.0, 4.0), min_size=1, max_size=16),
)
def test_ordinary_spread_leaves_nobody_out(mean: float, spread: float, ranks: list[float]) -> None:
    """Blocks' means have standard errors far below 0.1 nats; here they are off by up to 4 of it."""
    assert judge([mean + spread * rank for rank in ranks]).reasons == {}


@given(st.lists(st.floats(-10.0, 10.0), min_size=1, max_size=16), st.floats(1.0, 1e6))
def test_scale_of_the_objective_leaves_nobody_out(ranks: list[float], scale: float) -> None:
    """An objective in other units spreads by more than nats, in proportion to its size."""
    assert judge([scale * (-100.0 + rank) for rank in ranks]).reasons == {}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=16))
def test_better_half_always_stays(objectives: list[float]) -> None:
    verdict = judge(objectives)
    order = sorted(range(len(objectives)), key=lambda job: -objectives[job])
    assert set(order[: (len(order) + 1) // 2]) <= set(verdict.accepted)
    assert sorted([*verdict.accepted, *verdict.reasons]) == list(range(len(objectives)))


def test_one_that_is_suspiciously_good_does_not_condemn_the_others() -> None:
    """A block of nothing but silence, say."""
    assert judge([-2.2, -2.3, -0.05, -2.1]).reasons == {}


def test_wide_spread_on_the_good_side_widens_the_margin() -> None:
    """Objectives of tiny blocks: the worst is as far from the median as the best."""
    assert judge([0.5, -0.5, -1.0, -1.5, -2.6]).reasons == {}
    assert list(judge([-0.9, -0.95, -1.0, -1.5, -2.6]).reasons) == [4]


def test_one_job_has_nobody_to_be_compared_with() -> None:
    assert judge([-1e30]).accepted == [0]


def test_none_left_is_an_error_that_tells_all_reasons() -> None:
    with pytest.raises(NoJobLeftError, match="job 0: its objective is nan; job 1: too hot"):
        judge([math.nan, -1.0], [None, "too hot"])
    with pytest.raises(NoJobLeftError):
        judge([])


def test_one_failure_per_job_is_needed() -> None:
    with pytest.raises(ValueError, match="1 failures for 2 jobs"):
        judge([-1.0, -1.0], [None])


# -- the best ------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([-3.0, -2.0, -1.0, math.nan, math.inf]), min_size=1))
def test_best_is_the_first_of_the_greatest_finite_ones(objectives: list[float]) -> None:
    finite = [objective for objective in objectives if math.isfinite(objective)]
    if finite:
        assert best(objectives) == objectives.index(max(finite))
    else:
        with pytest.raises(NoJobLeftError):
            best(objectives)
