"""The front end: its steps in their order, frames as they come, and its place in model files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.run.model_file import read_model, write_model
from natgrad.speech.features.cmvn import CmvnStatistics, SlidingCmvn, sliding_cmvn
from natgrad.speech.features.deltas import add_deltas, splice
from natgrad.speech.features.frame_stream import StreamChain
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.mfcc import FeatureError

Floats = NDArray[np.float32]


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def in_pieces(stream: StreamChain, cepstra: Floats, lengths: list[int]) -> Floats:
    result, first = [], 0
    for length in lengths:
        result.append(stream.accept(cepstra[first : first + length]))
        first += length
        assert sum(map(len, result)) == max(0, first - stream.look_ahead_frames)
    return np.concatenate([*result, stream.finish()])


def test_steps_are_in_the_order_stated() -> None:
    cepstra, lda, speaker = normal(20, 4), normal(5, 36), normal(5, 6, seed=1)
    cmvn = CmvnStatistics.of(cepstra[:10]).cmvn(variance=True)
    result = FrontEnd(num_deltas=2, left=1, right=1, transform=lda)(cepstra, cmvn, speaker)
    spliced = splice(add_deltas(cmvn.apply(cepstra)), 1, 1).astype(np.float64)
    expected = (spliced @ lda.T) @ speaker[:, :5].T + speaker[:, 5]
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_nothing_asked_for_is_nothing_done() -> None:
    cepstra = normal(5, 4)
    assert np.array_equal(FrontEnd()(cepstra, None), cepstra)


def test_last_column_of_a_wider_transform_is_an_offset() -> None:
    cepstra, matrix = normal(5, 4), normal(3, 5)
    expected = cepstra.astype(np.float64) @ matrix[:, :4].T + matrix[:, 4]
    np.testing.assert_allclose(FrontEnd(transform=matrix)(cepstra), expected, atol=1e-5)


def test_float64_transforms_give_float32_features() -> None:
    front_end = FrontEnd(transform=np.eye(4))  # type: ignore[arg-type]
    assert front_end(normal(5, 4), None, np.eye(4, 5)).dtype == np.float32  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "front_end",
    [FrontEnd(), FrontEnd(2), FrontEnd(1, 2, 3), FrontEnd(0, 3, 3, normal(6, 28))],
)
def test_output_dimension_is_known_beforehand(front_end: FrontEnd) -> None:
    assert front_end(normal(5, 4)).shape[1] == front_end.output_dim(4)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=8),
    st.integers(0, 2),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
)
def test_frames_in_pieces_give_the_same_bits_and_no_later_than_stated(
    lengths: list[int], num_deltas: int, left: int, right: int, with_cmvn: bool
) -> None:
    cepstra = normal(sum(lengths), 3)
    cmvn = CmvnStatistics.of(normal(20, 3, seed=1)).cmvn(variance=True) if with_cmvn else None
    front_end = FrontEnd(num_deltas, left, right)
    stream = front_end.stream(3, cmvn)
    assert stream.look_ahead_frames == front_end.look_ahead_frames
    result = in_pieces(stream, cepstra, lengths)
    assert result.shape == (len(cepstra), front_end.output_dim(3))
    if len(cepstra):
        assert np.array_equal(result, front_end(cepstra, cmvn))


def test_stream_may_slide_its_normalization_and_transform() -> None:
    cepstra, matrix, speaker = normal(50, 3), normal(5, 27), normal(5, 6, seed=2)
    front_end = FrontEnd(2, 1, 1, matrix)
    stream = front_end.stream(3, SlidingCmvn(3, 10, look_ahead_frames=4), speaker)
    assert stream.look_ahead_frames == 4 + 4 + 1
    result = in_pieces(stream, cepstra, [7, 0, 20, 1, 22])
    expected = front_end(sliding_cmvn(cepstra, 10, 4), None, speaker)
    np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.parametrize("transform", [None, normal(5, 12)])
def test_front_end_survives_a_model_file(tmp_path: Path, transform: Floats | None) -> None:
    front_end = FrontEnd(2, 0, 0, transform)
    arrays = {"other": np.zeros(3), **front_end.to_arrays()}
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    write_model(tmp_path / "model", tensors, {})
    read = {name: t.numpy() for name, t in read_model(tmp_path / "model").tensors.items()}
    cepstra = normal(9, 4)
    assert np.array_equal(FrontEnd.from_arrays(read)(cepstra), front_end(cepstra))


def test_arrays_of_something_else_are_refused() -> None:
    with pytest.raises(FeatureError, match=r"no 'front_end.context' among the arrays \['means'\]"):
        FrontEnd.from_arrays({"means": np.zeros(3)})


def test_transforms_that_do_not_fit_are_refused_by_whose_they_are() -> None:
    with pytest.raises(FeatureError, match=r"model transform is of shape \(5, 9\).* 4 dimensions"):
        FrontEnd(transform=normal(5, 9))(normal(5, 4))
    with pytest.raises(FeatureError, match=r"speaker transform .*; expected 4 columns, or 5 with"):
        FrontEnd()(normal(5, 4), None, normal(4, 7))


def test_no_frames_at_all_are_refused() -> None:
    with pytest.raises(FeatureError, match="there are no frames"):
        FrontEnd(num_deltas=2)(np.empty((0, 13), np.float32))


def test_contexts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(FeatureError, match="left -1 and right 0; expected none negative"):
        FrontEnd(left=-1)
    with pytest.raises(FeatureError, match="expected a matrix"):
        FrontEnd(transform=normal(5))
