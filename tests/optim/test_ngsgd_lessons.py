"""What the Fisher factors learn from one backward pass, they learn together, at its end."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from natgrad import NGSGD
from natgrad.optim import matrix, online, share_parameters
from natgrad.optim.backward_pass import at_end_of_backward
from natgrad.optim.factor import FisherFactor, Observation, start, update, update_all
from natgrad.optim.low_rank_rows import removals
from tests.optim.models import (
    OPTIONS,
    bits,
    fisher_bits,
    fused_or_not,
    network,
    network_loss,
    randn,
    seeded,
    train,
)
from tests.optim.samples import KINDS, minibatch

pytestmark = pytest.mark.usefixtures("by_torch_and_by_kernels")


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    """Draw a factor and what it has met; some are of zeros only, for ever."""
    D, N = draw(st.integers(2, 30)), draw(st.integers(1, 12))
    rank = draw(st.integers(1, min(4, D - 1)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    kind = draw(st.sampled_from(KINDS))
    scale = draw(st.sampled_from([1e-13, 1.0, 1e12]))
    factor = start((scale * minibatch("correlated", 9, D, seed=1)).to(dtype), rank)
    if draw(st.booleans()) and kind == "zeros":
        factor = FisherFactor(factor.R, torch.full_like(factor.d, 1e-38), 1e-38)
    X = (scale * minibatch(kind, N, D, seed=draw(st.integers(2, 9)))).to(dtype)
    return Observation(factor, X, X @ factor.R.t(), float(X.double().square().sum()), 0.3)


def usual(seed: int) -> Observation:
    """As large as a layer's outputs in a small network."""
    X = minibatch("correlated", 128, 300, seed=seed).float()
    factor = start(minibatch("correlated", 128, 300, seed=seed + 100).float(), 80)
    return Observation(factor, X, X @ factor.R.t(), float(X.double().square().sum()), 0.06)


@given(st.lists(observations(), max_size=6))
@example([usual(1), usual(2), usual(3)])
@settings(max_examples=100, deadline=None)
def test_factors_that_learn_together_are_those_that_learn_alone_to_the_bit(
    seen: list[Observation],
) -> None:
    together = update_all(seen)
    alone = [update(one) for one in seen]
    assert [bits(vars(factor)) for factor in together] == [bits(vars(factor)) for factor in alone]
    for factor, one in zip(together, seen, strict=True):
        is_faded = one.trace() < 1e-35
        assert (factor is one.factor) == is_faded
        # Each has memory of its own: what is saved of one does not carry all others along.
        assert factor.d.untyped_storage().nbytes() == factor.d.nbytes


@given(st.lists(st.tuples(observations(), st.sampled_from((0.0, 0.1, 4.0, math.inf))), max_size=6))
@example([(usual(1), 4.0), (usual(2), 1.0)])
@settings(max_examples=100, deadline=None)
def test_what_factors_take_out_is_the_same_together_and_alone_to_the_bit(
    drawn: list[tuple[Observation, float]],
) -> None:
    factors, alphas = [one.factor for one, _ in drawn], [alpha for _, alpha in drawn]
    together = removals(factors, alphas)
    for factor, alpha, removal in zip(factors, alphas, together, strict=True):
        [alone] = removals([factor], [alpha])
        assert removal.R is factor.R
        assert bits([removal.e, removal.lost]) == bits([alone.e, alone.lost])
        assert torch.equal(removal.e, factor.removed(alpha))
        literal = 1.0 - (1.0 - removal.e.double()) ** 2  # of |x|^2, in each direction
        torch.testing.assert_close(removal.lost.double() ** 2, literal, rtol=1e-6, atol=1e-12)


def skipping() -> nn.Module:
    class Skipping(nn.Module):
        """Each layer's output derivatives go past it, too, and are added to on the way."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + layer(x)
            return x

    return Skipping()


def partly_in_a_checkpoint() -> nn.Module:
    class PartlyInACheckpoint(nn.Module):
        """A layer that a pass completes, and then a pass within that pass once more."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.as_tensor(self.layer(checkpoint(self.layer, x, use_reentrant=True)))

    return PartlyInACheckpoint()


