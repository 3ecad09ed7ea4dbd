import math
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.run.model_file import ModelFileError, write_model
from natgrad.speech.gmm.questions import Questions, derive_questions
from natgrad.speech.gmm.tree import DecisionTree, build_tree
from natgrad.speech.gmm.tree_growing import question_gains
from natgrad.speech.gmm.tree_statistics import TreeStatistics
from natgrad.speech.hmm import HmmStates, Topology
from tests.speech.contexts import (
    PHONES,
    TOPOLOGY,
    Context,
    Doubles,
    Frames,
    draw_frames,
    literal_log_likelihood,
)

NUM_ROOTS = 3 * 2 + 2 * 3

seeds = st.integers(0, 2**30)


def questions_for(frames: Frames) -> Questions:
    return derive_questions(frames.statistics(), PHONES)


def grow(
    frames: Frames,
    num_leaves: int,
    least_count: float = 5.0,
    least_gain: float = 0.0,
    cluster: bool = False,
) -> DecisionTree:
    statistics, questions = frames.statistics(), questions_for(frames)
    return build_tree(
        statistics, PHONES, TOPOLOGY, questions, num_leaves, least_count, least_gain, cluster
    )


def pdf_of(tree: DecisionTree, context: Context) -> int:
    left, phone, right = (np.array([number], dtype=np.int32) for number in context[:3])
    return int(tree.pdf(left, phone, right, context[3])[0])


def frames_by_pdf(tree: DecisionTree, frames: Frames) -> dict[int, Doubles]:
    parts: dict[int, list[Doubles]] = {}
    for context, of_context in frames.of.items():
        parts.setdefault(pdf_of(tree, context), []).append(of_context)
    return {pdf: np.concatenate(of_pdf) for pdf, of_pdf in parts.items()}


def total_log_likelihood(tree: DecisionTree, frames: Frames) -> float:
    return sum(literal_log_likelihood(x) for x in frames_by_pdf(tree, frames).values())


# -- splitting ---------------------------------------------------------------------------------


Leaf = frozenset[Context]


def literal_gain(leaf: Leaf, yes: Leaf, frames: Frames) -> float:
    def log_likelihood(contexts: Leaf) -> float:
        return literal_log_likelihood(np.concatenate([frames.of[c] for c in sorted(contexts)]))

    return log_likelihood(yes) + log_likelihood(leaf - yes) - log_likelihood(leaf)


def answers(leaf: Leaf, questions: Questions, question: int) -> Leaf:
    column = int(questions.column[question])
    return frozenset(c for c in leaf if questions.members[question, c[column]])


def num_frames(leaf: Leaf, frames: Frames) -> int:
    return sum(len(frames.of[context]) for context in leaf)


def literal_splits(
    leaf: Leaf, frames: Frames, questions: Questions, least_count: float
) -> list[tuple[float, Leaf, Leaf]]:
    """The gain of each question that may be asked, with the contexts that answer yes."""
    if next(iter(leaf))[1] in PHONES.silence_numbers:
        return []
    parts = {answers(leaf, questions, question) for question in range(len(questions))}
    return [
        (literal_gain(leaf, yes, frames), leaf, yes)
        for yes in parts
        if min(num_frames(yes, frames), num_frames(leaf - yes, frames)) >= least_count
    ]


def literal_leaves(
    frames: Frames, questions: Questions, num_leaves: int, least_count: float
) -> tuple[set[Leaf], list[float]]:
    """Grow by trying every question on every leaf; and the gains of the splits made."""
    leaves: set[Leaf] = set()
    for sound, position in product(range(len(PHONES.sounds)), range(3)):
        root = {c for c in frames.of if (PHONES.sound_of[c[1]], c[3]) == (sound, position)}
        leaves |= {frozenset(root)} if root else set()
    num_empty_roots = NUM_ROOTS - len(leaves)
    gains = []
    splits_of = cache(lambda leaf: literal_splits(leaf, frames, questions, least_count))
    while len(leaves) + num_empty_roots < num_leaves:
        splits = [split for leaf in leaves for split in splits_of(leaf)]
        if not splits:
            break
        gain, leaf, yes = max(splits, key=lambda split: split[0])
        gains.append(gain)
        leaves = (leaves - {leaf}) | {yes, leaf - yes}
    return leaves, gains


