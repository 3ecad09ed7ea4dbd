from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from natgrad.optim.one_thread import one_thread


@pytest.fixture(params=[1, 2], autouse=True)
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """As many threads as torch has."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_torch_has_one_thread_within_and_as_many_as_before_after(num_threads: int) -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == num_threads


def test_an_error_within_leaves_as_many_threads_as_before(num_threads: int) -> None:
    with pytest.raises(RuntimeError, match="positive-definite"), one_thread():
        torch.linalg.cholesky(-torch.eye(3))
    assert torch.get_num_threads() == num_threads


def test_threads_that_compute_already_keep_their_number(num_threads: int) -> None:
    with ThreadPoolExecutor(max_workers=1) as other:
        assert other.submit(torch.get_num_threads).result() == num_threads
        with one_thread():
            assert other.submit(torch.get_num_threads).result() == num_threads
        assert other.submit(torch.get_num_threads).result() == num_threads
