from __future__ import annotations

import pickle
from dataclasses import asdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from natgrad.data import Block, Examples
from natgrad.data import build as build_examples
from natgrad.nn import Network
from natgrad.nn.network import build as build_network
from natgrad.recipes import dnn
from natgrad.recipes.dnn import AlignedSource, NetworkScorer, estimate_priors
from natgrad.run.model_file import read_model, write_model
from natgrad.speech.corpus import Item, Share
from natgrad.speech.features.cmvn import Cmvn
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.store import write_features

LEFT, RIGHT, DIM, NUM_PDFS = 2, 1, 3, 5
PDF_OF_STATE = np.array([0, 1, 2, 3, 4, 0, 1], dtype=np.int32)
TRANSFORMS = {"a": np.eye(DIM, DIM + 1) * 0.5 + 0.1}


@pytest.fixture
def source(tmp_path: Path) -> AlignedSource:
    random = np.random.default_rng(0)
    keys = ["a-1", "a-2", "b-1", "b-2"]
    cepstra = {key: random.normal(size=(30, DIM)).astype(np.float32) for key in keys}
    write_features(tmp_path / "features", cepstra.items())
    items = tuple(Item(key, key[0], 30, ("WORD",)) for key in keys)
    cmvn = {name: Cmvn(np.ones(DIM, np.float32), np.ones(DIM, np.float32)) for name in "ab"}
    aligned = {key: random.integers(0, 7, 30).astype(np.int32) for key in keys if key != "b-1"}
    share = Share(tmp_path / "features", items, cmvn)
    return AlignedSource(share, aligned, FrontEnd(), TRANSFORMS, PDF_OF_STATE)


@pytest.fixture
def examples(source: AlignedSource, tmp_path: Path) -> Examples:
    return build_examples(
        tmp_path / "examples",
        [source],
        num_classes=NUM_PDFS,
        left_context=LEFT,
        right_context=RIGHT,
        train_subset_samples=60,
    )


def write_network(path: Path, seed: int) -> Network:
    generator = torch.Generator().manual_seed(seed)
    network = build_network(
        DIM * (LEFT + 1 + RIGHT),
        NUM_PDFS,
        [(12, 4)],
        class_counts=torch.arange(1.0, NUM_PDFS + 1),
        generator=generator,
    )
    with torch.no_grad():
        network.output.weight.normal_(generator=generator)
        network.output.bias.normal_(generator=generator)
    write_model(path, network.state_dict(), {"network": asdict(network.config)})
    return network


def write_priors(path: Path, priors: list[float]) -> None:
    write_model(path, {"priors": torch.tensor(priors, dtype=torch.float64)}, {"kind": "priors"})


def test_examples_are_aligned_utterances_with_the_pdfs_of_their_states(
    source: AlignedSource,
) -> None:
    segments = list(source())
    assert [segment.key for segment in segments] == ["a-1", "a-2", "b-2"]
    features = {item.key: x for item, x in source.share.read(FrontEnd(), TRANSFORMS)}
    for segment in segments:
        np.testing.assert_array_equal(segment.features, features[segment.key])
        expected = PDF_OF_STATE[source.alignments[segment.key]]
        np.testing.assert_array_equal(np.asarray(segment.labels), expected)


def literal_context(features: NDArray[np.float32], t: int) -> NDArray[np.float32]:
    """The frames from t - LEFT to t + RIGHT, in this order; edges repeat."""
    last = len(features) - 1
    frames = [features[min(max(t + k, 0), last)] for k in range(-LEFT, RIGHT + 1)]
    return np.concatenate(frames)


def test_scorer_sees_frames_in_the_order_of_the_examples(
    source: AlignedSource, examples: Examples, tmp_path: Path
) -> None:
    features = {segment.key: np.asarray(segment.features) for segment in source()}
    network = write_network(tmp_path / "model", seed=1)
    write_priors(tmp_path / "priors", [0.2] * 5)
    scorer = NetworkScorer(tmp_path / "model", tmp_path / "priors", LEFT, RIGHT)
    seen = 0
    for path in examples.block_paths:
        for piece in Block.read(path).pieces():
            stored = piece.examples.features.numpy()
            expected = [
                literal_context(features[piece.key], piece.start + k) for k in range(len(stored))
            ]
            # Examples have a byte for a value; neighbours differ by far more than that costs.
            np.testing.assert_allclose(stored, expected, atol=0.05)
            with torch.no_grad():
                posteriors = network.log_posteriors(torch.from_numpy(np.stack(expected)))
            scores = scorer(features[piece.key])[piece.start : piece.start + len(stored)]
            np.testing.assert_allclose(scores, posteriors.numpy() - np.log(0.2), atol=1e-4)
            seen += len(stored)
    assert seen == examples.num_samples == 90


