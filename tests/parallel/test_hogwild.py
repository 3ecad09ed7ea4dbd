"""Several threads learn one job's minibatches, on one set of parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from natgrad.nn.network import build
from natgrad.optim import NGSGD, share_parameters
from natgrad.parallel.hogwild import Totals, learn_in_threads


class Recorder:
    """A learner that only notes which thread has learned what."""

    def __init__(
        self, minibatches: Iterator[int], fail: Callable[[Recorder, int], None] | None = None
    ) -> None:
        self.source = minibatches
        self.fail = fail
        self.number = 0
        self.all = [self]
        self.learned: list[int] = []
        self.thread: int | None = None

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def minibatches(self) -> Iterator[int]:
        return self.source

    def learn(self, minibatch: int) -> tuple[float, float]:
        assert self.thread in (None, threading.get_ident()), "one learner met two threads"
        self.thread = threading.get_ident()
        if self.fail is not None:
            self.fail(self, minibatch)
        self.learned.append(minibatch)
        return -2.0 * minibatch, 3.0

    def replica(self) -> Recorder:
        other = Recorder(iter(()), self.fail)
        other.number = len(self.all)
        other.all = self.all
        self.all.append(other)
        return other

    def state(self) -> dict[str, Tensor]:
        return {}

    def statistics(self) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("num_threads", [1, 2, 5])
@pytest.mark.parametrize("num_minibatches", [0, 1, 300])
def test_every_minibatch_is_learned_exactly_once(num_threads: int, num_minibatches: int) -> None:
    learner = Recorder(iter(range(num_minibatches)))
    totals = learn_in_threads(learner, num_threads)
    learned = [minibatch for one in learner.all for minibatch in one.learned]
    assert sorted(learned) == list(range(num_minibatches))
    assert totals == Totals(-2.0 * sum(learned), 3.0 * num_minibatches, num_minibatches)
    assert len(learner.all) == num_threads
    assert all(one.learned == sorted(one.learned) for one in learner.all)  # handed out in order


def meet(barrier: threading.Barrier) -> None:
    barrier.wait()


def test_all_threads_learn_at_the_same_time_and_the_caller_is_one_of_them() -> None:
    everyone = threading.Barrier(4, timeout=20.0)
    learner = Recorder(iter(range(4)), lambda one, minibatch: meet(everyone))
    learn_in_threads(learner, 4)
    assert [len(one.learned) for one in learner.all] == [1, 1, 1, 1]
    assert learner.thread == threading.get_ident()


@pytest.mark.parametrize("failing", [0, 2], ids=["caller", "replica"])
def test_error_in_one_thread_stops_the_others_and_is_raised_as_it_is(failing: int) -> None:
    everyone = threading.Barrier(3, timeout=20.0)

    def fail(one: Recorder, minibatch: int) -> None:
        if not one.learned:
            everyone.wait()
        if one.number == failing and len(one.learned) == 5:
            raise FloatingPointError("the objective is NaN")

    endless = 10**6
    learner = Recorder(iter(range(endless)), fail)
    with pytest.raises(FloatingPointError, match="the objective is NaN") as caught:
        learn_in_threads(learner, 3)
    assert any(entry.name == "fail" for entry in caught.traceback)  # it shows where
    assert sum(len(one.learned) for one in learner.all) < endless
    assert not [t for t in threading.enumerate() if t.name.startswith("hogwild")]


def test_error_of_the_minibatches_themselves_is_raised() -> None:
    def torn() -> Iterator[int]:
        yield from range(10)
        raise OSError("block 7 is torn")

    learner = Recorder(torn())
    with pytest.raises(OSError, match="block 7 is torn"):
        learn_in_threads(learner, 3)
    assert sorted(minibatch for one in learner.all for minibatch in one.learned) == list(range(10))


def test_no_thread_is_refused() -> None:
    with pytest.raises(ValueError, match="num_threads is 0"):
        learn_in_threads(Recorder(iter(())), 0)


# -- with networks ---------------------------------------------------------------------------------

NUM_INPUTS, NUM_CLASSES, MINIBATCH = 10, 4, 32


def separable_data(num_samples: int) -> tuple[Tensor, Tensor]:
    """Return inputs of unequal scales, and the classes that a noisy network of one layer gives."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(num_samples, NUM_INPUTS, generator=generator)
    teacher = torch.randn(NUM_INPUTS, NUM_CLASSES, generator=generator)
    noise = torch.randn(num_samples, NUM_CLASSES, generator=generator)
    return x * torch.logspace(0, -1, NUM_INPUTS), (x @ teacher + 2.0 * noise).argmax(dim=1)


