from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.parallel.engines import open_engine
from natgrad.speech.corpus import Corpus, Share
from natgrad.speech.features.store import open_features, write_features
from natgrad.speech.gmm.questions import derive_questions
from natgrad.speech.gmm.training import GmmTrainer, Iteration, Schedule, convert_alignment
from natgrad.speech.gmm.tree import build_tree
from natgrad.speech.hmm import HmmStates, MonophoneTree
from natgrad.speech.trained import Trained
from tests.speech.contexts import PHONES as FEW_PHONES
from tests.speech.contexts import TOPOLOGY as FEW_STATES
from tests.speech.contexts import draw_frames
from tests.speech.toy_language import (
    LEXICON,
    PHONES,
    TOPOLOGY,
    Language,
    corpus_of,
    files_of,
    with_more,
)
from tests.speech.toy_training import DELTAS, NUM_LEAVES, SHORT, train_all
from tests.speech.utterances import draw_alignment

BAD = ("empty", "unknown", "short", "untold")


@pytest.fixture(scope="module")
def with_bad(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Utterances of which some cannot be aligned: those whose keys end in BAD."""
    path = tmp_path_factory.mktemp("corpus")
    good = Language.draw(0).record(path / "good", 4, per_speaker=8, seed=1, strength=0.2)
    item = good.items[0]
    cepstra = open_features(good.features)[item.key]
    bad = {
        "empty": (replace(item, words=()), cepstra),
        "unknown": (replace(item, words=("TAB", "XYZZY")), cepstra),
        "short": (replace(item, num_frames=4), cepstra[:4]),
        "untold": (replace(item, speaker="stranger", words=None), cepstra),
    }
    more = [
        (replace(one, key=f"{one.speaker}-{name}"), features)
        for name, (one, features) in bad.items()
    ]
    return with_more(good, path / "all", more)


@pytest.fixture(scope="module")
def corpus(with_bad: Corpus) -> Corpus:
    return with_bad.subset([item.key for item in with_bad.items if not item.key.endswith(BAD)])


@pytest.fixture(scope="module")
def inline() -> Iterator[Executor]:
    with open_engine("inline", 1) as engine:
        yield engine


@pytest.fixture(scope="module")
def trained(corpus: Corpus, inline: Executor) -> list[Trained]:
    return train_all(corpus.shares(3), inline)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_models_are_the_same_bits_on_any_number_of_workers(
    corpus: Corpus, trained: list[Trained], num_workers: int, tmp_path: Path
) -> None:
    with open_engine("local", num_workers) as engine:
        on_workers = train_all(corpus.shares(3), engine)
    for number, (one, other) in enumerate(zip(trained, on_workers, strict=True)):
        expected = files_of(one, tmp_path / f"inline{number}")
        assert files_of(other, tmp_path / f"local{number}") == expected


def test_models_survive_their_files(trained: list[Trained], tmp_path: Path) -> None:
    for number, each in enumerate(trained):
        expected = files_of(each, tmp_path / f"{number}")
        assert files_of(Trained.read(tmp_path / f"{number}"), tmp_path / "again") == expected


def test_likelihood_never_falls_while_the_number_of_gaussians_is_the_same(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    for start in trained:
        reached: list[Iteration] = []
        trainer = GmmTrainer(corpus.shares(3), LEXICON, inline, reached.append)
        num_gaussians = start.model.gmms.num_gaussians + 10
        trainer.train(start, Schedule(6, num_gaussians, last_growth=2, align_at=()))
        sizes = [iteration.num_gaussians for iteration in reached]
        values = [iteration.log_likelihood for iteration in reached]
        assert sizes == [num_gaussians - 5] + [num_gaussians] * 5
        # An iteration's likelihood is that of the model before: the last split was in the second.
        assert all(after > before for before, after in pairwise(values[2:]))


def test_mllt_makes_the_frames_more_likely(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    lda = trained[2]
    values = []
    for mllt_at in ((), (1,)):
        reached: list[Iteration] = []
        trainer = GmmTrainer(corpus.shares(3), LEXICON, inline, reached.append)
        found = trainer.train(lda, Schedule(1, 0, last_growth=1, align_at=(), mllt_at=mllt_at))
        old, new = lda.model.front_end.transform, found.model.front_end.transform
        assert old is not None
        assert new is not None
        rotation = new.astype(np.float64) @ np.linalg.pinv(old.astype(np.float64))
        # Densities of features that were multiplied by a matrix change by its determinant.
        values.append(reached[0].log_likelihood + np.linalg.slogdet(rotation).logabsdet)
    assert values[1] > values[0] + 0.001


def test_context_model_begins_with_the_adapted_frames_of_its_leaves(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    sat = trained[3]
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    nothing = Schedule(0, 0, last_growth=0, align_at=())
    found = trainer.train_context(sat, sat.model.front_end, NUM_LEAVES, nothing)
    states, frames = found.model.states, []
    for share in corpus.shares(1):
        for item, features in share.read(sat.model.front_end, sat.transforms):
            frames.append((states.pdf[found.alignments[item.key]], features))
    pdfs, features = (np.concatenate(each) for each in zip(*frames, strict=True))
    for pdf in np.unique(pdfs).tolist():
        mean = features[pdfs == pdf].mean(axis=0, dtype=np.float64)
        np.testing.assert_allclose(found.model.gmms.means[pdf], mean, atol=1e-4)


def test_self_loops_are_reestimated_from_the_alignments(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    for each in trained:
        states = each.model.states
        counts = states.count(each.alignments.values())
        np.testing.assert_allclose(states.self_loop, states.reestimated(counts).self_loop)


def test_gaussians_grow_to_the_number_asked_for(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    reached: list[Iteration] = []
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline, reached.append)
    start = trained[0]
    first = start.model.gmms.num_gaussians
    found = trainer.train(start, Schedule(4, first + 7, last_growth=3, align_at=()))
    assert [each.num_gaussians - first for each in reached] == [2, 4, 7, 7]
    assert found.model.gmms.num_gaussians == first + 7
    assert [(each.number, each.num_iterations) for each in reached] == [(n, 4) for n in range(1, 5)]


def test_utterances_that_cannot_be_aligned_change_no_bit_of_the_models(
    with_bad: Corpus, corpus: Corpus, trained: list[Trained], inline: Executor, tmp_path: Path
) -> None:
    # The same piles of speakers, and one of a speaker of whom nothing can be aligned.
    piles = [set(share.by_speaker()) for share in corpus.shares(3)]
    piles.insert(1, {"stranger"})
    shares = [
        Share(
            with_bad.features,
            tuple(item for item in with_bad.items if item.speaker in pile),
            with_bad.cmvn,
        )
        for pile in piles
    ]
    reasons = {
        "speaker1-0-empty": "without words",
        "speaker1-0-unknown": "XYZZY is not in the lexicon",
        "speaker1-0-short": "too short: 4 frames",
        "stranger-untold": "without words",
    }
    for number, (one, other) in enumerate(zip(trained, train_all(shares, inline), strict=True)):
        assert other.failures.keys() == reasons.keys()
        for key, reason in reasons.items():
            assert reason in other.failures[key]
        expected = files_of(one, tmp_path / f"without{number}")
        found = files_of(replace(other, failures={}), tmp_path / f"with{number}")
        assert found == expected


def test_failures_are_known_before_anything_is_aligned_again(
    corpus: Corpus, trained: list[Trained], inline: Executor
) -> None:
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    start = replace(trained[0], failures={"one": "too short"})
    found = trainer.train_context(start, DELTAS, NUM_LEAVES, replace(SHORT, align_at=()))
    assert found.failures == {"one": "too short"}


def test_corpus_that_nothing_can_be_aligned_of_is_refused(corpus: Corpus, inline: Executor) -> None:
    unknown = replace(corpus, items=tuple(replace(i, words=("XYZZY",)) for i in corpus.items))
    trainer = GmmTrainer(unknown.shares(2), LEXICON, inline)
    with pytest.raises(ValueError, match=r"none of 32 utterances .* XYZZY is not in the lexicon"):
        trainer.flat_start(PHONES, TOPOLOGY, DELTAS, SHORT)
    with pytest.raises(ValueError, match="no utterances to align"):
        GmmTrainer([], LEXICON, inline).flat_start(PHONES, TOPOLOGY, DELTAS, SHORT)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25), st.integers(12, 40))
def test_converted_alignment_has_the_same_phones_at_the_same_frames(
    seed: int, num_phones: int, num_leaves: int
) -> None:
    monophones = MonophoneTree(FEW_PHONES, FEW_STATES)
    before = HmmStates.of(FEW_PHONES, FEW_STATES, monophones)
    statistics = draw_frames(seed).statistics()
    questions = derive_questions(statistics, FEW_PHONES)
    tree = build_tree(statistics, FEW_PHONES, FEW_STATES, questions, num_leaves, 5.0, 1.0)
    after = HmmStates.of(FEW_PHONES, FEW_STATES, tree)
    made = draw_alignment(seed, before, monophones, num_phones)
    converted = convert_alignment(made.states, before, tree, after)
    assert converted.dtype == np.int32
    assert after.spans(converted) == made.spans
    np.testing.assert_array_equal(after.position[converted], before.position[made.states])
    # The same phones, with the same durations, by the definition of the tree.
    np.testing.assert_array_equal(converted, draw_alignment(seed, after, tree, num_phones).states)
    back = convert_alignment(converted, after, monophones, before)
    np.testing.assert_array_equal(back, made.states)


def test_features_with_a_constant_dimension_can_be_learned(
    corpus: Corpus, inline: Executor, tmp_path: Path
) -> None:
    store = open_features(corpus.features)
    constant = {
        item.key: np.pad(store[item.key], ((0, 0), (0, 1)), constant_values=0.1)
        for item in corpus.items
    }
    write_features(tmp_path, constant.items())
    shares = corpus_of(tmp_path, corpus.items).shares(3)
    found = GmmTrainer(shares, LEXICON, inline).flat_start(PHONES, TOPOLOGY, DELTAS, SHORT)
    assert found.failures == {}
    assert np.isfinite(found.model.gmms.means).all()
    assert found.model.gmms.variances.min() > 0


def test_mllt_on_adapted_features_makes_them_more_likely(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    sat, values = trained[3], []
    for mllt_at in ((), (1,)):
        reached: list[Iteration] = []
        trainer = GmmTrainer(corpus.shares(3), LEXICON, inline, reached.append)
        found = trainer.train(sat, Schedule(1, 0, last_growth=1, align_at=(), mllt_at=mllt_at))
        old, new = sat.model.front_end.transform, found.model.front_end.transform
        assert old is not None
        assert new is not None
        rotation = new.astype(np.float64) @ np.linalg.pinv(old.astype(np.float64))
        values.append(reached[0].log_likelihood + np.linalg.slogdet(rotation).logabsdet)
        for share in corpus.shares(1):
            before = share.read(sat.model.front_end, sat.transforms)
            after = share.read(found.model.front_end, found.transforms)
            for (_, one), (_, other) in zip(before, after, strict=True):
                np.testing.assert_allclose(other, one @ rotation.T, atol=1e-3)
    assert values[1] > values[0] + 0.001


def test_mllt_needs_no_transform_that_was_there_before(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    found = trainer.train(trained[1], Schedule(1, 0, last_growth=1, align_at=(), mllt_at=(1,)))
    transform = found.model.front_end.transform
    assert transform is not None
    assert transform.shape == (found.model.gmms.dim, found.model.gmms.dim)


def test_transforms_of_another_front_end_are_refused(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    sat = trained[3]
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    transform = sat.model.front_end.transform
    assert transform is not None
    other = replace(sat.model.front_end, transform=2 * transform)
    with pytest.raises(ValueError, match="transforms are of the features of the earlier model's"):
        trainer.train_context(sat, other, NUM_LEAVES, SHORT)


def test_mixtures_of_unadapted_features_are_never_those_of_an_earlier_model(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    sat = trained[3]
    assert sat.model.unadapted is not None
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    again = replace(SHORT, num_iterations=1, align_at=())
    assert trainer.train(replace(sat, transforms=None), again).model.unadapted is None
    assert trainer.train(sat, again).model.unadapted is not None


def test_alignments_of_other_utterances_are_refused(
    corpus: Corpus, inline: Executor, trained: list[Trained]
) -> None:
    others = {f"other-{key}": states for key, states in trained[0].alignments.items()}
    trainer = GmmTrainer(corpus.shares(3), LEXICON, inline)
    with pytest.raises(ValueError, match="none of the 32 utterances that are aligned is in the"):
        trainer.train_context(replace(trained[0], alignments=others), DELTAS, NUM_LEAVES, SHORT)
