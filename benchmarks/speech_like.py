"""A synthetic stand-in for frame classification in speech: deterministic, nothing to download.

A stream of segments of 3 to 11 frames, each of a class (frequencies falling like 1/rank, as those
of phones in context do) and of one of its 3 variants. A frame is the variant's mean, smoothed over
time (neighbours blend into one another), plus noise correlated in time, plus an offset that changes
every 500 frames (the speaker); mixed by a matrix with singular values from 1 to 0.1. The network
sees 9 neighbouring frames and says the class of the middle one.

So, as with spliced cepstra, inputs are strongly correlated (the condition number of their
covariance is in the thousands), classes overlap (no network reaches a loss of zero), the variants
make classes multi-modal (linear classification does not do), and there is so much data that each
sample is seen once. The last is why this task and not a small real one: the loss on held-out data
is then just what the optimizers minimise, and none wins or loses by overfitting.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from natgrad.nn import ClassStatistics, Network, build, input_transform

CONTEXT = 4  # frames on each side
NUM_VARIANTS = 3
FRAMES_PER_SPEAKER = 500
SMOOTHING = (1.0, 2.0, 3.0, 2.0, 1.0)
NOISE_CORRELATION = 0.6  # of a frame's noise with the next one's
NOISE_MEMORY_FRAMES = 8
SPEAKER_STDDEV = 0.5


@dataclass(frozen=True)
class Size:
    """Of the task and of the network; hidden layers as (units, groups) of p-norm."""

    num_train: int = 102_400
    num_held_out: int = 8192
    num_features: int = 40
    num_classes: int = 150
    hidden: tuple[tuple[int, int], ...] = ((500, 100),) * 3


QUICK = Size(2560, 512, num_features=8, num_classes=10, hidden=((50, 10),) * 2)


@dataclass(frozen=True)
class Task:
    """All frames and labels; which are trained on; the held-out part; the C.6 input transform."""

    size: Size
    frames: Tensor
    labels: Tensor
    train_indices: Tensor
    held_out_x: Tensor
    held_out_y: Tensor
    transform: tuple[Tensor, Tensor]
    input_condition: float  # of the covariance of the inputs
    transformed_condition: float

    def minibatch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the inputs and the classes of these frames."""
        return splice(self.frames, indices), self.labels[indices]


def make_task(size: Size, seed: int = 0) -> Task:
    """Draw the stream, hold out its end, and take the input statistics of the training part."""
    num_frames = size.num_train + size.num_held_out + 4 * CONTEXT
    frames, labels = draw_stream(size, num_frames, torch.Generator().manual_seed(seed))
    train = torch.arange(CONTEXT, CONTEXT + size.num_train)
    # No frame is in the context of both parts.
    held_out = torch.arange(num_frames - CONTEXT - size.num_held_out, num_frames - CONTEXT)
    statistics = ClassStatistics((2 * CONTEXT + 1) * size.num_features, size.num_classes)
    for part in train.chunk(32):  # not all inputs at once: they would fill 150 MB
        statistics.accumulate(splice(frames, part), labels[part])
    within, between = statistics.within, statistics.between
    matrix, offset = input_transform(statistics.mean, within, between)
    return Task(
        size=size,
        frames=frames,
        labels=labels,
        train_indices=train,
        held_out_x=splice(frames, held_out),
        held_out_y=labels[held_out],
        transform=(matrix, offset),
        input_condition=condition(within + between),
        transformed_condition=condition(matrix @ (within + between) @ matrix.T),
    )


def draw_stream(size: Size, num_frames: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return frames (num_frames, num_features) and the class of each."""
    num_features = size.num_features
    means = torch.randn(size.num_classes, NUM_VARIANTS, num_features, generator=generator)
    frequencies = 1.0 / (5.0 + torch.arange(size.num_classes))
    num_segments = num_frames // 3 + 1
    durations = torch.randint(3, 12, (num_segments,), generator=generator)
    classes = torch.multinomial(frequencies, num_segments, replacement=True, generator=generator)
    variants = torch.randint(NUM_VARIANTS, (num_segments,), generator=generator)
    segment_of = torch.repeat_interleave(torch.arange(num_segments), durations)[:num_frames]
    labels = classes[segment_of]
    smoothing = torch.tensor(SMOOTHING) / sum(SMOOTHING)
    clean = filter_in_time(means[labels, variants[segment_of]], smoothing, "replicate")
    memory = NOISE_CORRELATION ** torch.arange(NOISE_MEMORY_FRAMES)
    white = torch.randn(num_frames, num_features, generator=generator)
    noise = filter_in_time(white, memory / memory.norm(), "constant")
    num_speakers = num_frames // FRAMES_PER_SPEAKER + 1
    offsets = SPEAKER_STDDEV * torch.randn(num_speakers, num_features, generator=generator)
    speaker = offsets.repeat_interleave(FRAMES_PER_SPEAKER, 0)[:num_frames]
    rotation, _ = torch.linalg.qr(torch.randn(num_features, num_features, generator=generator))
    frames = (clean + noise + speaker) * torch.logspace(0, -1, num_features) @ rotation
    return frames / frames.std(), labels


def filter_in_time(x: Tensor, kernel: Tensor, padding: str) -> Tensor:
    """Convolve each feature of x (frames, features) with the kernel; the length stays."""
    left = len(kernel) // 2
    padded = F.pad(x.T.unsqueeze(1), (left, len(kernel) - 1 - left), mode=padding)
    return F.conv1d(padded, kernel.view(1, 1, -1)).squeeze(1).T


def splice(frames: Tensor, indices: Tensor) -> Tensor:
    """Return each frame with its neighbours: (len(indices), (2 CONTEXT + 1) * features)."""
    neighbours = indices.unsqueeze(1) + torch.arange(-CONTEXT, CONTEXT + 1)
    return frames[neighbours].flatten(1)


def condition(covariance: Tensor) -> float:
    """Return the ratio of the greatest to the least eigenvalue."""
    eigenvalues = torch.linalg.eigvalsh(covariance)
    return float(eigenvalues[-1] / eigenvalues[0])


def initial_network(task: Task, seed: int) -> Network:
    """Return the p-norm network of section 6, as its training begins."""
    size = task.size
    return build(
        task.held_out_x.shape[1],
        size.num_classes,
        size.hidden,
        input_transform=task.transform,
        generator=torch.Generator().manual_seed(seed),
    )


@torch.no_grad()
def mean_direction_shares(task: Task, network: Network) -> list[float]:
    """Return, per hidden layer, how much of its outputs' second moment is along their mean.

    It is what makes a p-norm network hard for methods that know no matrices: its hidden outputs are
    positive, so that the next layer's inputs have one direction far stronger than all others.
    """
    assert network.input_transform is not None
    x = network.input_transform(task.held_out_x)
    shares = []
    for block in network.hidden:
        x = block(x)
        mean = x.mean(dim=0)
        along = x @ (mean / mean.norm())
        shares.append(float(along.square().sum() / x.square().sum()))
    return shares
