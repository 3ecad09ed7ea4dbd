"""The whole Fisher matrix, and what stands for it, against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from natgrad.optim import NGSGD
from natgrad.optim.diagnose import (
    Fisher,
    Pair,
    change_variables,
    change_variables_by_blocks,
    dense,
    inverse_root,
    learned_factors,
    measure_fisher,
    norm_keeping,
    smoothed,
)
from natgrad.optim.factor import FisherFactor
from tests.optim.samples import minibatch, relative_error


def classifier(
    num_inputs: int = 3, num_hidden: int = 4, num_classes: int = 3, bias: bool = True, seed: int = 0
) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(num_inputs, num_hidden, bias=bias, dtype=torch.float64),
        nn.Tanh(),
        nn.Linear(num_hidden, num_classes, bias=bias, dtype=torch.float64),
    )


def layers_of(network: nn.Sequential) -> list[nn.Module]:
    return [layer for layer in network if isinstance(layer, nn.Linear)]


def score_literally(network: nn.Sequential, x: Tensor, label: int) -> Tensor:
    """The derivative of log p(label | x), each weight row by row with its bias as last column."""
    network.zero_grad()
    network(x.unsqueeze(0)).log_softmax(dim=-1)[0, label].backward()
    parts = []
    for layer in layers_of(network):
        columns = [p.grad.reshape(len(p), -1) for p in layer.parameters() if p.grad is not None]
        parts.append(torch.cat(columns, dim=1).flatten())
    return torch.cat(parts)


def fisher_literally(network: nn.Sequential, inputs: Tensor, labels: Tensor | None) -> Tensor:
    total = torch.zeros(1, 1, dtype=torch.float64)
    for n, x in enumerate(inputs):
        posteriors = network(x.unsqueeze(0)).softmax(dim=-1)[0].detach()
        if labels is not None:
            posteriors = torch.eye(len(posteriors), dtype=torch.float64)[labels[n]]
        for c, probability in enumerate(posteriors.tolist()):
            g = score_literally(network, x, c)
            total = total + probability * torch.outer(g, g) / len(inputs)
    return total


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("with_labels", [True, False])
@pytest.mark.parametrize("chunk", [2, 5, 100])
def test_fisher_matrix_is_the_mean_outer_product_of_scores(
    bias: bool, with_labels: bool, chunk: int
) -> None:
    network = classifier(bias=bias)
    inputs = minibatch("iid", 5, 3, seed=1)
    labels = torch.tensor([0, 2, 1, 1, 0]) if with_labels else None
    fisher = measure_fisher(network, layers_of(network), inputs, labels, chunk=chunk)
    expected = fisher_literally(network, inputs, labels)
    assert relative_error(fisher.matrix, expected) < 1e-12
    assert fisher.bounds[-1] == len(expected) == sum(p.numel() for p in network.parameters())


def test_covariances_are_those_of_derivatives_and_inputs() -> None:
    network = classifier()
    inputs, labels = minibatch("correlated", 50, 3, seed=2), torch.arange(50) % 3
    fisher = measure_fisher(network, layers_of(network), inputs, labels, chunk=7)
    outputs = network(inputs)
    outputs.retain_grad()
    outputs.log_softmax(dim=-1)[torch.arange(50), labels].sum().backward()
    assert outputs.grad is not None
    hidden = torch.cat([network[:2](inputs), torch.ones(50, 1)], dim=1).detach()
    last = fisher.covariances[-1]
    assert relative_error(last.out, outputs.grad.T @ outputs.grad / 50) < 1e-12
    assert relative_error(last.into, hidden.T @ hidden / 50) < 1e-12


def test_covariance_times_covariance_is_the_block_where_they_are_independent() -> None:
    """Section 5.1: with x and y independent, the Fisher matrix is the Kronecker product."""
    layer = nn.Linear(4, 3, dtype=torch.float64)
    nn.init.zeros_(layer.weight)  # so that derivatives know nothing of the inputs
    inputs = minibatch("correlated", 64, 4, seed=3)
    fisher = measure_fisher(layer, [layer], inputs)
    (pair,) = fisher.covariances
    assert relative_error(fisher.matrix, torch.kron(pair.out, pair.into)) < 1e-12


def test_a_block_is_the_fisher_matrix_of_its_layer_alone() -> None:
    network = classifier()
    inputs = minibatch("iid", 20, 3, seed=4)
    layers = layers_of(network)
    whole = measure_fisher(network, layers, inputs)
    for index, layer in enumerate(layers):
        alone = measure_fisher(network, [layer], inputs)
        assert torch.allclose(whole.block(index).matrix, alone.matrix, rtol=0, atol=1e-14)


def test_activations_may_change_outputs_in_place() -> None:
    inputs = minibatch("iid", 12, 3, seed=1)
    fishers = []
    for inplace in (False, True):
        network = classifier()
        network[1] = nn.ReLU(inplace=inplace)
        fishers.append(measure_fisher(network, layers_of(network), inputs))
    assert relative_error(fishers[1].matrix, fishers[0].matrix) < 1e-12
    for found, expected in zip(fishers[1].covariances, fishers[0].covariances, strict=True):
        assert relative_error(found.out, expected.out) < 1e-12
        assert relative_error(found.into, expected.into) < 1e-12


def test_a_layer_that_is_called_twice_is_refused() -> None:
    layer = nn.Linear(3, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match="called twice"):
        measure_fisher(nn.Sequential(layer, layer), [layer], torch.ones(2, 3).double())
    assert len(layer._forward_hooks) == 0


def test_measuring_leaves_no_trace_in_an_optimizer() -> None:
    network = classifier()
    optimizer = NGSGD(network, lr=0.01)
    measure_fisher(network, layers_of(network), minibatch("iid", 9, 3, seed=5))
    assert all(p.grad is None for p in network.parameters())
    assert all(layer["num_minibatches"] == 0 for layer in optimizer.layer_statistics().values())


# -- the change of variables ---------------------------------------------------------------------


def positive(size: int, seed: int) -> Tensor:
    X = minibatch("correlated", 3 * size, size, seed=seed, space=seed)
    return X.T @ X + 1e-3 * torch.eye(size, dtype=torch.float64)


@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    seed=st.integers(0, 100),
)
@settings(max_examples=30, deadline=None)
def test_changed_fisher_has_the_eigenvalues_of_inverse_times_fisher(
    shapes: list[tuple[int, int]], seed: int
) -> None:
    pairs = tuple(Pair(positive(a, seed), positive(b, seed + 1)) for a, b in shapes)
    n = sum(a * b for a, b in shapes)
    F = positive(n, seed + 2)
    changed = change_variables(Fisher(F, pairs), pairs)
    G = torch.block_diag(*(torch.kron(pair.out, pair.into) for pair in pairs))
    cholesky = torch.linalg.cholesky(G)  # another C with C C^T = G^-1 is its inverse, transposed
    C = torch.linalg.inv(cholesky).T
    literal = torch.linalg.eigvalsh(C.T @ F @ C)
    found = torch.linalg.eigvalsh(changed)
    assert torch.allclose(found, literal, rtol=1e-6, atol=1e-9 * float(literal[-1]))


def test_where_the_factored_matrix_is_right_the_changed_one_is_unit() -> None:
    pairs = (Pair(positive(2, 1), positive(3, 2)), Pair(positive(4, 3), positive(2, 4)))
    F = torch.block_diag(*(torch.kron(pair.out, pair.into) for pair in pairs))
    changed = change_variables(Fisher(F, pairs), pairs)
    assert relative_error(changed, torch.eye(14)) < 1e-9


def test_blocks_that_are_changed_by_themselves_are_unit() -> None:
    pairs = (Pair(positive(2, 1), positive(3, 2)), Pair(positive(2, 3), positive(2, 4)))
    F = positive(10, 5)
    changed = change_variables_by_blocks(Fisher(F, pairs))
    assert relative_error(changed[:6, :6], torch.eye(6)) < 1e-9
    assert relative_error(changed[6:, 6:], torch.eye(4)) < 1e-9
    D = torch.block_diag(F[:6, :6], F[6:, 6:])
    literal = torch.linalg.eigvals(torch.linalg.solve(D, F)).real.sort().values
    assert torch.allclose(torch.linalg.eigvalsh(changed), literal, rtol=1e-6, atol=1e-9)


def test_inverse_root_of_a_singular_matrix_leaves_its_kernel_out() -> None:
    V = torch.linalg.qr(minibatch("iid", 4, 4, seed=6)).Q
    S = (V * torch.tensor([4.0, 1.0, 1e-14, 0.0], dtype=torch.float64)) @ V.T
    root = inverse_root(S)
    expected = (V * torch.tensor([0.5, 1.0, 0.0, 0.0], dtype=torch.float64)) @ V.T
    assert relative_error(root, expected) < 1e-9


# -- what stands for the Fisher matrix -----------------------------------------------------------


def test_the_gradient_of_ngsgd_is_the_plain_one_times_the_inverse_of_what_it_learned() -> None:
    """Kronecker factors, smoothing and scale are those that NGSGD steps with."""
    network = classifier(num_inputs=6, num_hidden=5, num_classes=4)
    optimizer = NGSGD(network, lr=0.01, rank_in=2, rank_out=2, max_change_per_sample=None)
    generator = torch.Generator().manual_seed(7)
    layers = layers_of(network)
    for number in range(12):
        inputs = torch.randn(32, 6, generator=generator, dtype=torch.float64)
        labels = torch.randint(4, (32,), generator=generator)
        factors = [learned_factors(optimizer, layer) for layer in layers] if number else []
        plain = measure_fisher(network, layers, inputs, labels)
        scores = [score_literally_of_batch(network, layer, inputs, labels) for layer in layers]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(inputs), labels, reduction="sum")
        loss.backward()
        for layer, pair, S, gradient in zip(
            layers, factors, plain.covariances, scores, strict=False
        ):
            A = norm_keeping(smoothed(pair.out, 4.0), S.out)
            B = norm_keeping(smoothed(pair.into, 4.0), S.into)
            natural = torch.linalg.inv(A) @ gradient @ torch.linalg.inv(B)
            grads = [p.grad for p in layer.parameters()]
            assert all(grad is not None for grad in grads)
            found = torch.cat(
                [grad.reshape(len(grad), -1) for grad in grads if grad is not None], 1
            )
            assert relative_error(found, natural) < 1e-9
        optimizer.step()


def score_literally_of_batch(
    network: nn.Sequential, layer: nn.Module, inputs: Tensor, labels: Tensor
) -> Tensor:
    """The plain gradient of the summed loss, (D_out, D_in + 1)."""
    loss = nn.functional.cross_entropy(network(inputs), labels, reduction="sum")
    gradients = torch.autograd.grad(loss, list(layer.parameters()))
    return torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], dim=1)


@pytest.mark.parametrize("method", ["simple", "none"])
def test_an_optimizer_without_factors_is_told(method: str) -> None:
    network = classifier()
    optimizer = NGSGD(network, lr=0.01, method=method)
    nn.functional.cross_entropy(
        network(torch.ones(4, 3).double()), torch.zeros(4).long()
    ).backward()
    optimizer.step()
    with pytest.raises(ValueError, match="has learned no Fisher factors"):
        learned_factors(optimizer, network[0])


@given(D=st.integers(2, 8), seed=st.integers(0, 50), alpha=st.floats(0.0, 20.0))
@settings(max_examples=30, deadline=None)
def test_scaled_matrix_keeps_the_norm_of_rows(D: int, seed: int, alpha: float) -> None:
    X = minibatch("correlated", 4 * D, D, seed=seed)
    S = X.T @ X / len(X)
    G = norm_keeping(smoothed(positive(D, seed), alpha), S)
    assert float((X @ torch.linalg.inv(G)).norm()) == pytest.approx(float(X.norm()), rel=1e-6)


def test_smoothing_adds_alpha_times_the_mean_diagonal() -> None:
    S = torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64))
    assert torch.equal(smoothed(S, 4.0), torch.diag(torch.tensor([11.0, 9.0]).double()))


def test_dense_factor_is_low_rank_plus_identity() -> None:
    R = torch.linalg.qr(minibatch("iid", 5, 2, seed=8)).Q.T
    F = dense(FisherFactor(R, torch.tensor([2.0, 1.0], dtype=torch.float64), 0.5))
    values = torch.linalg.eigvalsh(F)
    assert torch.allclose(values, torch.tensor([0.5, 0.5, 0.5, 1.5, 2.5]).double())
    assert math.isclose(float(R[0] @ F @ R[0]), 2.5)


def test_asking_for_a_layer_of_another_model_leaves_no_trace() -> None:
    network = classifier()
    optimizer = NGSGD(network, lr=0.01)
    with pytest.raises(ValueError, match="has learned no Fisher factors"):
        learned_factors(optimizer, nn.Linear(3, 2))
    optimizer.state_dict()
