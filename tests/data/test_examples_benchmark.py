from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks import examples as benchmark
from natgrad.nn import NetworkConfig


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    yield
    torch.set_num_threads(num_threads)


def test_benchmark_of_examples_reports_all_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = NetworkConfig(num_inputs=700, num_outputs=50, hidden=((20, 5),))
    size = benchmark.Size(12_000, 12_000, num_steps=4, network=network)
    file = tmp_path / "examples.json"
    benchmark.main(["--workers", "1", "--json", str(file)], size)
    figures = json.loads(file.read_text())
    assert [(row["context"], row["side_dim"]) for row in figures["built"]] == [(4, 0), (8, 20)]
    assert all(1.0 < row["bytes_per_value"] < 1.2 for row in figures["built"])
    assert all(row["frames_per_second"] > 0 for row in figures["built"])
    assert figures["trained"]["block_samples"] == 12_000
    assert figures["trained"]["share_of_training"] > 0
    assert "reading and gathering / training" in capsys.readouterr().out