@settings(max_examples=8, deadline=None)
@given(seeds, st.sampled_from([15, 22, 100]), st.sampled_from([1.0, 40.0]))
def test_tree_is_the_one_that_brute_force_finds(
    seed: int, num_leaves: int, least_count: float
) -> None:
    frames = draw_frames(seed, num_contexts=40)
    tree = grow(frames, num_leaves, least_count)
    expected, _ = literal_leaves(frames, questions_for(frames), num_leaves, least_count)
    found: dict[int, set[Context]] = {}
    for context in frames.of:
        found.setdefault(pdf_of(tree, context), set()).add(context)
    assert {frozenset(contexts) for contexts in found.values()} == expected


@settings(max_examples=15, deadline=None)
@given(seeds, st.sampled_from([0.0, 10.0, 60.0]))
def test_gains_of_questions_are_those_of_brute_force(seed: int, least_count: float) -> None:
    frames = draw_frames(seed)
    statistics, questions = frames.statistics(), questions_for(frames)
    gains = question_gains(statistics.contexts, statistics.moments, questions, least_count)
    leaf = frozenset(frames.of)
    for question, gain in enumerate(gains.tolist()):
        yes = answers(leaf, questions, question)
        counts = num_frames(yes, frames), num_frames(leaf - yes, frames)
        if min(counts) < least_count:
            assert gain == -math.inf
        elif min(counts) > 0:
            assert gain == pytest.approx(literal_gain(leaf, yes, frames), rel=1e-9, abs=1e-6)


def test_more_leaves_are_always_more_likely() -> None:
    frames = draw_frames(seed=5, num_contexts=200)
    totals = [total_log_likelihood(grow(frames, n), frames) for n in (12, 13, 20, 30, 60)]
    assert totals == sorted(totals)
    assert len(set(totals)) == len(totals)


@pytest.mark.parametrize("num_leaves", [12, 13, 25, 40])
def test_as_many_leaves_as_asked_for_where_there_are_splits(num_leaves: int) -> None:
    assert grow(draw_frames(seed=6, num_contexts=200), num_leaves).num_pdfs == num_leaves


def test_no_leaf_of_a_split_has_less_frames_than_told() -> None:
    frames = draw_frames(seed=7, num_contexts=200)
    tree = grow(frames, 1000, least_count=70)
    roots = set(tree.leaf_pdf[tree.root[tree.root >= 0]].tolist())
    split_off = [len(x) for pdf, x in frames_by_pdf(tree, frames).items() if pdf not in roots]
    assert min(split_off) >= 70
    assert tree.num_pdfs < 1000


