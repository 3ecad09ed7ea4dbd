"""NGSGD in torch's own data parallelism, with two real processes."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch.distributed

from tests.optim.distributed_steps import together

NUM_PROCESSES = 2


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")
def test_data_parallel_processes_agree_with_sgd_and_with_one_another(tmp_path: Path) -> None:
    with ProcessPoolExecutor(NUM_PROCESSES, mp_context=get_context("spawn")) as processes:
        meeting_point = str(tmp_path / "meeting")
        futures = [
            processes.submit(together, rank, NUM_PROCESSES, meeting_point)
            for rank in range(NUM_PROCESSES)
        ]
        for future in futures:
            future.result()
