"""Several threads on one model: shared parameters, and shared Fisher factors."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from natgrad import NGSGD, NonFiniteError, OnlineFisher
from natgrad.optim import online, share_parameters
from natgrad.optim.factor import start
from tests.optim.models import (
    OPTIONS,
    bits,
    fisher_bits,
    fused_or_not,
    methods,
    network,
    network_loss,
    randn,
    seeded,
    train,
)


def in_threads(num_threads: int, work: Callable[[int], object]) -> None:
    """Run work(0), work(1), ... at the same time, and raise what any of them raises."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(num_threads)

    def run(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- share_parameters ------------------------------------------------------------------------------


def test_copy_has_the_memory_of_the_original_and_version_counters_of_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    copied = share_parameters(model)
    pairs = list(zip(model.state_dict().values(), copied.state_dict().values(), strict=True))
    assert len(pairs) == 7
    assert all(mine.data_ptr() == other.data_ptr() for mine, other in pairs)
    loss = copied(torch.randn(8, 3)).square().sum()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)  # autograd would refuse to go back through the model itself now
    loss.backward()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(parameter.grad is not None for parameter in copied.parameters())
    torch.testing.assert_close(copied(torch.ones(2, 3)), model(torch.ones(2, 3)))


def test_copy_keeps_what_is_shared_and_what_is_frozen() -> None:
    model: Any = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    copied = share_parameters(model)
    assert copied[1].weight is copied[0].weight
    assert copied[1].weight is not model[0].weight
    assert not copied[2].weight.requires_grad
    assert type(copied[0].weight) is nn.Parameter


@fused_or_not
def test_copy_of_a_tapped_model_is_not_tapped(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(2))
    copied, expected = share_parameters(model), network()
    expected.load_state_dict(model.state_dict())
    before = bits([optimizer.state_dict(), model.state_dict()])
    network_loss(copied, 5).backward()
    network_loss(expected, 5).backward()
    assert bits([optimizer.state_dict(), model.state_dict()]) == before
    for mine, other in zip(copied.parameters(), expected.parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(mine.grad, other.grad)


# -- NGSGD.replica ---------------------------------------------------------------------------------


def everything(model: nn.Module, optimizer: NGSGD) -> Any:
    return bits([model.state_dict(), optimizer.state_dict(), optimizer.layer_statistics()])


@methods
@fused_or_not
def test_taking_turns_with_replicas_gives_the_bits_of_training_alone(
    method: str, fused: bool
) -> None:
    alone, model = network(), network()
    options = OPTIONS | {"method": method, "fused": fused}
    optimizers = [
        NGSGD(m, **options, groups=[{"params": m[3], "lr": 0.01, "alpha": 3.0}])
        for m in (alone, model)
    ]
    train(alone, optimizers[0], network_loss, range(24))
    models, turns = [model], [optimizers[1]]
    for _ in range(2):
        models.append(share_parameters(models[-1]))  # also a copy of a copy
        turns.append(turns[-1].replica(models[-1]))
    for t in range(24):
        train(models[t % 3], turns[t % 3], network_loss, [t])
    for mine, optimizer in zip(models, turns, strict=True):
        assert everything(mine, optimizer) == everything(alone, optimizers[0])


@fused_or_not
def test_replica_takes_convolutions_and_shared_weights_as_the_original_does(fused: bool) -> None:
    def make() -> Any:
        model = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 9), nn.Linear(9, 9))
        model[3].weight = model[2].weight
        return model.double()

    def loss(model: nn.Module, t: int) -> Tensor:
        output: Tensor = model(randn(6, 2, 4, seed=t))
        return output.square().sum()

    alone, model = seeded(make), seeded(make)
    copied = share_parameters(model)
    first, expected = (NGSGD(m, **OPTIONS | {"lr": 1e-3}, fused=fused) for m in (model, alone))
    second = first.replica(copied)
    for t in range(6):
        train(*((model, first) if t % 2 else (copied, second)), loss, [t])
    train(alone, expected, loss, range(6))
    assert everything(model, first) == everything(alone, expected)


def test_state_that_the_original_loads_is_met_by_its_replica() -> None:
    model, other = network(), network()
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    replica = optimizer.replica(share_parameters(model))
    source = NGSGD(other, **OPTIONS, fused=True)
    train(other, source, network_loss, range(5))
    optimizer.load_state_dict(source.state_dict())
    assert fisher_bits(replica) == fisher_bits(source)