def test_splits_that_gain_too_little_are_not_made() -> None:
    frames = draw_frames(seed=8, num_contexts=200)
    _, gains = literal_leaves(frames, questions_for(frames), 40, least_count=5)
    limit = sorted(gains)[len(gains) // 2]
    tree = grow(frames, 1000, least_gain=limit)
    assert NUM_ROOTS < tree.num_pdfs < grow(frames, 1000).num_pdfs


def test_silences_are_never_split() -> None:
    frames = draw_frames(seed=9, num_contexts=300)
    tree = grow(frames, 100)
    for silence, position in product(PHONES.silence_numbers, range(TOPOLOGY.silence_states)):
        assert len(tree.pdfs_of_phone(silence, position)) == 1
    pdfs = [tree.pdfs_of_phone(s, p)[0] for s in (1, 2) for p in range(3)]
    assert pdfs == list(range(6))


# -- merging -----------------------------------------------------------------------------------


def test_merged_leaves_are_of_one_root_and_lose_less_than_the_poorest_split_gained() -> None:
    frames = draw_frames(seed=10, num_contexts=300)
    apart, merged = (grow(frames, 60, cluster=cluster) for cluster in (False, True))
    _, gains = literal_leaves(frames, questions_for(frames), 60, least_count=5)
    assert apart.num_pdfs == 60
    assert NUM_ROOTS < merged.num_pdfs < 60
    pieces: dict[int, set[int]] = {}
    owner: dict[int, tuple[int, int]] = {}
    for context in frames.of:
        pdf = pdf_of(merged, context)
        pieces.setdefault(pdf, set()).add(pdf_of(apart, context))
        sound_and_position = (int(PHONES.sound_of[context[1]]), context[3])
        assert owner.setdefault(pdf, sound_and_position) == sound_and_position
    loss = total_log_likelihood(apart, frames) - total_log_likelihood(merged, frames)
    assert 0 < loss < (60 - merged.num_pdfs) * min(gains)
    assert sum(len(piece) for piece in pieces.values()) == 60


# -- asking ------------------------------------------------------------------------------------


def walk(tree: DecisionTree, context: Context) -> int:
    node = int(tree.root[PHONES.sound_of[context[1]], context[3]])
    while tree.question[node] >= 0:
        question = tree.question[node]
        is_member = tree.questions.members[question, context[tree.questions.column[question]]]
        node = int((tree.yes if is_member else tree.no)[node])
    return int(tree.leaf_pdf[node])


def all_contexts(position: int) -> list[Context]:
    everyone = range(len(PHONES))
    return [
        (left, phone, right, position)
        for left, phone, right in product(everyone, everyone[1:], everyone)
        if position < TOPOLOGY.num_states(PHONES, phone)
    ]


@pytest.mark.parametrize("position", [0, 1])
def test_pdfs_of_many_contexts_are_those_of_walking_down(position: int) -> None:
    tree = grow(draw_frames(seed=11, num_contexts=300), 50, cluster=True)
    contexts = all_contexts(position)
    left, phone, right, _ = np.array(contexts, dtype=np.int32).T
    found = tree.pdf(left, phone, right, position)
    assert found.dtype == np.int32
    assert found.tolist() == [walk(tree, context) for context in contexts]


def test_pdf_takes_any_shape() -> None:
    tree = grow(draw_frames(seed=11, num_contexts=300), 50)
    left = np.arange(len(PHONES), dtype=np.int32)[:, None]
    right, phone = left.T.copy(), np.int32(5)
    found = tree.pdf(left, np.asarray(phone), right, 1)
    assert found.shape == (len(PHONES), len(PHONES))
    assert found[3, 7] == walk(tree, (3, 5, 7, 1))
    assert tree.pdf(left[:0], left[:0], left[:0], 0).shape == (0, 1)


@pytest.mark.parametrize("position", [0, 1])
def test_pdfs_of_a_phone_are_those_it_has_in_some_context(position: int) -> None:
    tree = grow(draw_frames(seed=12, num_contexts=300), 60, cluster=True)
    found: dict[int, set[int]] = {}
    for context in all_contexts(position):
        found.setdefault(context[1], set()).add(walk(tree, context))
    for phone, pdfs in found.items():
        assert tree.pdfs_of_phone(phone, position) == sorted(pdfs)


def test_every_pdf_is_one_of_some_state() -> None:
    tree = grow(draw_frames(seed=13, num_contexts=300), 60, cluster=True)
    states = HmmStates.of(PHONES, TOPOLOGY, tree)
    assert sorted(set(states.pdf.tolist())) == list(range(tree.num_pdfs))
    assert tree.context_width == 3


# -- mixtures, files, mistakes -----------------------------------------------------------------


def test_initial_mixtures_are_the_gaussians_of_the_leaves() -> None:
    frames = draw_frames(seed=14, num_contexts=200)
    tree = grow(frames, 40)
    gmms = tree.initial_gmms(frames.statistics())
    assert gmms.num_pdfs == gmms.num_gaussians == tree.num_pdfs
    for pdf, of_pdf in frames_by_pdf(tree, frames).items():
        np.testing.assert_allclose(gmms.means[pdf], of_pdf.mean(axis=0))
        np.testing.assert_allclose(gmms.variances[pdf], np.maximum(of_pdf.var(axis=0), 0.01))


def test_sound_that_was_never_said_starts_as_all_frames_together() -> None:
    frames = draw_frames(seed=15)
    never = {c: x for c, x in frames.of.items() if PHONES.sound_of[c[1]] != 3}
    tree = grow(Frames(never), 20)
    gmms = tree.initial_gmms(Frames(never).statistics())
    (pdf,) = tree.pdfs_of_phone(PHONES.symbols.number("B_I"), 1)
    together = np.concatenate(list(never.values()))
    np.testing.assert_allclose(gmms.means[pdf], together.mean(axis=0))
    np.testing.assert_allclose(gmms.variances[pdf], together.var(axis=0))


def test_file_keeps_the_tree(tmp_path: Path) -> None:
    tree = grow(draw_frames(seed=16, num_contexts=200), 40, cluster=True)
    tree.write(tmp_path / "tree.safetensors")
    read = DecisionTree.read(tmp_path / "tree.safetensors")
    assert (read.phones, read.topology) == (PHONES, TOPOLOGY)
    assert read.num_pdfs == tree.num_pdfs
    for name, array in tree.to_arrays().items():
        np.testing.assert_array_equal(read.to_arrays()[name], array)
        assert read.to_arrays()[name].dtype == array.dtype
    assert pdf_of(read, (3, 7, 9, 1)) == pdf_of(tree, (3, 7, 9, 1))


def test_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "x.safetensors", {"weight": torch.ones(2)}, {})
    with pytest.raises(ModelFileError, match=r"x.safetensors has None in it; expected 'decision"):
        DecisionTree.read(tmp_path / "x.safetensors")


