from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.data import Block, Examples, Segment, build, segments_of_vectors
from natgrad.data.block_columns import read_columns
from natgrad.data.codec import error_bound
from tests.data.corpus import Corpus, literal_example

lengths_lists = st.lists(st.integers(1, 40), min_size=1, max_size=12)


def labels_in(path: Path) -> list[int]:
    return [
        label for piece in Block.read(path).pieces() for label in piece.examples.labels.tolist()
    ]


def training_labels(examples: Examples) -> list[int]:
    return [label for path in examples.block_paths for label in labels_in(path)]


def assert_examples_are_literal(path: Path, corpus: Corpus, left: int, right: int) -> None:
    """Every example of a block is what a literal gather from the original utterance gives."""
    _, columns, _ = read_columns(path)
    pieces = list(Block.read(path).pieces())
    for piece, group in zip(pieces, columns["group"], strict=True):
        for place, label in enumerate(piece.examples.labels.tolist()):
            number, frame = corpus.find(label)
            assert (piece.key, piece.start + place) == (f"{corpus.name}-{number}", frame)
            expected = literal_example(corpus.features(number), frame, left, right)
            found = piece.examples.features[place].double().numpy()
            bound = error_bound(expected.astype(np.float32), columns["knots"][group])
            assert (np.abs(found[: expected.size] - expected.ravel()) <= bound.ravel()).all()
            assert np.array_equal(found[expected.size :], corpus.side(number))


@settings(max_examples=30, deadline=None)
@given(
    lengths=lengths_lists,
    feature_dim=st.integers(1, 3),
    side_dim=st.sampled_from([0, 2]),
    left=st.integers(0, 6),
    right=st.integers(0, 6),
    piece_frames=st.one_of(st.none(), st.integers(1, 12)),
    samples_per_job=st.integers(20, 60),
    seed=st.integers(0, 5),
)
def test_every_frame_is_an_example_once_with_its_literal_context(
    lengths: list[int],
    feature_dim: int,
    side_dim: int,
    left: int,
    right: int,
    piece_frames: int | None,
    samples_per_job: int,
    seed: int,
) -> None:
    corpus = Corpus(lengths, feature_dim, side_dim)
    with tempfile.TemporaryDirectory() as directory:
        examples = build(
            directory,
            [corpus],
            num_classes=corpus.num_frames,
            left_context=left,
            right_context=right,
            piece_frames=piece_frames,
            samples_per_job=max(samples_per_job, 2 * max(lengths)),
            seed=seed,
        )
        assert sorted(training_labels(examples)) == list(range(corpus.num_frames))
        assert examples.num_samples == corpus.num_frames
        assert examples.input_dim == (left + 1 + right) * feature_dim + side_dim
        for path in examples.block_paths:
            assert_examples_are_literal(path, corpus, left, right)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=8, max_size=20),
    validation_samples=st.integers(0, 60),
    train_subset_samples=st.integers(0, 60),
    seed=st.integers(0, 5),
)
def test_validation_is_whole_utterances_out_of_training_and_the_subset_is_in_it(
    lengths: list[int], validation_samples: int, train_subset_samples: int, seed: int
) -> None:
    corpus = Corpus([*lengths, 40, 40], feature_dim=1)
    with tempfile.TemporaryDirectory() as directory:
        examples = build(
            directory,
            [corpus],
            num_classes=corpus.num_frames,
            left_context=2,
            right_context=1,
            piece_frames=5,
            validation_samples=validation_samples,
            train_subset_samples=train_subset_samples,
            seed=seed,
        )
        held_out = [] if examples.validation is None else labels_in(examples.validation.path)
        assert (examples.validation is None) == (validation_samples == 0)
        assert (examples.train_subset is None) == (train_subset_samples == 0)
        train = training_labels(examples)
        assert sorted(held_out + train) == list(range(corpus.num_frames))
        held_out_utterances = {corpus.find(label)[0] for label in held_out}
        assert held_out_utterances.isdisjoint(corpus.find(label)[0] for label in train)
        assert 0 <= len(held_out) - validation_samples < max(corpus.lengths)
        if examples.train_subset is not None:
            subset = labels_in(examples.train_subset.path)
            assert set(subset) <= set(train)
            assert len(set(subset)) == len(subset) == examples.train_subset.num_samples
            assert 0 <= len(subset) - min(train_subset_samples, len(train)) < 10
        for entry in (examples.validation, examples.train_subset):
            if entry is not None:
                assert_examples_are_literal(entry.path, corpus, 2, 1)