def test_replica_of_an_optimizer_that_has_loaded_a_state_and_has_a_scheduler() -> None:
    """Both put options of their own into its groups."""
    model, other = network(), network()
    source = NGSGD(other, **OPTIONS, fused=True)
    train(other, source, network_loss, range(5))
    optimizer = NGSGD(model, **OPTIONS, fused=True)
    optimizer.load_state_dict(source.state_dict())
    torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=9, cycle_momentum=False)
    copied = share_parameters(model)
    replica = optimizer.replica(copied)
    assert replica.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] != OPTIONS["lr"]
    train(copied, replica, network_loss, [5])
    assert fisher_bits(replica) == fisher_bits(optimizer) != fisher_bits(source)


@fused_or_not
def test_step_that_a_replica_refuses_leaves_the_factors_as_they_were(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(3))
    copied = share_parameters(model)
    replica = optimizer.replica(copied)
    before = everything(model, optimizer)
    with pytest.raises(NonFiniteError, match="layer '3'"):
        train(copied, replica, lambda m, t: network_loss(m, t, scale=float("nan")), [3])
    assert everything(model, optimizer) == before
    train(model, optimizer, network_loss, [3])  # and the original goes on


def test_replica_for_a_model_with_memory_of_its_own_is_refused_by_name() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    with pytest.raises(ValueError, match=r"no parameter '0.weight' in the memory"):
        optimizer.replica(copy.deepcopy(model))
    optimizer.add_param_group({"params": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match="no parameter 'weight' in the memory"):
        optimizer.replica(share_parameters(model))


# -- OnlineFisher under several threads ------------------------------------------------------------


def learned_fisher(num_minibatches: int = 3) -> OnlineFisher:
    fisher = OnlineFisher(rank=3, num_samples_history=50.0)
    for seed in range(num_minibatches):
        fisher.precondition(randn(20, 8, seed=seed))
    return fisher


def test_factor_that_another_thread_is_updating_is_applied_as_it_is() -> None:
    fisher, undisturbed = learned_fisher(), learned_fisher()
    X = randn(20, 8, seed=9)
    factor = fisher.factor
    assert factor is not None
    with fisher._update_lock:
        X_bar, squared_row_norms = fisher.precondition(X)
    X_hat = X - X @ factor.R.T @ torch.diag(factor.removed(fisher.alpha)) @ factor.R
    expected = X_hat * (X.norm() / X_hat.norm())
    torch.testing.assert_close(X_bar, expected)
    torch.testing.assert_close(squared_row_norms, expected.square().sum(dim=1))
    assert fisher.factor is factor
    assert fisher.t == 4  # the minibatch counts, though it taught nothing
    undisturbed.precondition(X)
    assert not torch.equal(undisturbed.state_dict()["R"], factor.R)  # undisturbed, it would have


def test_update_of_a_factor_that_another_thread_has_replaced_is_given_up() -> None:
    fisher = learned_fisher()
    _, [lesson] = fisher.meet(randn(20, 8, seed=9))
    assert fisher.factor is not None
    state = bits(fisher.state_dict())
    fisher.load_state_dict(fisher.state_dict())
    online.learn([lesson])
    assert bits(fisher.state_dict()) == state
    online.learn([lesson._replace(seen=lesson.seen._replace(factor=fisher.factor))])
    assert bits(fisher.state_dict()) != state


def test_threads_that_meet_at_the_first_minibatch_start_one_factor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = []

    def slow_start(X: Tensor, rank: int) -> Any:
        starts.append(X)
        time.sleep(0.02)  # time enough for all to come
        return start(X, rank)

    monkeypatch.setattr(online, "start", slow_start)
    fisher = OnlineFisher(rank=3, num_samples_history=50.0)
    in_threads(8, lambda number: fisher.precondition(randn(20, 8, seed=number)))
    assert len(starts) == 1
    assert fisher.t == 8


def test_no_minibatch_is_lost_to_the_count_and_the_factor_stays_sound() -> None:
    fisher = OnlineFisher(rank=5, num_samples_history=100.0)

    def work(number: int) -> None:
        for i in range(50):
            X = randn(16, 12, seed=100 * number + i)
            X_bar, _ = fisher.precondition(X)
            torch.testing.assert_close(X_bar.norm(), X.norm())

    in_threads(8, work)
    assert fisher.t == 400
    assert fisher.factor is not None
    R, trace = fisher.factor.R, fisher.factor.trace
    torch.testing.assert_close(R @ R.T, torch.eye(5, dtype=R.dtype), atol=1e-9, rtol=0)
    assert 0.7 < trace / 12 < 1.3  # of standard normal rows of 12 elements


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda f: pickle.loads(pickle.dumps(f))])
def test_copy_of_a_fisher_goes_on_with_the_same_bits(
    duplicate: Callable[[OnlineFisher], OnlineFisher],
) -> None:
    fisher = learned_fisher()
    copied = duplicate(fisher)
    X = randn(20, 8, seed=9)
    assert bits(copied.precondition(X)) == bits(fisher.precondition(X))
    assert bits(copied.state_dict()) == bits(fisher.state_dict())
