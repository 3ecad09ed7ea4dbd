from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from natgrad.data import Block, Segment, build, segments_of_vectors

FEATURES = np.zeros((3, 2))
LABELS = [0, 1, 2]


def one_wrong(value: float) -> Any:
    features = FEATURES.copy()
    features[1, 0] = value
    return features


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"features": one_wrong(math.nan)}, r"nan at \[1, 0\]"),
        ({"features": one_wrong(math.inf)}, r"inf at \[1, 0\]"),
        ({"features": one_wrong(-math.inf)}, r"-inf at \[1, 0\]"),
        ({"features": one_wrong(1e300)}, r"inf at \[1, 0\].*up to 1e\+37"),
        ({"features": one_wrong(-2e37)}, r"at \[1, 0\].*up to 1e\+37"),
        ({"features": np.zeros(3)}, r"shape \(3,\)"),
        ({"features": np.zeros((0, 2)), "labels": []}, "Leave out segments without frames"),
        ({"features": np.zeros((3, 0))}, r"shape \(3, 0\)"),
        ({"labels": [0, 1]}, r"3 frames, but labels of shape \(2,\)"),
        ({"labels": [0, 1, 4]}, "from 0 to 4; expected 0 to 3, as num_classes is 4"),
        ({"labels": [0, -1, 1]}, "from -1 to 1"),
        ({"labels": [0, 2**40, 1]}, "1099511627776"),
        ({"labels": [0.0, 1.0, 2.0]}, "labels are float64; expected integers"),
        ({"labels": None}, "either labels or soft_labels"),
        ({"soft_labels": [[(0, 1.0)]] * 3}, "either labels or soft_labels"),
        ({"labels": None, "soft_labels": [[(0, 1.0)], [], [(0, 1.0)]]}, r"frame 1 is \[\]"),
        ({"labels": None, "soft_labels": [[(0, 0.6), (1, 0.6)]] * 3}, "frame 0 .*at most 1"),
        ({"labels": None, "soft_labels": [[(0, 1.2), (1, -0.2)]] * 3}, "not negative"),
        ({"labels": None, "soft_labels": [[(0, math.nan)]] * 3}, "frame 0"),
        ({"labels": None, "soft_labels": [[(4, 1.0)]] * 3}, "expected 0 to 3"),
        ({"labels": None, "soft_labels": [[(1, 1.0)]] * 2}, "3 frames, but labels"),
        ({"weights": [1.0, 1.0]}, r"3 frames, but weights of shape \(2,\)"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights go down to -1.0"),
        ({"weights": [1.0, math.nan, 1.0]}, r"weights have nan at \[1\]"),
        ({"side": [1e5]}, "side vector have 100000.0"),
        ({"side": [[1.0]]}, r"side vector has shape \(1, 1\)"),
    ],
)
def test_wrong_segment_is_refused_by_key(
    tmp_path: Path, wrong: dict[str, Any], problem: str
) -> None:
    segment = Segment(**({"key": "utterance-7", "features": FEATURES, "labels": LABELS} | wrong))
    with pytest.raises(ValueError, match=problem) as caught:
        build(tmp_path, [lambda: [segment]], num_classes=4)
    assert "Segment 'utterance-7'" in str(caught.value)
    assert any("source 0" in note for note in caught.value.__notes__)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("are_in_one_source", [True, False])
@pytest.mark.parametrize("other", [{"features": np.zeros((3, 5))}, {"side": [1.0]}])
def test_segments_of_other_dimensions_are_refused(
    tmp_path: Path, other: dict[str, Any], are_in_one_source: bool
) -> None:
    fields: dict[str, Any] = {"features": FEATURES, "labels": LABELS}
    first, second = Segment("first", **fields), Segment("second", **(fields | other))
    groups = [[first, second]] if are_in_one_source else [[first], [second]]
    sources = [lambda group=group: group for group in groups]
    with pytest.raises(ValueError, match=r"'second'.*expected 2 and 0, as in segment 'first'"):
        build(tmp_path, sources, num_classes=4)


def test_tensors_and_lists_are_welcome(tmp_path: Path) -> None:
    tensors = Segment("tensors", torch.ones(3, 2), torch.tensor(LABELS), weights=torch.ones(3))
    lists = Segment("lists", [[2.0, 2.0]], [3])
    examples = build(tmp_path, [lambda: [tensors, lists]], num_classes=4)
    batch = next(Block.read(examples.block_paths[0]).minibatches(9, seed=0))
    assert batch.features[batch.labels.argsort()].tolist() == [[1.0, 1.0]] * 3 + [[2.0, 2.0]]


def test_vectors_without_a_label_each_are_refused() -> None:
    with pytest.raises(ValueError, match="3 vectors, 2 labels and no weights"):
        next(segments_of_vectors(FEATURES, [0, 1]))
    with pytest.raises(ValueError, match="3 vectors, 3 labels and 1 weights"):
        next(segments_of_vectors(FEATURES, LABELS, weights=[1.0]))


def test_weights_of_vectors_are_kept(tmp_path: Path) -> None:
    vectors = np.repeat(np.arange(5.0)[:, None], 2, axis=1)
    segments = list(segments_of_vectors(vectors, np.arange(5), weights=np.arange(5) / 4))
    examples = build(tmp_path, [lambda: segments], num_classes=5)
    assert examples.class_counts.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    batch = next(Block.read(examples.block_paths[0]).minibatches(5, seed=0))
    assert batch.weights is not None
    assert torch.equal(batch.weights, batch.labels / 4)
