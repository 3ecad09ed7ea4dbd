"""Averaging in one's own script: real ranks under torchrun, judged by `average` on their models."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from natgrad.parallel.average import average
from natgrad.parallel.judge import NoJobLeftError
from natgrad.parallel.spmd import ParameterAveraging, Round
from tests.parallel.spmd_script import (
    Numbers,
    classifier,
    num_samples_of,
    num_steps_of,
    train_with_ngsgd,
)

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 240  # of a launch: a deadlock fails, and a busy machine does not


@dataclass(frozen=True)
class Launch:
    """What the ranks of one torchrun wrote."""

    num_ranks: int
    directory: Path

    def tensors(self, scenario: str) -> list[dict[str, Tensor]]:
        files = [self.directory / f"{scenario}.{r}.safetensors" for r in range(self.num_ranks)]
        return [load_file(file) for file in files]

    def notes(self, scenario: str) -> list[dict[str, Any]]:
        files = [self.directory / f"{scenario}.{rank}.json" for rank in range(self.num_ranks)]
        return [json.loads(file.read_text()) for file in files]

    def common_tensors(self, scenario: str) -> dict[str, Tensor]:
        """Return the tensors of all ranks, once it is sure that they have the same bits."""
        first, *others = self.tensors(scenario)
        for other in others:
            assert_same_bits(other, first)
        return first


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@pytest.fixture(scope="module", params=[2, 3])
def launch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    num_ranks, directory = int(request.param), tmp_path_factory.mktemp("spmd")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(num_ranks)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    command += ["--local-addr", "127.0.0.1", "-m", "tests.parallel.spmd_script", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Launch(num_ranks, directory)


@pytest.fixture
def _one_thread() -> Iterator[None]:
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


# -- real ranks ------------------------------------------------------------------------------


@pytest.mark.usefixtures("_one_thread")
def test_ranks_get_the_average_of_models_that_were_trained_separately(launch: Launch) -> None:
    models, totals = [], []
    for rank in range(launch.num_ranks):
        model = classifier(seed=0)
        totals.append(train_with_ngsgd(rank, model))
        models.append(model.state_dict())
    assert [notes["total"] for notes in launch.notes("ngsgd")] == totals
    assert len(set(totals)) > 1
    assert_same_bits(launch.common_tensors("ngsgd"), average(models, totals))


def literal_rounds(num_ranks: int) -> tuple[dict[str, Tensor], list[list[float]]]:
    """The protocol in one process: each rank trains up to its next round, then all average."""
    models = [Numbers() for _ in range(num_ranks)]
    steps, rounds = [0] * num_ranks, []
    is_over = False
    while not is_over:
        samples = [0.0] * num_ranks
        is_over = True
        for rank, model in enumerate(models):
            while steps[rank] < num_steps_of(rank) and samples[rank] < 30:
                model.train_on(rank, steps[rank])
                samples[rank] += num_samples_of(rank, steps[rank])
                steps[rank] += 1
            is_over = is_over and samples[rank] < 30  # a rank that was due had not finished yet
        trained = [rank for rank in range(num_ranks) if samples[rank] > 0]
        if trained:
            states = [models[rank].state_dict() for rank in trained]
            mean = average(states, [samples[rank] for rank in trained])
            for model in models:
                model.load_state_dict(mean)
        rounds.append(samples)
    return dict(models[0].state_dict()), rounds


def test_rank_with_less_data_keeps_taking_part_until_all_have_finished(launch: Launch) -> None:
    expected, rounds = literal_rounds(launch.num_ranks)
    assert_same_bits(launch.common_tensors("uneven"), expected)
    notes = launch.notes("uneven")
    assert {note["num_averages"] for note in notes} == {len(rounds)}
    # The last rank has the most data: it is in the middle of training in all rounds but the last.
    assert notes[-1]["rounds_met"] == rounds[:-1]
    assert any(samples[0] == 0.0 for samples in rounds)


def test_skipped_steps_keep_the_ranks_together(launch: Launch) -> None:
    launch.common_tensors("skipped")
    for note in launch.notes("skipped"):
        assert note["averaged_at"] == [2, 5]
        assert note["num_steps"] == 8
        assert note["last"] == [20.0] * launch.num_ranks
    assert len({note["total"] for note in launch.notes("skipped")}) == 1


def test_skipped_steps_do_not_count_in_the_mean(launch: Launch) -> None:
    """Of the first three steps rank 1 takes one: it has a third of the weight."""
    models = [Numbers() for _ in range(launch.num_ranks)]
    for begin, end in ((0, 3), (3, 6), (6, 8)):
        weights = []
        for rank, model in enumerate(models):
            steps = [s for s in range(begin, end) if not (rank == 1 and s in (1, 2, 4))]
            for step in steps:
                model.train_on(rank, step)
            weights.append(10.0 * len(steps))
        mean = average([model.state_dict() for model in models], weights)
        for model in models:
            model.load_state_dict(mean)
    assert_same_bits(launch.common_tensors("skipped"), dict(models[0].state_dict()))


def test_buffers_are_averaged_and_counters_are_the_greatest(launch: Launch) -> None:
    tensors = launch.common_tensors("batch_norm")
    before = [note["before"] for note in launch.notes("batch_norm")]
    weights = [8.0 * (2 + rank) for rank in range(launch.num_ranks)]
    for name in ("running_mean", "running_var", "weight", "bias"):
        models = [{name: torch.tensor(state[name])} for state in before]
        assert torch.equal(tensors[name], average(models, weights)[name]), name
    assert len({str(state["running_mean"]) for state in before}) == launch.num_ranks
    assert tensors["num_batches_tracked"].item() == 2 + launch.num_ranks - 1


def test_rank_that_is_not_finite_is_left_out_with_a_warning_on_all_ranks(launch: Launch) -> None:
    last = launch.num_ranks - 1
    models = []
    for rank in range(last):
        model = Numbers()
        model.train_on(rank, 0)
        models.append(model.state_dict())
    mean = average(models, [10.0 + rank for rank in range(last)])
    for note in launch.notes("not_finite"):
        (message,) = note["warnings"]
        assert f"rank {last} of {launch.num_ranks} are not finite" in message
        assert note["left_out"] == [last]
        assert note["left_out_at_the_end"] == []
        assert note["after"] == mean["values"].tolist()
    launch.common_tensors("not_finite")


def test_no_finite_rank_is_a_clear_error_on_all_ranks(launch: Launch) -> None:
    for note in launch.notes("none_finite"):
        assert note["error"].startswith("NoJobLeftError: the parameters of no rank are finite")
        assert "values" in note["error"]


def test_nothing_changes_if_no_rank_has_trained(launch: Launch) -> None:
    assert_same_bits(launch.common_tensors("nobody_trained"), dict(Numbers().double().state_dict()))


def test_ranks_with_different_models_are_refused_on_all_ranks(launch: Launch) -> None:
    others = ", ".join(str(rank) for rank in range(1, launch.num_ranks))
    for note in launch.notes("different_models"):
        assert f"the model of rank {others} has other names, shapes or types" in note["error"]


def test_types_layouts_and_buckets_do_not_matter(launch: Launch) -> None:
    tensors = launch.common_tensors("many_types")
    before = [note["before"] for note in launch.notes("many_types")]
    weights = [3.0 + rank for rank in range(launch.num_ranks)]
    for name in before[0]:
        models = [{name: torch.tensor(b[name], dtype=tensors[name].dtype)} for b in before]
        assert torch.equal(tensors[name], average(models, weights)[name]), name
    assert tensors["mask"].tolist() == [True, False]
    assert tensors["small"].tolist() == [launch.num_ranks - 1, 1]


# -- one process, no process group -----------------------------------------------------------


def test_without_a_process_group_it_is_one_rank() -> None:
    model, alone = Numbers(), Numbers()
    with ParameterAveraging(model, samples_per_average=25) as averaging:
        averaged = []
        for step in range(5):
            model.train_on(0, step)
            alone.train_on(0, step)
            averaged.append(averaging.step(10))
    assert averaged == [False, False, True, False, False]
    assert averaging.last_round == Round([20.0], [])
    assert (averaging.num_ranks, averaging.num_averages, averaging.num_steps) == (1, 2, 5)
    assert_same_bits(dict(model.state_dict()), dict(alone.state_dict()))


def test_average_now_begins_to_count_anew() -> None:
    averaging = ParameterAveraging(Numbers(), steps_per_average=2)
    assert not averaging.step(5)
    assert averaging.average_now() == Round([5.0], [])
    assert not averaging.step(5)
    assert averaging.step(0)
    assert averaging.last_round == Round([5.0], [])


def test_training_may_go_on_after_finish() -> None:
    averaging = ParameterAveraging(Numbers(), steps_per_average=2)
    averaging.finish()
    averaging.step(5)
    assert averaging.finish() == Round([5.0], [])


def test_one_rank_that_is_not_finite_is_an_error() -> None:
    model = Numbers()
    averaging = ParameterAveraging(model, steps_per_average=1)
    with torch.no_grad():
        model.values[0] = math.inf
    with pytest.raises(NoJobLeftError, match=r"no rank are finite.*values"):
        averaging.step(1)


def test_context_that_fails_does_not_wait_for_the_others() -> None:
    averaging = ParameterAveraging(Numbers(), steps_per_average=1)
    with pytest.raises(KeyError), averaging:
        raise KeyError
    assert averaging.num_averages == 0


@pytest.mark.parametrize("num_samples", [-1.0, math.nan, math.inf])
def test_impossible_numbers_of_samples_are_refused(num_samples: float) -> None:
    averaging = ParameterAveraging(Numbers(), steps_per_average=1)
    with pytest.raises(ValueError, match=f"a step on {num_samples} samples"):
        averaging.step(num_samples)


@pytest.mark.parametrize(("samples", "steps"), [(None, None), (0, None), (None, -1), (1, 1)])
def test_one_positive_period_is_needed(samples: int | None, steps: int | None) -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        ParameterAveraging(Numbers(), samples_per_average=samples, steps_per_average=steps)


def test_complex_parameter_is_refused_by_name() -> None:
    model = nn.Module()
    model.register_parameter("phase", nn.Parameter(torch.zeros(2, dtype=torch.complex64)))
    with pytest.raises(ValueError, match=r"'phase' is of type torch\.complex64"):
        ParameterAveraging(model, steps_per_average=1)