class ModelLearner:
    """A model and NG-SGD, over the data `num_epochs` times."""

    def __init__(self, model: nn.Module, optimizer: NGSGD, num_epochs: int) -> None:
        self.model = model
        self.optimizer = optimizer
        self.num_epochs = num_epochs
        self.x, self.y = separable_data(1024)
        self.replicas: list[ModelLearner] = []

    def tensors(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def minibatches(self) -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for _ in range(self.num_epochs):
            yield from torch.randperm(len(self.y), generator=generator).split(MINIBATCH)

    def learn(self, minibatch: Tensor) -> tuple[float, float]:
        loss = F.cross_entropy(self.model(self.x[minibatch]), self.y[minibatch], reduction="sum")
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return -loss.item(), float(len(minibatch))

    def replica(self) -> ModelLearner:
        model = share_parameters(self.model)
        replica = ModelLearner(model, self.optimizer.replica(model), self.num_epochs)
        self.replicas.append(replica)
        return replica

    def state(self) -> dict[str, Tensor]:
        return {}

    def statistics(self) -> dict[str, Any]:
        return self.optimizer.layer_statistics()

    def loss(self) -> float:
        with torch.no_grad():
            return F.cross_entropy(self.model(self.x), self.y).item()


def convex_model() -> nn.Module:
    model = nn.Linear(NUM_INPUTS, NUM_CLASSES)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return model


def pnorm_model() -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    model = build(NUM_INPUTS, NUM_CLASSES, ((20, 10),) * 2, generator=generator)
    # From zero, as `build` leaves it, little is learned until, at some moment, all is.
    nn.init.normal_(model.output.weight, std=0.3, generator=generator)
    return model


def learner_of(make: Callable[[], nn.Module], num_epochs: int, **options: Any) -> ModelLearner:
    model = make()
    lr = 0.02 if make is convex_model else 0.002
    options = {"lr": lr, "rank_in": 4, "rank_out": 8, "fused": True} | options
    return ModelLearner(model, NGSGD(model, **options), num_epochs)


def bits(tensors: dict[str, Tensor]) -> dict[str, list[int]]:
    return {name: t.flatten().view(torch.uint8).tolist() for name, t in tensors.items()}


@pytest.mark.parametrize("make", [convex_model, pnorm_model])
def test_one_thread_gives_the_bits_of_the_plain_loop(make: Callable[[], nn.Module]) -> None:
    plain, learner = learner_of(make, 2), learner_of(make, 2)
    objective = weight = 0.0
    for minibatch in plain.minibatches():
        own_objective, own_weight = plain.learn(minibatch)
        objective, weight = objective + own_objective, weight + own_weight
    assert learn_in_threads(learner, 1) == Totals(objective, weight, 64)
    assert bits(learner.tensors()) == bits(plain.tensors())
    assert learner.statistics() == plain.statistics()


@pytest.mark.parametrize("make", [convex_model, pnorm_model])
@pytest.mark.parametrize(
    ("method", "fused"), [("online", True), ("online", False), ("simple", True), ("none", True)]
)
def test_four_threads_learn_what_one_does(
    make: Callable[[], nn.Module], method: str, fused: bool
) -> None:
    alone, learner = (learner_of(make, 8, method=method, fused=fused) for _ in range(2))
    begin = learner.loss()
    learn_in_threads(alone, 1)
    learn_in_threads(learner, 4)
    progress = (begin - learner.loss()) / (begin - alone.loss())
    assert 0.8 < progress < 1.2, f"{progress:.3f} of what one thread learns"
    for replica in learner.replicas:
        for mine, other in zip(learner.tensors().values(), replica.tensors().values(), strict=True):
            assert mine.data_ptr() == other.data_ptr()
    assert {e["num_minibatches"] for e in learner.statistics().values()} == {8 * 32}


def test_many_short_runs_of_many_threads_end_and_stay_finite() -> None:
    for _ in range(20):
        learner = learner_of(pnorm_model, 1)
        assert learn_in_threads(learner, 8).num_minibatches == 32
        assert all(bool(tensor.isfinite().all()) for tensor in learner.tensors().values())
