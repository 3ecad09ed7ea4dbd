"""What iterations leave to one another: with the same bits, whenever a run is cut off."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from natgrad.parallel.handover import Handover, changed_tensors
from natgrad.parallel.job import Job, JobResult
from natgrad.parallel.outer import RunFailedError
from natgrad.parallel.outer_step import OuterOptimizer
from natgrad.parallel.plan import Iteration, make_plan
from natgrad.run.directory import RunDirectory
from natgrad.run.model_file import Model, ModelFileError, read_model, write_model
from tests.parallel.number_loop import Forgetful, Loop, add_block, result

NESTEROV = OuterOptimizer(0.5, 0.75)


def mean_state(
    states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> dict[str, Tensor]:
    pairs = zip(states, weights, strict=True)
    return {"s": sum((w * x["s"] for x, w in pairs), torch.zeros(1)) / sum(weights)}


def remember(job: Job) -> JobResult:
    """Train: as `add_block` does, and by what was learned before, too."""
    s = 0.0
    if job.state is not None and "layer.w" not in job.renewed:
        s = read_model(job.state).tensors["s"].item()
    before = read_model(job.model).tensors["layer.w"].item()
    found = result(job, before + (job.block + 1) * job.learning_rate + s)
    if job.state_result is not None:
        state = {"s": torch.tensor([0.5 * s + 0.125 * (job.block + 1)])}
        write_model(job.state_result, state, {}, durable=False)
    return found


def loop_of(path: Path, plan: list[Iteration] | None = None, **fields: Any) -> Loop:
    own = {name: fields.pop(name) for name in ("outer", "states") if name in fields}
    handover = Handover(RunDirectory(path), average_states=mean_state, **own)
    return Loop(path, plan, **{"handover": handover, "train": remember, **fields})


def models_of(loop: Loop) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in loop.run.path.glob("models/*")}


# -- the outer optimizer -----------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("num_jobs", [1, 2])
def test_loop_with_momentum_is_the_literal_loop(
    tmp_path: Path, num_jobs: int, nesterov: bool
) -> None:
    mu, eta = 0.5, 0.75
    plan = make_plan(4, 2, num_jobs, num_jobs, lambda progress: 0.5 - 0.25 * progress)
    loop = Loop(
        tmp_path,
        plan,
        handover=Handover(RunDirectory(tmp_path), OuterOptimizer(mu, eta, nesterov)),
    )
    loop.train()
    theta, v = 1.0, 0.0
    for iteration in plan:
        samples = [100.0 * (block + 1) for block in iteration.blocks]
        ends = [theta + (block + 1) * iteration.learning_rate for block in iteration.blocks]
        A = sum(n * x for n, x in zip(samples, ends, strict=True)) / sum(samples)
        assert loop.value(iteration.number) == pytest.approx(A, rel=1e-5)
        delta = A - theta
        v = mu * v + delta
        theta = theta + eta * (delta + mu * v) if nesterov else theta + eta * v


def test_rate_1_without_momentum_gives_the_bits_and_the_files_of_plain_averaging(
    tmp_path: Path,
) -> None:
    plain = Loop(tmp_path / "plain")
    plain.train()
    loop = loop_of(tmp_path / "loop", outer=OuterOptimizer(0.0, 1.0, False), train=add_block)
    loop.train()
    assert models_of(loop) == models_of(plain)
    fields = [{**event, "time": 0} for event in loop.events("iteration")]
    assert fields[0].keys() == plain.events("iteration")[0].keys()


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_fresh_iteration_takes_no_step_and_keeps_the_momentum(
    tmp_path: Path, num_jobs: int
) -> None:
    plan = make_plan(4, 2, num_jobs, num_jobs, lambda progress: 0.5)
    plan[2] = replace(plan[2], is_fresh=True)
    seen: dict[int, tuple[bytes, float]] = {}

    def train(job: Job) -> JobResult:
        if job.index == 0 and job.iteration > 1:
            number = job.iteration - 1
            start = read_model(job.model).tensors["layer.w"].item()
            seen[number] = loop.run.momentum(number).read_bytes(), start
        return add_block(job)

    loop = loop_of(tmp_path, plan, outer=NESTEROV, train=train)
    loop.train()
    assert seen[3][0] == seen[2][0]
    assert seen[3][1] == loop.value(3)  # the next begins with the model itself
    assert seen[2][0] != seen[1][0]
    assert seen[2][1] != loop.value(2)


def grow(model: Model, change: Mapping[str, Any], seed: int) -> Model:
    """One tensor stays, one is begun again in the same shape, one is new, one is gone."""
    tensors = {
        "old.w": model.tensors["old.w"],
        "top.w": torch.zeros(2),
        "new.w": torch.tensor([5.0]),
    }
    return Model(tensors, {**model.description, **change})


def add_one(job: Job) -> JobResult:
    model = read_model(job.model)
    found = result(job, 0.0)
    tensors = {name: x if name == "fixed" else x + 1.0 for name, x in model.tensors.items()}
    write_model(job.result, tensors, model.description, durable=False)
    return found


def test_what_the_structure_changes_begins_without_momentum(tmp_path: Path) -> None:
    plan = make_plan(2, 3, 2, 2, lambda progress: 0.5)
    plan[1] = replace(plan[1], remodel={"change": "grow"})
    momenta: dict[int, dict[str, Tensor]] = {}
    renewed: dict[int, tuple[str, ...]] = {}

    def train(job: Job) -> JobResult:
        if job.iteration > 1:
            momenta[job.iteration - 1] = read_model(loop.run.momentum(job.iteration - 1)).tensors
        renewed[job.iteration] = job.renewed
        return add_one(job)

    loop = loop_of(tmp_path, plan, outer=NESTEROV, train=train, remodel=grow, evaluate=None)
    first = {"old.w": torch.ones(2), "top.w": torch.ones(2), "gone.w": torch.ones(1)}
    with loop.run.drive():
        write_model(loop.run.model(0), first, {})
    loop.train()
    assert renewed == {1: (), 2: ("new.w", "top.w"), 3: ()}
    assert {name: v.tolist() for name, v in momenta[1].items()} == {
        "old.w": [1.0, 1.0],
        "top.w": [1.0, 1.0],
        "gone.w": [1.0],
    }
    assert {name: v.tolist() for name, v in momenta[2].items()} == {
        "old.w": [1.5, 1.5],  # 0.5 x 1 + 1
        "top.w": [1.0, 1.0],
        "new.w": [1.0],
    }


def test_only_parameters_are_moved(tmp_path: Path) -> None:
    loop = loop_of(
        tmp_path,
        outer=NESTEROV,
        train=add_one,
        evaluate=None,
        parameters=lambda model: {"w"},
    )
    with loop.run.drive():
        write_model(loop.run.model(0), {"w": torch.zeros(1), "fixed": torch.tensor([-0.0])}, {})
    loop.train()
    tensors = read_model(loop.run.model(4)).tensors
    assert bool(tensors["fixed"].signbit())  # not even its sign
    assert tensors["w"].item() > 4.0  # faster than a step of one at a time


def test_step_that_overflows_ends_the_run_with_the_options_to_lower(tmp_path: Path) -> None:
    def train(job: Job) -> JobResult:
        return result(job, 3e38 if job.iteration > 1 else 1.0)

    loop = loop_of(tmp_path, outer=OuterOptimizer(0.9, 2.0), train=train)
    with pytest.raises(RunFailedError, match=r"iteration 2 overflows in layer\.w.*momentum, 0\.9"):
        loop.train()
    assert loop.run.last_iteration() == 1


# -- the optimizers' states --------------------------------------------------------------------


def states_seen(loop: Loop, train: Callable[[Job], JobResult] = remember) -> dict[Any, str | None]:
    """Train, and return which state each job began with: its iteration's and its number."""
    seen: dict[Any, str | None] = {}

    def note(job: Job) -> JobResult:
        path = Path(job.state or "states/0000/none")
        name = f"{int(path.parent.name)}/{path.stem.partition('-')[0]}"
        seen[job.iteration, job.index] = None if job.state is None else name
        return train(job)

    loop.train(train=note)
    return seen