def test_same_statistics_give_the_same_tree() -> None:
    one, other = (grow(draw_frames(seed=17, num_contexts=200), 40, cluster=True) for _ in range(2))
    for name, array in one.to_arrays().items():
        np.testing.assert_array_equal(other.to_arrays()[name], array)


def test_fewer_leaves_than_states_of_sounds_are_refused() -> None:
    with pytest.raises(ValueError, match="num_leaves is 11, but the states of all sounds need one"):
        grow(draw_frames(seed=18), 11)


def test_statistics_of_another_topology_are_refused() -> None:
    frames = draw_frames(seed=18)
    questions = questions_for(frames)
    with pytest.raises(ValueError, match="other phones or another topology"):
        build_tree(frames.statistics(), PHONES, Topology(2, 2), questions, 100)
    fewer = replace(PHONES, speech=("AH",))
    with pytest.raises(ValueError, match="there are 6 phones"):
        build_tree(frames.statistics(), fewer, TOPOLOGY, questions, 100)


def test_state_that_a_phone_does_not_have_is_refused() -> None:
    tree = grow(draw_frames(seed=19), 20)
    phone = np.array([1, 5], dtype=np.int32)
    with pytest.raises(ValueError, match="state 2 were asked for, counted from 0, also of phones"):
        tree.pdf(phone, phone, phone, 2)


def test_silence_alone_gives_a_tree_of_roots() -> None:
    statistics = TreeStatistics(
        np.array([[0, 1, 0, 0]], dtype=np.int32), np.array([[50.0, 1.0, 60.0]])
    )
    questions = derive_questions(statistics, PHONES)
    assert build_tree(statistics, PHONES, TOPOLOGY, questions, 100).num_pdfs == NUM_ROOTS


@pytest.mark.parametrize("seed", range(5))
def test_leaves_are_not_merged_where_that_is_not_wanted(seed: int) -> None:
    # Of variances below the floor, merging may even raise what is taken for the likelihood.
    drawn = draw_frames(seed, num_contexts=200)
    frames = Frames({context: 0.05 * of_context for context, of_context in drawn.of.items()})
    tree = grow(frames, 60)
    assert tree.num_pdfs == np.count_nonzero(tree.leaf_pdf >= 0)
