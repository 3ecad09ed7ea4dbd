"""What goes in: labelled sequences of frames, or labelled vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from natgrad.data.codec import LARGEST_MAGNITUDE

SoftLabel = Sequence[tuple[int, float]]

LARGEST_SIDE_MAGNITUDE = 60000.0  # side vectors are stored in float16, which ends at 65504
PROBABILITY_SLACK = 1e-3  # by how much a frame's probabilities may sum to more than one
VECTORS_PER_SEGMENT = 10_000


@dataclass(frozen=True, eq=False)
class Segment:
    """An utterance, or another sequence of frames of which each is an example with its neighbours.

    Arrays are anything that `numpy.asarray` takes: NumPy arrays, CPU tensors, lists.

    Args:
        key: names the segment in errors, and in the blocks.
        features: (T, D), finite.
        labels: (T,) classes; or None, and then there are
        soft_labels: per frame the (class, probability) pairs of its likely classes.
        weights: (T,) how much each example counts; None means 1.
        side: (S,) a vector that every example of the segment gets beside its frames (an i-vector).
        independent: each row is an example of its own that has no neighbours; see
            `segments_of_vectors`.
    """

    key: str
    features: Any
    labels: Any = None
    soft_labels: Sequence[SoftLabel] | None = None
    weights: Any = None
    side: Any = None
    independent: bool = False


@dataclass(frozen=True, eq=False)
class CheckedSegment:
    """A segment as arrays that are known to fit one another.

    Labels are in rows that follow one another: frame t has the next num_labels[t] of the
    (classes, probabilities), the most probable first.
    """

    key: str
    features: NDArray[np.float32]
    num_labels: NDArray[np.int32]
    classes: NDArray[np.int32]
    probabilities: NDArray[np.float32]
    weights: NDArray[np.float32]
    side: NDArray[np.float32]
    independent: bool


def segments_of_vectors(
    features: Any, labels: Any, *, weights: Any = None, key: str = "vectors"
) -> Iterator[Segment]:
    """Labelled vectors as segments, of which each row is an example of its own.

    Rows are scattered over the blocks, and held out for validation, one by one.

    >>> segments = segments_of_vectors(np.zeros((25_000, 3)), np.zeros(25_000, dtype=int))
    >>> [(segment.key, len(segment.features)) for segment in segments]
    [('vectors[0:10000]', 10000), ('vectors[10000:20000]', 10000), ('vectors[20000:25000]', 5000)]
    """
    num_vectors = len(features)
    if len(labels) != num_vectors or (weights is not None and len(weights) != num_vectors):
        raise ValueError(
            f"{key}: there are {num_vectors} vectors, {len(labels)} labels and "
            f"{'no' if weights is None else len(weights)} weights; expected one of each per vector."
        )
    for begin in range(0, num_vectors, VECTORS_PER_SEGMENT):
        rows = slice(begin, min(begin + VECTORS_PER_SEGMENT, num_vectors))
        yield Segment(
            f"{key}[{rows.start}:{rows.stop}]",
            features[rows],
            labels[rows],
            weights=None if weights is None else weights[rows],
            independent=True,
        )


def check(segment: Segment, num_classes: int) -> CheckedSegment:
    """The segment's arrays, or a ValueError that names the segment and what is wrong."""
    features = _finite(segment, "features", segment.features, LARGEST_MAGNITUDE)
    if features.ndim != 2 or 0 in features.shape:
        raise _error(
            segment,
            f"its features have shape {features.shape}; expected (frames, dimensions), both at "
            "least 1. Leave out segments without frames.",
        )
    num_frames = len(features)
    if (segment.labels is None) == (segment.soft_labels is None):
        raise _error(segment, "give it either labels or soft_labels (and not both).")
    if segment.soft_labels is not None:
        num_labels, classes, probabilities = _soft_labels(segment, segment.soft_labels)
    else:
        classes = _hard_labels(segment)
        num_labels, probabilities = np.ones_like(classes), np.ones(len(classes), dtype=np.float32)
    weights = np.ones(num_frames, dtype=np.float32)
    if segment.weights is not None:
        weights = _finite(segment, "weights", segment.weights, LARGEST_MAGNITUDE)
    for name, column in (("labels", num_labels), ("weights", weights)):
        if column.shape != (num_frames,):
            raise _error(
                segment, f"it has {num_frames} frames, but {name} of shape {column.shape}."
            )
    if weights.min() < 0:
        raise _error(segment, f"its weights go down to {weights.min()}; expected none below 0.")
    if classes.min() < 0 or classes.max() >= num_classes:
        raise _error(
            segment,
            f"its labels go from {classes.min()} to {classes.max()}; expected 0 to "
            f"{num_classes - 1}, as num_classes is {num_classes}.",
        )
    side = np.zeros(0, dtype=np.float32)
    if segment.side is not None:
        side = _finite(segment, "side vector", segment.side, LARGEST_SIDE_MAGNITUDE)
        if side.ndim != 1:
            raise _error(segment, f"its side vector has shape {side.shape}; expected one axis.")
    return CheckedSegment(
        segment.key, features, num_labels, classes, probabilities, weights, side,
        segment.independent,
    )  # fmt: skip


def _error(segment: Segment, message: str) -> ValueError:
    return ValueError(f"Segment {segment.key!r}: {message}")


def _finite(segment: Segment, name: str, values: Any, limit: float) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        array = np.asarray(values, dtype=np.float32)
    if array.size == 0 or max(array.max(), -array.min()) <= limit:  # false if one is a NaN
        return array
    place = tuple(int(i) for i in np.argwhere(~(np.abs(array) <= limit))[0])
    raise _error(
        segment,
        f"its {name} have {array[place]} at {list(place)}; expected finite numbers of magnitude "
        f"up to {limit:g}.",
    )


def _hard_labels(segment: Segment) -> NDArray[np.int32]:
    labels = np.asarray(segment.labels)
    if not np.issubdtype(labels.dtype, np.integer):
        raise _error(segment, f"its labels are {labels.dtype}; expected integers.")
    if labels.size and max(labels.max(), -labels.min()) > np.iinfo(np.int32).max:
        raise _error(segment, f"it has a label of {labels.max()}, which is no class.")
    return labels.astype(np.int32)


def _soft_labels(
    segment: Segment, soft_labels: Sequence[SoftLabel]
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Per frame the number of labels; and of all frames, classes and probabilities."""
    for frame, pairs in enumerate(soft_labels):
        total = sum(probability for _, probability in pairs)
        smallest = min((probability for _, probability in pairs), default=0.0)
        if not (smallest >= 0 and 0 < total <= 1 + PROBABILITY_SLACK):
            raise _error(
                segment,
                f"the soft label of frame {frame} is {list(pairs)}; expected (class, probability) "
                "pairs with probabilities that are not negative and sum to at most 1, but not 0.",
            )
    ordered = [sorted(pairs, key=lambda pair: -pair[1]) for pairs in soft_labels]
    flat = [pair for pairs in ordered for pair in pairs]
    num_labels = np.array([len(pairs) for pairs in ordered], dtype=np.int32)
    classes = np.array([label for label, _ in flat], dtype=np.int32)
    probabilities = np.array([probability for _, probability in flat], dtype=np.float32)
    return num_labels, classes, probabilities
