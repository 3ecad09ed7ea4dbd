from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from natgrad.data import Block, BlockError, Segment, build
from natgrad.data.block_file import PREAMBLE, VERSION
from tests.data.corpus import Corpus

CORPUS = Corpus([30, 1, 3, 25, 18], feature_dim=3, side_dim=2)


@pytest.fixture(scope="module")
def block_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("examples")
    examples = build(
        directory, [CORPUS], num_classes=77, left_context=2, right_context=3, piece_frames=8
    )
    return examples.block_paths[0]


@pytest.fixture(scope="module")
def labelled_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A block with soft labels and weights: number t has t % 3 + 1 classes and weight t."""

    def source() -> Iterator[Segment]:
        soft = [[(t, 0.25), (t + 1, 0.5), (t + 2, 0.125)][: t % 3 + 1] for t in range(20)]
        yield Segment(
            "soft", np.arange(20.0)[:, None], soft_labels=soft, weights=np.arange(20.0), side=[1.0]
        )

    examples = build(tmp_path_factory.mktemp("labelled"), [source], num_classes=22, piece_frames=4)
    return examples.block_paths[0]


# -- minibatches -----------------------------------------------------------------------------


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(size=st.integers(1, 100), seed=st.integers(0, 2**63))
def test_minibatches_have_each_example_once(block_path: Path, size: int, seed: int) -> None:
    block = Block.read(block_path)
    batches = list(block.minibatches(size, seed))
    assert all(len(batch) == size for batch in batches[:-1])
    assert 1 <= len(batches[-1]) <= size
    labels = torch.cat([batch.labels for batch in batches])
    features = torch.cat([batch.features for batch in batches])
    assert labels.dtype == torch.int64
    assert features.dtype == torch.float32
    assert labels.sort().values.tolist() == list(range(77))
    in_order = [piece.examples for piece in block.pieces()]
    by_label = torch.empty(77, block.input_dim)
    by_label[torch.cat([piece.labels for piece in in_order])] = torch.cat(
        [piece.features for piece in in_order]
    )
    assert torch.equal(features, by_label[labels])


def test_order_is_drawn_from_the_seed(block_path: Path) -> None:
    block = Block.read(block_path)

    def order(seed: int, size: int = 16) -> list[int]:
        return [label for batch in block.minibatches(size, seed) for label in batch.labels.tolist()]

    assert order(1) == order(1) == order(1, size=7)
    assert order(1) != order(2)
    assert order(1) != sorted(order(1))


def test_order_stays_the_same_from_version_to_version(block_path: Path) -> None:
    batch = next(Block.read(block_path).minibatches(8, seed=3))
    assert batch.labels.tolist() == [60, 10, 39, 41, 50, 13, 54, 9]


def test_weights_and_soft_labels_are_absent_where_all_are_one(block_path: Path) -> None:
    batch = next(Block.read(block_path).minibatches(16, seed=0))
    assert batch.weights is None
    assert batch.soft is None
    assert batch.total_weight == 16.0


def test_soft_labels_are_padded_and_the_most_probable_is_the_label(labelled_path: Path) -> None:
    seen = []
    for batch in Block.read(labelled_path).minibatches(6, seed=0):
        assert batch.soft is not None
        assert batch.weights is not None
        classes, probabilities = batch.soft
        assert (classes.dtype, probabilities.dtype) == (torch.int64, torch.float32)
        assert batch.weights.tolist() == pytest.approx(batch.features[:, 0].tolist(), abs=0.1)
        assert batch.total_weight == sum(batch.weights.tolist())
        for row, weight in enumerate(batch.weights.tolist()):
            t = int(weight)
            expected = sorted(
                [(t, 0.25), (t + 1, 0.5), (t + 2, 0.125)][: t % 3 + 1], key=lambda pair: -pair[1]
            )
            padding = [(0, 0.0)] * (classes.shape[1] - len(expected))
            pairs = zip(classes[row].tolist(), probabilities[row].tolist(), strict=True)
            assert list(pairs) == expected + padding
            assert batch.labels[row] == expected[0][0]
            seen.append(t)
    assert sorted(seen) == list(range(20))


def test_documented_objective_of_soft_labels_is_the_literal_one(labelled_path: Path) -> None:
    batch = next(Block.read(labelled_path).minibatches(20, seed=0))
    assert batch.soft is not None
    log_posteriors = torch.randn(20, 22, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    found = log_posteriors.gather(1, batch.soft.classes).mul(batch.soft.probabilities).sum(dim=1)
    for row in range(20):
        pairs = zip(batch.soft.classes[row], batch.soft.probabilities[row], strict=True)
        literal = sum(float(p * log_posteriors[row, c]) for c, p in pairs)
        assert float(found[row]) == pytest.approx(literal, abs=1e-5)


def test_minibatch_of_no_examples_is_refused(block_path: Path) -> None:
    with pytest.raises(ValueError, match="minibatch of 0"):
        next(Block.read(block_path).minibatches(0, seed=0))


# -- damage ----------------------------------------------------------------------------------


def assert_refused(path: Path, data: bytes, problem: str) -> None:
    path.write_bytes(data)
    with pytest.raises(BlockError, match=problem) as caught:
        Block.read(path)
    assert str(path) in str(caught.value)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_truncated_block_is_refused_by_name(
    block_path: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = block_path.read_bytes()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert_refused(tmp_path / "cut.block", whole[:length], "cut off")


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_block_with_flipped_bits_is_refused_by_name(
    block_path: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = bytearray(block_path.read_bytes())
    bits = st.integers(0, 8 * len(whole) - 1)
    for bit in data.draw(st.sets(bits, min_size=1, max_size=3)):
        whole[bit // 8] ^= 1 << bit % 8
    assert_refused(tmp_path / "flipped.block", bytes(whole), "block|checksum|altered")


def test_every_flipped_bit_of_the_preamble_and_header_is_found(
    block_path: Path, tmp_path: Path
) -> None:
    whole = block_path.read_bytes()
    for bit in range(8 * (PREAMBLE.size + 40)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert_refused(tmp_path / "flipped.block", bytes(flipped), "block|checksum|altered")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "cut off after 0 bytes"),
        (b"natgradB", "cut off after 8 bytes"),
        (b"PK\3\4 a zip file, of some length, with this and that in it", "not a block of examples"),
        (b"short", "not a block of examples"),
    ],
)
def test_foreign_file_is_refused(tmp_path: Path, data: bytes, problem: str) -> None:
    assert_refused(tmp_path / "foreign.block", data, problem)


def test_block_with_something_appended_is_refused(block_path: Path, tmp_path: Path) -> None:
    assert_refused(tmp_path / "long.block", block_path.read_bytes() + b"x", "should have")


def test_block_of_another_version_is_refused(block_path: Path, tmp_path: Path) -> None:
    whole = bytearray(block_path.read_bytes())
    struct.pack_into("<I", whole, 8, VERSION + 1)
    assert_refused(tmp_path / "new.block", bytes(whole), f"version {VERSION + 1}.*{VERSION}")


def test_missing_block_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Block.read(tmp_path / "nowhere.block")


def test_block_error_goes_to_another_process_and_back() -> None:
    error = BlockError(Path("a.block"), "it is cut off.")
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, BlockError)
    assert str(again) == str(error) == "a.block: it is cut off."
