"""Parameter averaging (section 3.1) for one's own training script under torchrun.

The only collectives are those of an average, called a round here. A rank enters its k-th round when
*it* has trained on enough, and waits there for the others to enter theirs: rounds match by their
order, so ranks may differ in minibatches, in skipped steps and in the amount of their data. A rank
that has no more data goes on entering rounds, without a weight, until all ranks have come that far.

In a round each rank averages one part of the parameters, in the order of ranks and in float64 (the
same function as `natgrad.parallel.average`), and the parts are then exchanged: twice the model's
size is sent and received, and as each element is computed once, all ranks end with the same bits.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor, nn

from natgrad.parallel.average import non_finite_tensors, weighted_mean
from natgrad.parallel.judge import NoJobLeftError

__all__ = ["ParameterAveraging", "Round"]

BUCKET_ELEMENTS = 1 << 22  # small tensors travel together, in buckets of up to this many elements


@dataclass(frozen=True)
class Round:
    """One average: the samples of each rank since the last, and the ranks that were left out."""

    num_samples: list[float]
    left_out: list[int]


class ParameterAveraging:
    """Averages the parameters and buffers of a model over all ranks, every so many samples.

    Each rank trains by itself, with its own optimizer and its own data; nothing but this averages:

    >>> from natgrad import NGSGD
    >>> model = nn.Linear(20, 3)
    >>> optimizer = NGSGD(model, lr=0.01)
    >>> with ParameterAveraging(model, samples_per_average=400_000) as averaging:
    ...     for x, y in [(torch.randn(64, 20), torch.randint(3, (64,)))] * 3:
    ...         optimizer.zero_grad()
    ...         nn.functional.cross_entropy(model(x), y, reduction="sum").backward()
    ...         optimizer.step()
    ...         _ = averaging.step(num_samples=len(x))

    Without a process group it is the case of one rank, as above. The mean is weighted by samples
    since the last average. Integers and booleans, which count batches as a rule, become the
    greatest of all ranks'. A rank with a parameter that is NaN or infinite is left out, with a
    warning on all ranks, and gets the others' mean. The state of optimizers stays each rank's own.

    All ranks make one, with the same arguments: it gives all of them the model of rank 0.

    Args:
        model: as it is trained, on its device.
        samples_per_average: a rank averages after every so many of its samples (400 000 in the
            paper), each weighted average counting from the last.
        steps_per_average: instead, after every so many calls of `step`. Needed if the training loop
            has collectives of its own, which then must not come between two ranks' averages: ranks
            count the same steps if a skipped one is reported, as `step(0)`.
        group: the process group to average over; by default all ranks, in a group of its own.

    Attributes:
        num_steps: calls of `step` so far.
        num_averages: rounds so far, those included in which only other ranks had trained.
        last_round: the latest one.
        num_ranks: 1 without a process group.
    """

    def __init__(
        self,
        model: nn.Module,
        samples_per_average: float | None = None,
        steps_per_average: int | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        given = [p for p in (samples_per_average, steps_per_average) if p is not None]
        if len(given) != 1 or not given[0] > 0:
            raise ValueError(
                f"samples_per_average={samples_per_average}, steps_per_average={steps_per_average}:"
                " give one of the two, and a positive number"
            )
        self.num_steps = 0
        self.num_averages = 0
        self.last_round: Round | None = None
        self._period, self._counts_steps = given[0], steps_per_average is not None
        self._recent_samples, self._recent_steps = 0.0, 0  # since the last average
        self._model = model
        self._is_parallel = dist.is_available() and dist.is_initialized()
        if self._is_parallel and group is None:
            group = dist.new_group()
        self._group = group
        self._rank = dist.get_rank(group) if self._is_parallel else 0
        self.num_ranks = dist.get_world_size(group) if self._is_parallel else 1
        self._check_model()
        self._share_from(0)

    @property
    def _tensors(self) -> dict[str, Tensor]:
        """All tensors of the model by name, as they are now: it may give a buffer a new one."""
        return dict([*self._model.named_parameters(), *self._model.named_buffers()])

    # -- what a training loop calls --------------------------------------------------------------

    def step(self, num_samples: float) -> bool:
        """Count a step on so many samples, 0 if it was skipped; True if an average followed.

        To be called after `optimizer.step()`.
        """
        if not 0.0 <= num_samples < float("inf"):
            raise ValueError(f"a step on {num_samples} samples: expected a number, 0 or greater")
        self.num_steps += 1
        self._recent_steps += 1
        self._recent_samples += num_samples
        count = self._recent_steps if self._counts_steps else self._recent_samples
        is_due = count >= self._period
        if is_due:
            self.average_now()
        return is_due

    def average_now(self) -> Round:
        """Average at once. Every other rank's next average, whatever its reason, is this one."""
        round_, _ = self._enter_round(is_finished=False)
        return round_

    def finish(self) -> Round:
        """Take part in the others' averages until all ranks have called this; average a last time.

        Afterwards all ranks have the same parameters, and training may go on: with another epoch,
        say.
        """
        while True:
            round_, all_finished = self._enter_round(is_finished=True)
            if all_finished:
                return round_

    def __enter__(self) -> ParameterAveraging:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:  # else this rank fails, and torchrun ends the others
            self.finish()

    # -- a round ---------------------------------------------------------------------------------

    @torch.no_grad()
    def _enter_round(self, is_finished: bool) -> tuple[Round, bool]:
        """Average once; return also whether every rank has finished."""
        bad = non_finite_tensors(self._tensors)
        mine = [self._recent_samples, float(is_finished), float(not bad)]
        all_ = self._gather(torch.tensor(mine, dtype=torch.float64)).tolist()
        num_samples = [samples for samples, _, _ in all_]
        left_out = [rank for rank, (_, _, is_finite) in enumerate(all_) if not is_finite]
        if len(left_out) == self.num_ranks:
            raise NoJobLeftError(
                "the parameters of no rank are finite; on this one, these are not: "
                f"{', '.join(bad)}. Lower the learning rate, or look for bad values in the data"
            )
        if left_out:
            warnings.warn(
                f"the parameters of rank {', '.join(map(str, left_out))} of {self.num_ranks} are "
                f"not finite: left out of average {self.num_averages + 1}, and replaced by it",
                RuntimeWarning,
                stacklevel=3,
            )
        weights = [0.0 if rank in left_out else n for rank, n in enumerate(num_samples)]
        self._average(weights, left_out)
        self.last_round = Round(num_samples, left_out)
        self.num_averages += 1
        self._recent_samples, self._recent_steps = 0.0, 0
        return self.last_round, all(finished for _, finished, _ in all_)

    def _average(self, weights: Sequence[float], left_out: Sequence[int]) -> None:
        if not self._is_parallel:
            return
        sources = [rank for rank, weight in enumerate(weights) if weight > 0.0]
        if not sources:  # no rank has trained since the last average: all are as it left them
            self._share_from(next(r for r in range(self.num_ranks) if r not in left_out))
            return
        for bucket in self._buckets():
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            mean = self._mean(flat, sources, [weights[rank] for rank in sources])
            for tensor, part in zip(bucket, mean.split([t.numel() for t in bucket]), strict=True):
                tensor.copy_(part.view(tensor.shape))
        self._maximize_integers()

    def _mean(self, flat: Tensor, sources: Sequence[int], weights: Sequence[float]) -> Tensor:
        """Return the mean of a vector over some ranks; each rank computes a part of it."""
        num_elements = len(flat)
        flat = nn.functional.pad(flat, (0, -num_elements % self.num_ranks))
        parts = torch.empty_like(flat)  # this rank's part, of each rank's vector
        dist.all_to_all_single(parts, flat, group=self._group)
        rows = parts.view(self.num_ranks, -1)
        part = weighted_mean([rows[rank] for rank in sources], weights)
        dist.all_gather(list(flat.view(self.num_ranks, -1)), part, group=self._group)
        return flat[:num_elements]

    def _maximize_integers(self) -> None:
        for tensor in self._tensors.values():
            if not tensor.is_floating_point():
                widest = tensor.long()  # gloo does not know all integer types
                dist.all_reduce(widest, op=dist.ReduceOp.MAX, group=self._group)
                tensor.copy_(widest)

    def _buckets(self) -> Iterator[list[Tensor]]:
        """Yield all floating tensors, those of one type in buckets."""
        floating = [t for t in self._tensors.values() if t.is_floating_point() and t.numel()]
        for dtype in sorted({tensor.dtype for tensor in floating}, key=str):
            bucket: list[Tensor] = []
            for tensor in (t for t in floating if t.dtype == dtype):
                if bucket and sum(t.numel() for t in bucket) + tensor.numel() > BUCKET_ELEMENTS:
                    yield bucket
                    bucket = []
                bucket.append(tensor)
            yield bucket

    # -- at the start ----------------------------------------------------------------------------

    def _check_model(self) -> None:
        """Raise on all ranks if a tensor has no mean, or if ranks have different models."""
        described = [(n, tuple(t.shape), str(t.dtype)) for n, t in self._tensors.items()]
        digest = hashlib.sha256(repr(described).encode()).digest()
        number = int.from_bytes(digest[:6], "big")  # exact in float64
        numbers = self._gather(torch.tensor([number], dtype=torch.float64)).view(-1).tolist()
        others = [rank for rank, other in enumerate(numbers) if other != numbers[0]]
        if others:
            raise ValueError(
                f"the model of rank {', '.join(map(str, others))} has other names, shapes or types "
                f"than that of rank 0; on rank {self._rank} they are {described}"
            )
        for name, tensor in self._tensors.items():
            if tensor.is_complex():
                raise ValueError(
                    f"'{name}' is of type {tensor.dtype}, and complex tensors are not averaged"
                )

    @torch.no_grad()
    def _share_from(self, rank: int) -> None:
        if self._is_parallel:
            source = dist.get_global_rank(self._group, rank) if self._group else rank
            for tensor in self._tensors.values():
                values = tensor.detach().reshape(-1).clone()
                # As bytes: gloo does not know all types.
                dist.broadcast(values.view(torch.uint8), source, group=self._group)
                tensor.copy_(values.view(tensor.shape))

    def _gather(self, mine: Tensor) -> Tensor:
        """Return what each rank has (ranks x numbers)."""
        if not self._is_parallel:
            return mine[None]
        device = next((t.device for t in self._tensors.values()), torch.device("cpu"))
        mine = mine.to(device)
        theirs = [torch.empty_like(mine) for _ in range(self.num_ranks)]
        dist.all_gather(theirs, mine, group=self._group)
        return torch.stack(theirs).cpu()
