from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from natgrad.optim import product_sum
from natgrad.optim.product_sum import Term, add_products_
from tests.optim.samples import relative_error

TINY = {"MAX_WHOLE_ELEMENTS": 0, "BLOCK_ELEMENTS": 40, "MIN_BLOCK_ROWS": 3}


def drawn(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def literal_sum(terms: Sequence[Term]) -> Tensor:
    return sum(
        (
            (left if taken is None else left - taken[0] @ taken[1].t()).t() @ right
            for left, right, taken in terms
        ),
        start=torch.zeros(()),
    )


def set_blocks(monkeypatch: pytest.MonkeyPatch, **sizes: int) -> list[int]:
    """Make blocks so small; return how many rows those have that are formed from now on."""
    seen: list[int] = []
    original = product_sum._add_block_

    def seen_block(weight: Tensor, *others: Any) -> None:
        seen.append(weight.shape[0])
        original(weight, *others)

    monkeypatch.setattr(product_sum, "_add_block_", seen_block)
    for name, size in sizes.items():
        monkeypatch.setattr(product_sum, name, size)
    return seen


@st.composite
def sums(draw: st.DrawFn) -> tuple[list[Term], int, int]:
    """Draw terms, the rows of their product, and its columns."""
    num_rows, num_columns = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    terms = []
    for seed in range(draw(st.integers(1, 3))):
        num_summed, rank = draw(st.integers(0, 12)), draw(st.integers(0, 4))
        H, E = drawn(num_summed, rank, seed=4 * seed), drawn(num_rows, rank, seed=4 * seed + 1)
        left = drawn(num_summed, num_rows, seed=4 * seed + 2)
        right = drawn(num_summed, num_columns, seed=4 * seed + 3)
        terms.append(Term(left, right, taken=(H, E) if draw(st.booleans()) else None))
    return terms, num_rows, num_columns


@given(drawn_sum=sums(), num_biases=st.integers(0, 2), keep=st.booleans(), whole=st.booleans())
@settings(max_examples=200, deadline=None)
def test_sums_are_those_of_the_literal_products(
    drawn_sum: tuple[list[Term], int, int], num_biases: int, keep: bool, whole: bool
) -> None:
    terms, num_rows, num_columns = drawn_sum
    num_biases = min(num_biases, num_columns)
    # Garbage in the memory must not matter where nothing of it is kept.
    fill = 1.5 if keep else float("nan")
    weight = torch.full((num_rows, num_columns - num_biases), fill, dtype=torch.float64)
    biases = [torch.full((num_rows,), fill, dtype=torch.float64) for _ in range(num_biases)]
    with pytest.MonkeyPatch.context() as monkeypatch:
        seen = set_blocks(monkeypatch, **({} if whole else TINY))
        add_products_(weight, biases, terms, scale=-0.3, keep=keep)
    assert (seen == []) == (whole or weight.numel() == 0)
    result = torch.cat([weight, *(bias.unsqueeze(1) for bias in biases)], dim=1)
    expected = -0.3 * literal_sum(terms) + (1.5 if keep else 0.0)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_summed", [30, 700])
def test_large_weights_are_changed_by_blocks_in_float32(
    num_summed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks are as large as they are in use, and so are the products: by oneDNN, if any."""
    seen = set_blocks(monkeypatch)
    terms = [
        Term(drawn(num_summed, 3000, seed=1), drawn(num_summed, 401, seed=2)),
        Term(drawn(80, 3000, seed=3), drawn(80, 401, seed=4)),
    ]
    weight, bias = drawn(3000, 400, seed=5), drawn(3000, seed=6)
    expected = torch.cat([weight, bias.unsqueeze(1)], dim=1) + 0.1 * literal_sum(terms)
    weight, bias = weight.float(), bias.float()
    add_products_(weight, [bias], [Term(a.float(), b.float()) for a, b, _ in terms], scale=0.1)
    assert len(seen) > 1
    assert relative_error(weight, expected[:, :400]) < 1e-6
    assert relative_error(bias, expected[:, 400]) < 1e-6


def test_blocks_are_of_about_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set_blocks(monkeypatch, **{**TINY, "MIN_BLOCK_ROWS": 5})
    add_products_(torch.zeros(17, 30), [], [Term(torch.ones(9, 17), torch.ones(9, 30))])
    assert seen == [5, 5, 5, 2]


@pytest.mark.parametrize(("num_summed", "num_columns"), [(10, 1), (2, 10)])
def test_neither_a_block_nor_its_product_outgrows_the_cache(
    num_summed: int, num_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_all_threads = 100
    elements = of_all_threads // torch.get_num_threads()
    seen = set_blocks(monkeypatch, MAX_WHOLE_ELEMENTS=0, BLOCK_ELEMENTS=elements, MIN_BLOCK_ROWS=1)
    term = Term(torch.ones(num_summed, 25), torch.ones(num_summed, num_columns))
    add_products_(torch.zeros(25, num_columns), [], [term])
    assert seen == [9, 9, 7]


def test_memory_that_inference_mode_has_made_is_written_to_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a backward pass within it, at a size that was not met before."""
    monkeypatch.setattr(product_sum, "_memory", product_sum._Scratch())
    left, right, weight = torch.randn(317, 401), torch.randn(317, 250), torch.zeros(401, 250)
    taken = torch.randn(317, 3), torch.randn(401, 3)
    expected = (left - taken[0] @ taken[1].t()).t() @ right
    with torch.inference_mode():
        add_products_(weight, [], [Term(left, right, taken)])
    add_products_(weight, [], [Term(left, right, taken)])
    torch.testing.assert_close(weight, 2.0 * expected, rtol=1e-4, atol=1e-3)


def test_sums_in_two_precisions_take_turns_in_memory_of_their_own() -> None:
    left, right = drawn(6, 5, seed=1), drawn(6, 4, seed=2)
    taken = drawn(6, 2, seed=3), drawn(5, 2, seed=4)
    expected = literal_sum([Term(left, right, taken)])
    for dtype in (torch.float64, torch.float32, torch.float64):
        H, E = (part.to(dtype) for part in taken)
        product = torch.empty(5, 4, dtype=dtype)
        add_products_(product, [], [Term(left.to(dtype), right.to(dtype), (H, E))], keep=False)
        assert relative_error(product, expected) < 10.0 * torch.finfo(dtype).eps
