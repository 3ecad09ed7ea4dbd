from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from natgrad.parallel.plan import make_plan


def rate(progress: float) -> float:
    return 0.01 * float(0.1**progress)


@given(
    num_blocks=st.integers(1, 40),
    num_epochs=st.integers(1, 6),
    jobs=st.tuples(st.integers(1, 9), st.integers(1, 9)).map(sorted),
)
def test_every_block_is_trained_on_once_per_epoch(
    num_blocks: int, num_epochs: int, jobs: list[int]
) -> None:
    plan = make_plan(num_blocks, num_epochs, jobs[0], jobs[1], rate)
    visits = Counter(block for iteration in plan for block in iteration.blocks)
    assert visits == dict.fromkeys(range(num_blocks), num_epochs)
    assert [iteration.number for iteration in plan] == list(range(1, len(plan) + 1))
    assert plan[-1].epoch == pytest.approx(num_epochs)


@given(num_blocks=st.integers(1, 40), jobs=st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_number_of_jobs_goes_from_the_first_to_the_last(
    num_blocks: int, jobs: tuple[int, int]
) -> None:
    first, last = sorted(jobs)
    plan = make_plan(num_blocks * last, 3, first, last, rate)
    numbers = [iteration.num_jobs for iteration in plan[:-1]]  # the last one takes what is left
    assert numbers[0] == first
    assert numbers == sorted(numbers)
    assert plan[-1].num_jobs <= last


def test_learning_rate_is_the_effective_one_times_the_number_of_jobs() -> None:
    plan = make_plan(
        num_blocks=8,
        num_epochs=2,
        initial_num_jobs=4,
        final_num_jobs=4,
        effective_learning_rate=rate,
    )
    assert [iteration.learning_rate for iteration in plan] == [
        pytest.approx(4 * rate(progress)) for progress in (0, 0.25, 0.5, 0.75)
    ]


@given(num_jobs=st.integers(1, 64), power=st.floats(0.0, 1.0))
def test_learning_rate_may_rise_by_a_power_of_the_number_of_jobs(
    num_jobs: int, power: float
) -> None:
    (first, *_) = make_plan(64, 1, num_jobs, num_jobs, rate, power)
    assert first.learning_rate == pytest.approx(rate(0) * num_jobs**power)
    assert first.effective_learning_rate == rate(0)
    (usual, *_) = make_plan(64, 1, num_jobs, num_jobs, rate)
    assert usual.learning_rate == rate(0) * num_jobs  # to the last bit


def test_part_of_an_epoch_is_at_least_one_block() -> None:
    assert [it.blocks for it in make_plan(3, 0.01, 2, 2, rate)] == [(0,)]
    assert [it.blocks for it in make_plan(4, 1.5, 4, 4, rate)] == [(0, 1, 2, 3), (0, 1)]