def loss_of(model: nn.Module, t: int) -> Tensor:
    return torch.as_tensor((model(randn(7, 4, seed=t).requires_grad_()) - 0.5).square().sum())


@pytest.mark.parametrize(
    ("make", "fused"), [(skipping, False), (skipping, True), (partly_in_a_checkpoint, False)]
)
def test_it_does_not_matter_that_they_learn_at_the_end(
    make: Callable[[], nn.Module], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def learn_at_once(action: Callable[[], None]) -> None:
        return action() if action.__name__ == "learn" else at_end_of_backward(action)

    results = []
    for when in (at_end_of_backward, learn_at_once):
        monkeypatch.setattr(matrix, "at_end_of_backward", when)
        model = seeded(make).double()
        optimizer = NGSGD(model, **OPTIONS, fused=fused)
        train(model, optimizer, loss_of, range(15))
        results.append(bits([model.state_dict(), optimizer.state_dict()]))
    assert results[0] == results[1]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many factors learned together, from now on."""
    sizes: list[int] = []

    def counted(seen: list[Observation]) -> list[FisherFactor]:
        sizes.extend([len(seen)] * bool(seen))
        return update_all(seen)

    monkeypatch.setattr(online, "update_all", counted)
    return sizes


def test_all_factors_of_a_pass_learn_in_one_go(sizes: list[int]) -> None:
    model = network()
    train(model, NGSGD(model, **OPTIONS), network_loss, range(17))
    # On the first ten minibatches, and on every fourth: two sides of two layers.
    assert sizes == [4] * 12


def test_factors_that_threads_share_learn_layer_by_layer(sizes: list[int]) -> None:
    """At the end of a pass, another thread would have replaced what this one has met."""
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    shared = share_parameters(model)
    replica = optimizer.replica(shared)
    train(model, optimizer, network_loss, range(1))
    train(shared, replica, network_loss, range(1, 3))
    assert sizes == [2] * 6


class Fails(torch.autograd.Function):
    """Passes everything on, until derivatives come back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        raise ArithmeticError("no derivatives here")


def half_a_pass(model: Any) -> None:
    """Make a backward pass that reaches the last layer, and ends before the first."""
    hidden = Fails.apply(model[:-1](randn(12, 6, seed=30)))  # type: ignore[no-untyped-call]
    with pytest.raises(ArithmeticError):
        model[-1](hidden).square().sum().backward()


@fused_or_not
def test_step_completes_what_a_failed_pass_was_about_to_learn(fused: bool) -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS, fused=fused)
    train(model, optimizer, network_loss, range(2))
    before = fisher_bits(optimizer)
    half_a_pass(model)
    optimizer.step()
    after = fisher_bits(optimizer)
    assert after[0] == before[0]
    for side in (0, 1):
        assert after[1][side]["R"] != before[1][side]["R"]


def test_layer_with_an_output_that_is_not_used_has_learned_when_backward_returns() -> None:
    layer = nn.Linear(4, 4).double()
    optimizer = NGSGD(layer, **OPTIONS)
    train(layer, optimizer, loss_of, range(2))
    [[before, _]] = fisher_bits(optimizer)
    unused = layer(randn(7, 4, seed=9))  # its graph lives on, and only the end tells that no
    loss_of(layer, 2).backward()  # derivatives will come
    [[after, _]] = fisher_bits(optimizer)
    assert after["R"] != before["R"]
    del unused


def test_zero_grad_forgets_what_a_failed_pass_was_about_to_learn() -> None:
    model = network()
    optimizer = NGSGD(model, **OPTIONS)
    train(model, optimizer, network_loss, range(2))
    optimizer.zero_grad()
    before = bits(optimizer.state_dict())
    half_a_pass(model)
    optimizer.zero_grad()
    assert bits(optimizer.state_dict()) == before
    optimizer.step()
    assert bits(optimizer.state_dict()) == before