def literal_log_posteriors(network: Network, x: NDArray[np.float32]) -> NDArray[np.float64]:
    outputs = network(torch.from_numpy(x)[None])[0].detach().double().numpy()
    return np.asarray(outputs - np.log(np.exp(outputs - outputs.max()).sum()) - outputs.max())


def test_scores_are_log_posteriors_less_log_priors(tmp_path: Path) -> None:
    network = write_network(tmp_path / "model", seed=2)
    priors = [0.5, 0.25, 0.2, 0.05, 0.0]
    write_priors(tmp_path / "priors", priors)
    features = np.random.default_rng(0).normal(size=(2100, DIM)).astype(np.float32)
    scores = NetworkScorer(tmp_path / "model", tmp_path / "priors", LEFT, RIGHT)(features)
    assert scores.dtype == np.float32
    assert scores.shape == (2100, NUM_PDFS)
    for t in (0, 1, 2, 1000, 2047, 2048, 2098, 2099):
        expected = literal_log_posteriors(network, literal_context(features, t))
        for pdf, prior in enumerate(priors):
            # A class that never occurs is not favoured without end.
            log_prior = np.log(max(prior, 1e-8))
            assert scores[t, pdf] == pytest.approx(expected[pdf] - log_prior, abs=1e-4)


def test_model_or_priors_that_were_written_anew_are_read_anew(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(9, DIM)).astype(np.float32)
    scorer = NetworkScorer(tmp_path / "model", tmp_path / "priors", LEFT, RIGHT)
    write_network(tmp_path / "model", seed=1)
    write_priors(tmp_path / "priors", [0.2] * 5)
    first = scorer(features)
    np.testing.assert_array_equal(scorer(features), first)
    write_priors(tmp_path / "priors", [0.4] * 5)
    second = scorer(features)
    np.testing.assert_allclose(second, first - np.log(2), atol=1e-5)
    write_network(tmp_path / "model", seed=2)
    assert not np.allclose(scorer(features), second, atol=0.1)


@pytest.mark.parametrize("samples_per_class", [1, 7, 12, 1000])
def test_priors_are_the_mean_posteriors_of_enough_training_blocks(
    source: AlignedSource,
    tmp_path: Path,
    samples_per_class: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = build_examples(
        tmp_path / "blocks",
        [source],
        num_classes=NUM_PDFS,
        left_context=LEFT,
        right_context=RIGHT,
        samples_per_job=20,
        piece_frames=5,
    )
    assert examples.num_blocks > 3
    monkeypatch.setattr(dnn, "SAMPLES_PER_PRIOR", samples_per_class)
    network = write_network(tmp_path / "model", seed=3)
    facts = estimate_priors(tmp_path / "model", examples, tmp_path / "priors")
    model = read_model(tmp_path / "priors")
    priors = model.tensors["priors"].numpy()
    count = model.description["num_samples"]
    wanted = min(samples_per_class * NUM_PDFS, examples.num_samples)
    assert 0.8 * wanted <= count <= wanted + 40  # whole blocks, which differ a little in size
    posteriors = [
        sum(
            np.exp(literal_log_posteriors(network, x))
            for piece in Block.read(path).pieces()
            for x in piece.examples.features.numpy()
        )
        for path in examples.block_paths
    ]
    sizes = [Block.read(path).num_samples for path in examples.block_paths]
    choices = [
        chosen
        for number in range(1, len(sizes) + 1)
        for chosen in combinations(range(len(sizes)), number)
        if sum(sizes[place] for place in chosen) == count
    ]
    assert any(
        np.allclose(priors, sum(posteriors[place] for place in chosen) / count, rtol=1e-5)
        for chosen in choices
    )
    assert priors.dtype == np.float64
    assert priors.sum() == pytest.approx(1.0, abs=1e-12)
    assert facts == {"smallest": priors.min(), "largest": priors.max(), "samples": count}


def test_scorer_is_small_enough_to_be_sent(tmp_path: Path) -> None:
    write_network(tmp_path / "model", seed=1)
    scorer = NetworkScorer(tmp_path / "model", tmp_path / "priors", LEFT, RIGHT)
    assert len(pickle.dumps(scorer)) < 1000
    assert (tmp_path / "model").stat().st_size > 1000