def three_corpora() -> list[Corpus]:
    lengths = [[30, 1, 7, 12], [50], [3, 3, 25, 18, 40]]
    corpora, first = [], 0
    for number, part in enumerate(lengths):
        corpora.append(Corpus(part, 3, 1, first, f"source-{number}"))
        first += sum(part)
    return corpora


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def build_three(directory: Path, **options: Any) -> Examples:
    defaults = {
        "num_classes": 200, "left_context": 2, "right_context": 2, "piece_frames": 8, "num_jobs": 2,
        "samples_per_job": 40, "validation_samples": 20, "train_subset_samples": 20,
    }  # fmt: skip
    return build(directory, three_corpora(), **(defaults | options))


def test_workers_do_not_change_a_byte_and_the_seed_does(tmp_path: Path) -> None:
    examples = build_three(tmp_path / "one")
    build_three(tmp_path / "three", num_workers=3)
    build_three(tmp_path / "seed", seed=1)
    one, three, seed = (content(tmp_path / name) for name in ("one", "three", "seed"))
    assert set(one) == {f"{i:06d}.block" for i in range(examples.num_blocks)} | {
        "examples.json", "validation.block", "train_subset.block"
    }  # fmt: skip
    assert one == three
    assert all(one[name] != seed[name] for name in one)


def test_number_of_blocks_brings_their_samples_close_to_the_wanted_and_to_one_another(
    tmp_path: Path,
) -> None:
    corpus = Corpus([40] * 100, feature_dim=1)
    examples = build(
        tmp_path, [corpus], num_classes=4000, num_jobs=3, samples_per_job=250, piece_frames=5
    )
    assert examples.num_blocks == 15
    assert examples.samples_per_block == pytest.approx(4000 / 15)
    for block in examples.blocks:
        assert abs(block.num_samples - 4000 / 15) <= 5
        assert Block.read(block.path).num_samples == block.num_samples


def test_corpus_smaller_than_a_block_still_gives_one_to_each_job(tmp_path: Path) -> None:
    examples = build_three(tmp_path, num_jobs=3, samples_per_job=400_000)
    assert examples.num_blocks == 3