def test_states_that_are_not_wanted_are_not_written(tmp_path: Path) -> None:
    loop = loop_of(tmp_path)
    assert set(states_seen(loop).values()) == {None}
    assert not (tmp_path / "states").exists()


def test_each_job_goes_on_with_its_own_state(tmp_path: Path) -> None:
    seen = states_seen(loop_of(tmp_path, states="kept"))
    assert seen == {
        (iteration, job): f"{iteration - 1}/{job}" if iteration > 1 else None
        for iteration in range(1, 5)
        for job in range(2)
    }
    assert not list(tmp_path.glob("states/*"))  # they are of no use any more


def test_more_jobs_than_before_share_states(tmp_path: Path) -> None:
    plan = [
        Iteration(1, (0, 1), 1.0, 0.5, 0.5),
        Iteration(2, (0, 1, 2, 3, 4), 2.0, 0.5, 0.5),
        Iteration(3, (0,), 3.0, 0.5, 0.5),
    ]
    seen = states_seen(loop_of(tmp_path, plan, states="kept"))
    assert [seen[2, job] for job in range(5)] == ["1/0", "1/1", "1/0", "1/1", "1/0"]
    assert seen[3, 0] == "2/0"


def test_all_jobs_go_on_with_the_mean_by_samples(tmp_path: Path) -> None:
    means = []

    def average(states: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Any:
        means.append(([x["s"].item() for x in states], list(weights)))
        return mean_state(states, weights)

    loop = loop_of(tmp_path, states="averaged")
    loop.fields["handover"] = Handover(loop.run, states="averaged", average_states=average)
    seen = states_seen(loop)
    assert {seen[iteration, job] for iteration in (2, 3, 4) for job in (0, 1)} == {
        "1/0",
        "2/0",
        "3/0",
    }
    assert means[0] == ([0.125, 0.25], [100.0, 100.0])
    assert means[1][0] == [0.5 * 0.1875 + 0.125 * 3, 0.5 * 0.1875 + 0.125 * 4]


def test_job_that_is_left_out_leaves_no_state(tmp_path: Path) -> None:
    def train(job: Job) -> JobResult:
        done = remember(job)
        return replace(done, objective=-50.0) if job.index == 0 and job.iteration == 2 else done

    loop = loop_of(tmp_path, states="kept")
    kept: list[float] = []

    def note(job: Job) -> JobResult:
        if job.iteration == 3:
            (left,) = loop.run.states_left(2)
            kept.append(read_model(left).tensors["s"].item())
        return train(job)

    seen = states_seen(loop, note)
    assert seen[3, 0] == seen[3, 1] == "2/0"
    assert kept[0] == 0.5 * 0.25 + 0.125 * 4  # of job 1, on block 3


def test_fresh_iteration_leaves_the_state_of_the_job_that_is_taken(tmp_path: Path) -> None:
    plan = make_plan(4, 1, 2, 2, lambda progress: 0.5)
    plan[0] = replace(plan[0], is_fresh=True)

    def train(job: Job) -> JobResult:
        if job.iteration == 2:
            assert job.state is not None
            assert read_model(job.state).tensors["s"].item() == 0.125 * 2
        return replace(remember(job), objective=-1.0 if job.index == 1 else -1.5)

    seen = states_seen(loop_of(tmp_path, plan, states="kept"), train)
    assert seen[2, 0] == seen[2, 1] == "1/0"


def test_run_that_has_lost_all_states_refuses_to_go_on(tmp_path: Path) -> None:
    handover = Handover(RunDirectory(tmp_path), states="kept")
    with pytest.raises(ModelFileError, match=r"there is no .*0-of-1\.safetensors, without which"):
        handover.state_files(2, num_jobs=3)


def test_averaging_needs_its_function(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no function average_states"):
        Handover(RunDirectory(tmp_path), states="averaged")


# -- cut off, and resumed ----------------------------------------------------------------------


class Cut(BaseException):
    """The driver's end."""


class Renames:
    """Counts renames, by which all that lasts is put in place, and ends the driver at one."""

    def __init__(self, cut_at: int | None = None, is_done: bool = False) -> None:
        self.cut_at, self.is_done, self.num = cut_at, is_done, 0
        self.rename = os.replace

    def __call__(self, before: Any, after: Any) -> None:
        self.num += 1
        if self.num == self.cut_at:
            if self.is_done:
                self.rename(before, after)
            raise Cut
        self.rename(before, after)


def train_with(patch: pytest.MonkeyPatch, renames: Renames, loop: Loop) -> None:
    patch.setattr(os, "replace", renames)
    try:
        loop.train(engine=Forgetful(lambda number: False), evaluate=None)
    finally:
        patch.setattr(os, "replace", renames.rename)


@pytest.mark.parametrize("states", ["kept", "averaged"])
def test_run_with_momentum_and_states_goes_on_to_the_same_bits_from_any_instant(
    tmp_path: Path, states: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off right before and right after each rename of a whole run, and resumed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    plan = make_plan(4, 1.5, 2, 2, lambda progress: 0.5)
    plan[0] = replace(plan[0], is_fresh=True)
    plan[1] = replace(plan[1], remodel={"change": "double"})
    plan[2] = replace(plan[2], blocks=(0, 1, 2))

    def run(path: Path, renames: Renames) -> Loop:
        loop = loop_of(path, plan, outer=NESTEROV, states=states)
        train_with(monkeypatch, renames, loop)
        return loop

    all_of_them = Renames()
    expected = models_of(run(tmp_path / "whole", all_of_them))
    assert all_of_them.num > 20
    for number in range(1, all_of_them.num + 1):
        for is_done in (False, True):
            path = tmp_path / f"{number}{is_done}"
            with pytest.raises(Cut):
                run(path, Renames(number, is_done))
            assert models_of(run(path, Renames())) == expected, (number, is_done)


@pytest.mark.parametrize("name", ["next", "momentum", "first state", "last state"])
def test_run_that_has_lost_what_was_left_to_it_refuses_to_go_on(tmp_path: Path, name: str) -> None:
    def train(job: Job) -> JobResult:
        done = remember(job)
        return replace(done, error="enough") if job.iteration == 3 else done

    loop = loop_of(tmp_path, outer=NESTEROV, states="kept")
    with pytest.raises(RunFailedError, match="enough"):
        loop.train(train=train)
    files = {
        "next": loop.run.next_start(2),
        "momentum": loop.run.momentum(2),
        "first state": loop.run.states(2, 2)[0],
        "last state": loop.run.states(2, 2)[1],
    }
    files[name].unlink()
    with pytest.raises(ModelFileError, match=f"there is no {files[name]}, without which"):
        loop.train()


# -- cosines -----------------------------------------------------------------------------------


def test_agreement_of_several_jobs_is_in_the_events_and_that_of_one_is_not(tmp_path: Path) -> None:
    plan = [Iteration(1, (0, 1), 1.0, 0.5, 0.5), Iteration(2, (2,), 1.5, 0.5, 0.5)]
    loop = Loop(tmp_path, plan)
    loop.train()
    both, one = loop.events("iteration")
    assert both["cosine"] == pytest.approx(1.0)
    assert both["layer_cosines"] == {"layer": pytest.approx(1.0)}
    assert not {"cosine", "layer_cosines"} & one.keys()


def test_tensors_that_changed_are_those_that_are_new_or_other() -> None:
    before = {"same": torch.ones(2), "other": torch.ones(2), "long": torch.ones(2)}
    after = {"same": torch.ones(2), "other": torch.zeros(2), "long": torch.ones(3)}
    assert changed_tensors(before, after) == {"other", "long"}
    assert changed_tensors({}, after) == set(after)
