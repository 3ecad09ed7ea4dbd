"""What each of two processes does with a model in a DistributedDataParallel; see test_ngsgd_ddp."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from natgrad import NGSGD
from tests.optim.models import OPTIONS, network, randn


def together(rank: int, num_processes: int, meeting_point: str) -> None:
    """Let a process meet the others, and do all that is below with them."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=rank, world_size=num_processes
    )
    try:
        plain_steps_are_those_of_sgd(rank)
        natural_steps_leave_all_alike_whatever_graphs_are_alive(rank)
        fused_steps_are_refused(rank)
    finally:
        dist.destroy_process_group()


def loss_of(model: nn.Module, rank: int, t: int) -> Tensor:
    return torch.as_tensor((model(randn(7, 6, seed=100 * rank + t)) - 0.5).square().sum())


def plain_steps_are_those_of_sgd(rank: int) -> None:
    own, expected = network(), network()
    model, other = DistributedDataParallel(own), DistributedDataParallel(expected)
    optimizer = NGSGD(own, lr=0.1, method="none", max_change_per_sample=None)
    sgd = torch.optim.SGD(expected.parameters(), lr=0.1)
    for t in range(3):
        for of, by in ((model, optimizer), (other, sgd)):
            by.zero_grad()
            loss_of(of, rank, t).backward()
            by.step()
    for one, another in zip(own.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-11, atol=1e-13)


def natural_steps_leave_all_alike_whatever_graphs_are_alive(rank: int) -> None:
    own = network()
    model = DistributedDataParallel(own)
    optimizer = NGSGD(own, **OPTIONS)
    kept = loss_of(own, rank, 50)  # as of a validation that was not made without gradients
    for t in range(4):
        before = own[0].weight.detach().clone()
        optimizer.zero_grad()
        loss_of(model, rank, t).backward()
        optimizer.step()
        assert not torch.equal(own[0].weight, before)
    del kept
    for parameter in own.parameters():
        everywhere = [torch.empty_like(parameter) for _ in range(dist.get_world_size())]
        dist.all_gather(everywhere, parameter.detach())
        assert torch.equal(everywhere[0], everywhere[1])


def fused_steps_are_refused(rank: int) -> None:
    own = network()
    model = DistributedDataParallel(own)
    optimizer = NGSGD(own, **OPTIONS, fused=True)
    with pytest.raises(RuntimeError, match="is in a DistributedDataParallel"):
        loss_of(model, rank, 0)
    loss_of(own, rank, 0).backward()  # the model by itself is nobody else's
    optimizer.step()