def test_utterance_is_spread_over_the_blocks(tmp_path: Path) -> None:
    corpus = Corpus([400], feature_dim=1)
    examples = build(
        tmp_path, [corpus], num_classes=400, samples_per_job=100, piece_frames=5, left_context=1
    )
    first_block = [label // 5 for label in labels_in(examples.block_paths[0])]
    assert len(set(first_block)) >= 15
    assert max(first_block) - min(first_block) > 40


def test_class_counts_are_of_the_training_data_by_weight(tmp_path: Path) -> None:
    def source() -> Iterator[Segment]:
        labels = np.array([0, 0, 3])
        yield Segment("plain", np.zeros((3, 2)), labels)
        yield Segment("weighted", np.zeros((3, 2)), labels, weights=[0.5, 1.0, 2.0])
        soft = [[(1, 0.25), (3, 0.75)], [(0, 1.0)]]
        yield Segment("soft", np.zeros((2, 2)), soft_labels=soft, weights=[2.0, 1.0])

    examples = build(tmp_path, [source], num_classes=5)
    assert examples.class_counts.dtype == np.float64
    assert examples.class_counts.tolist() == [2 + 1.5 + 1, 0.5, 0, 1 + 2 + 1.5, 0]


def test_more_blocks_than_pieces_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    corpus = Corpus([5, 5, 5], feature_dim=1)
    with pytest.raises(ValueError, match=r"15 training samples in 3 pieces.*fewer num_jobs"):
        build(tmp_path / "jobs", [corpus], num_classes=15, num_jobs=4)
    with pytest.raises(ValueError, match="did validation_samples leave any"):
        build(tmp_path / "all", [corpus], num_classes=15, validation_samples=15)
    assert list(tmp_path.glob("*/*")) == []


def test_vectors_are_scattered_and_held_out_one_by_one(tmp_path: Path) -> None:
    features = np.arange(25_000.0)[:, None] * [1.0, -1.0]
    source = partial(segments_of_vectors, features, np.arange(25_000))
    examples = build(
        tmp_path, [source], num_classes=25_000, num_jobs=2, samples_per_job=6000,
        validation_samples=1000, train_subset_samples=500,
    )  # fmt: skip
    assert examples.validation is not None
    assert examples.train_subset is not None
    assert examples.validation.num_samples == 1000
    assert examples.train_subset.num_samples == 500
    assert [block.num_samples for block in examples.blocks] == pytest.approx([6000] * 4, abs=5)
    seen = np.concatenate([training_labels(examples), labels_in(examples.validation.path)])
    assert np.array_equal(np.sort(seen), np.arange(25_000))
    for path in (*examples.block_paths, examples.validation.path, examples.train_subset.path):
        batch = next(Block.read(path).minibatches(400, seed=0))
        assert np.ptp(batch.labels.numpy()) > 20_000
        largest_step = 25_000 / 223 / 2 * 1.1
        assert (batch.features[:, 0] - batch.labels).abs().max() < largest_step
        assert (batch.features[:, 1] + batch.labels).abs().max() < largest_step


@pytest.mark.parametrize("context", [(1, 0), (0, 1)])
def test_vectors_have_no_context(tmp_path: Path, context: tuple[int, int]) -> None:
    source = partial(segments_of_vectors, np.zeros((3, 2)), np.zeros(3, dtype=int))
    left, right = context
    with pytest.raises(ValueError, match=r"'vectors\[0:3\]'.*independent vectors.*context of 0"):
        build(tmp_path, [source], num_classes=2, left_context=left, right_context=right)


def test_build_holds_a_few_blocks_in_memory_not_the_corpus(tmp_path: Path) -> None:
    feature_dim, samples_per_job, num_blocks = 50, 40_000, 10
    block_bytes = samples_per_job * feature_dim * 4

    def source() -> Iterator[Segment]:
        features = np.random.default_rng(0).random((500, feature_dim), dtype=np.float32)
        for number in range(num_blocks * samples_per_job // 500):
            yield Segment(str(number), features + number, np.zeros(500, dtype=int))

    tracemalloc.start()
    try:
        examples = build(tmp_path, [source], num_classes=1, samples_per_job=samples_per_job)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert examples.num_blocks == num_blocks
    assert peak < 4 * block_bytes < num_blocks * block_bytes / 2


def test_features_cost_less_than_the_target(tmp_path: Path) -> None:
    """1.15 bytes per value in all, at 40 dimensions, a context of 4 frames, utterances of 300."""

    def source() -> Iterator[Segment]:
        random = np.random.default_rng(0)
        for number in range(100):
            length = int(random.integers(150, 450))
            labels = np.repeat(random.integers(0, 12000, length), random.integers(1, 6, length))
            features = random.standard_normal((length, 40))
            yield Segment(f"speaker-utterance-{number:05d}", features, labels[:length])

    examples = build(
        tmp_path, [source], num_classes=12000, left_context=4, right_context=4,
        samples_per_job=10_000,
    )  # fmt: skip
    assert 1.0 < examples.num_bytes / (examples.num_samples * 40) <= 1.15


def test_validation_sources_are_all_validation_and_nothing_else_is(tmp_path: Path) -> None:
    ours, theirs = Corpus([30, 7, 12], 3), Corpus([9, 1, 20], 3, first_label=49, name="other")
    options = {"num_classes": 79, "left_context": 2, "right_context": 1, "samples_per_job": 20}
    examples = build(tmp_path / "a", [ours], validation_sources=[theirs], **options)
    assert examples.validation is not None
    assert sorted(labels_in(examples.validation.path)) == list(range(49, 79))
    trained = [label for path in examples.block_paths for label in labels_in(path)]
    assert sorted(trained) == list(range(49))
    with pytest.raises(ValueError, match="either validation_samples or validation_sources"):
        build(tmp_path / "b", [ours], validation_sources=[theirs], validation_samples=1, **options)
    with pytest.raises(ValueError, match="'other-0': it has 4 features"):
        build(tmp_path / "c", [ours], validation_sources=[Corpus([9], 4, name="other")], **options)
