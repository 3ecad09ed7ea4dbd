from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.gmm.align import Alignment, AlignmentFailure, align, equal_alignment
from natgrad.speech.graphs.graph import Graph

INF = float("inf")
PDF_OF_LABEL = np.array([-1, 0, 1, 2], dtype=np.int32)

Arc = tuple[int, int, int, int, float]  # source, target, label, word, weight


def graph_of(arcs: list[Arc], final: dict[int, float], num_states: int) -> Graph:
    arcs = sorted(arcs, key=lambda arc: arc[0])
    source, target, label, word, weight = zip(*arcs, strict=True) if arcs else ((),) * 5
    costs = np.full(num_states, INF, dtype=np.float32)
    for state, cost in final.items():
        costs[state] = cost
    return Graph(
        0,
        np.searchsorted(source, np.arange(num_states + 1)).astype(np.int64),
        np.array(label, dtype=np.int32),
        np.array(word, dtype=np.int32),
        np.array(weight, dtype=np.float32),
        np.array(target, dtype=np.int32),
        costs,
    )


def left_to_right(labels: list[int], words: dict[int, int] | None = None) -> Graph:
    arcs: list[Arc] = []
    for state, label in enumerate(labels):
        arcs.append((state, state + 1, label, (words or {}).get(state, 0), 0.5))
        arcs.append((state + 1, state + 1, label, 0, 0.25))
    return graph_of(arcs, {len(labels): 0.125}, len(labels) + 1)


def all_paths(graph: Graph, num_frames: int) -> Iterator[list[int]]:
    """Every path of that many frames to a final state that passes no state twice in a frame."""

    def go_on(state: int, frame: int, arcs: list[int], here: set[int]) -> Iterator[list[int]]:
        if frame == num_frames and graph.final[state] < INF:
            yield arcs
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            target = int(graph.target[arc])
            if graph.label[arc] == 0 and target not in here:
                yield from go_on(target, frame, [*arcs, arc], here | {target})
            elif graph.label[arc] != 0 and frame < num_frames:
                yield from go_on(target, frame + 1, [*arcs, arc], {target})

    yield from go_on(graph.start, 0, [], {graph.start})


def cost_of(graph: Graph, arcs: list[int], scores: NDArray[np.float32], scale: float) -> float:
    labels = [int(graph.label[arc]) for arc in arcs if graph.label[arc]]
    acoustic = sum(float(scores[t, PDF_OF_LABEL[label]]) for t, label in enumerate(labels))
    weights = sum(float(graph.weight[arc]) for arc in arcs)
    return weights + float(graph.final[graph.target[arcs[-1]]]) - scale * acoustic


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    num_states = draw(st.integers(1, 4))
    state, cost = st.integers(0, num_states - 1), st.floats(0, 5, width=16)
    arc = st.tuples(state, state, st.integers(0, 3), st.integers(0, 5), cost)
    final = draw(st.dictionaries(state, cost, max_size=2))
    return graph_of(draw(st.lists(arc, max_size=9)), final, num_states)


def random_scores(num_frames: int, seed: int) -> NDArray[np.float32]:
    scores = np.random.default_rng(seed).normal(-3, 5, (num_frames, 3))
    return scores.astype(np.float32)


@settings(max_examples=300, deadline=None)
@given(graphs(), st.integers(1, 4), st.integers(0, 10**6), st.sampled_from([0.1, 1.0]))
def test_alignment_is_the_best_of_all_paths(
    graph: Graph, num_frames: int, seed: int, scale: float
) -> None:
    scores = random_scores(num_frames, seed)
    costs = [cost_of(graph, arcs, scores, scale) for arcs in all_paths(graph, num_frames)]
    found = align(graph, PDF_OF_LABEL, scores, scale, beam=INF, retry_beam=INF)
    if not costs:
        assert isinstance(found, AlignmentFailure)
        return
    assert isinstance(found, Alignment)
    cost = found.graph_cost - scale * found.log_likelihood
    assert cost == pytest.approx(min(costs), abs=1e-5)
    of_frames = scores[np.arange(num_frames), PDF_OF_LABEL[found.states + 1]]
    assert found.log_likelihood == pytest.approx(float(of_frames.sum()), abs=1e-4)


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 4), st.integers(0, 10**6), st.floats(0.1, 4))
def test_a_narrow_beam_gives_a_path_of_the_graph_or_a_reason(
    graph: Graph, num_frames: int, seed: int, beam: float
) -> None:
    scores = random_scores(num_frames, seed)
    found = align(graph, PDF_OF_LABEL, scores, 1.0, beam, beam)
    paths = {
        tuple(int(graph.label[arc]) - 1 for arc in arcs if graph.label[arc]): arcs
        for arcs in all_paths(graph, num_frames)
    }
    if isinstance(found, AlignmentFailure):
        assert found.reason
    else:
        assert tuple(found.states.tolist()) in paths


def test_words_begin_at_the_frame_of_their_arc_also_on_epsilon_arcs() -> None:
    arcs: list[Arc] = [(0, 1, 1, 4, 0.0), (1, 1, 1, 0, 0.0), (1, 2, 0, 5, 0.0), (2, 3, 2, 0, 0.0)]
    graph = graph_of([*arcs, (3, 3, 2, 0, 0.0), (3, 4, 0, 6, 0.0)], {4: 0.0}, 5)
    scores = np.array([[0, -9, 0], [0, -9, 0], [-9, 0, 0]], dtype=np.float32)
    found = align(graph, PDF_OF_LABEL, scores)
    assert isinstance(found, Alignment)
    assert found.states.tolist() == [0, 0, 1]
    assert found.words.tolist() == [4, 5, 6]
    assert found.begin_frames.tolist() == [0, 2, 3]


def test_a_search_that_the_beam_cut_off_is_done_again_with_the_wider_one() -> None:
    # The cheap branch is a dead end that is only seen at the end.
    arcs: list[Arc] = [(0, 1, 1, 0, 0.0), (1, 1, 1, 0, 0.0), (0, 2, 2, 0, 20.0), (2, 2, 2, 0, 0.0)]
    graph = graph_of(arcs, {2: 0.0}, 3)
    scores = np.zeros((3, 3), dtype=np.float32)
    found = align(graph, PDF_OF_LABEL, scores, beam=10.0, retry_beam=40.0)
    assert isinstance(found, Alignment)
    assert found.states.tolist() == [1, 1, 1]
    assert found.beam == 40.0
    failed = align(graph, PDF_OF_LABEL, scores, beam=10.0, retry_beam=15.0)
    assert isinstance(failed, AlignmentFailure)
    assert "no path comes to the end of the transcript in 3 frames" in failed.reason


def test_too_short_an_utterance_is_refused_with_the_frames_it_needs() -> None:
    failed = align(left_to_right([1, 2, 3, 1]), PDF_OF_LABEL, np.zeros((3, 3), dtype=np.float32))
    assert failed == AlignmentFailure("too short: 3 frames, and its transcript needs 4 at least")
    equal = equal_alignment(left_to_right([1, 2, 3, 1]), 3, np.zeros(3, dtype=bool))
    assert equal == failed


def test_an_utterance_without_frames_is_refused() -> None:
    failed = align(left_to_right([1]), PDF_OF_LABEL, np.zeros((0, 3), dtype=np.float32))
    assert failed == AlignmentFailure("it has no frames")
    assert isinstance(equal_alignment(left_to_right([1]), 0, np.zeros(3, bool)), AlignmentFailure)


def test_a_graph_without_a_final_state_is_refused() -> None:
    graph = graph_of([(0, 1, 1, 0, 0.0), (1, 1, 1, 0, 0.0)], {}, 2)
    failed = align(graph, PDF_OF_LABEL, np.zeros((3, 3), dtype=np.float32))
    assert failed == AlignmentFailure("its graph has no path from the start to a final state")


def test_a_log_likelihood_that_is_not_a_number_is_named_by_its_frame() -> None:
    scores = np.zeros((5, 3), dtype=np.float32)
    scores[2, 1] = np.nan
    failed = align(left_to_right([1, 2]), PDF_OF_LABEL, scores)
    assert failed == AlignmentFailure("a log-likelihood of frame 2 is not a number")


def test_frames_that_no_state_explains_end_the_search() -> None:
    scores = np.zeros((5, 3), dtype=np.float32)
    scores[3] = -INF
    failed = align(left_to_right([1, 2]), PDF_OF_LABEL, scores)
    assert failed == AlignmentFailure("no path goes on after frame 3 of 5, with a beam of 40")


def test_epsilon_cycles_end_and_those_that_pay_are_refused() -> None:
    def with_cycle(weight: float) -> Graph:
        arcs: list[Arc] = [(0, 1, 1, 0, 0.0), (1, 2, 0, 0, weight), (2, 1, 0, 0, 0.0)]
        return graph_of([*arcs, (1, 1, 1, 0, 0.0)], {2: 0.0}, 3)

    scores = np.zeros((2, 3), dtype=np.float32)
    found = align(with_cycle(0.0), PDF_OF_LABEL, scores)
    assert isinstance(found, Alignment)
    for search in (
        lambda: align(with_cycle(-1.0), PDF_OF_LABEL, scores),
        lambda: equal_alignment(with_cycle(-1.0), 2, np.zeros(3, dtype=bool)),
    ):
        with pytest.raises(ValueError, match="cycle of epsilon arcs that costs less than nothing"):
            search()


def test_long_utterances_with_many_states_are_aligned_the_same_way_each_time() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(1, 4, 300).tolist()
    graph = left_to_right(labels, words={state: state + 1 for state in range(0, 300, 10)})
    expected = np.repeat(np.array(labels) - 1, rng.integers(1, 6, 300))
    scores = rng.normal(0, 0.1, (len(expected), 3)).astype(np.float32)
    scores[np.arange(len(expected)), expected] += 30
    one, two = (align(graph, PDF_OF_LABEL, scores, beam=INF, retry_beam=INF) for _ in range(2))
    assert isinstance(one, Alignment)
    assert isinstance(two, Alignment)
    assert np.array_equal(one.states, expected)
    assert np.array_equal(one.states, two.states)
    assert np.array_equal(one.begin_frames, two.begin_frames)
    assert one.words.tolist() == list(range(1, 301, 10))


def test_scores_and_graph_of_different_models_are_refused() -> None:
    graph, scores = left_to_right([1, 2, 3]), np.zeros((4, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="the graph has label 3, but pdf_of_label only 3 elements"):
        align(graph, PDF_OF_LABEL[:3], scores)
    with pytest.raises(ValueError, match="log-likelihoods of 2 pdfs"):
        align(graph, PDF_OF_LABEL, scores[:, :2])
    with pytest.raises(ValueError, match=r"expected \(frames, pdfs\)"):
        align(graph, PDF_OF_LABEL, scores[0])


@pytest.mark.parametrize(("beam", "retry_beam"), [(0.0, 40.0), (-1.0, 1.0), (10.0, 5.0)])
def test_beams_that_make_no_sense_are_refused(beam: float, retry_beam: float) -> None:
    scores = np.zeros((4, 3), dtype=np.float32)
    with pytest.raises(ValueError, match="expected a beam above 0"):
        align(left_to_right([1]), PDF_OF_LABEL, scores, beam=beam, retry_beam=retry_beam)


def sentence() -> Graph:
    """Two words, and silence (label 3) before, between and after them, or not."""
    arcs: list[Arc] = []
    for state, (label, is_optional) in enumerate([(3, 1), (1, 0), (3, 1), (2, 0), (3, 1)]):
        arcs.append((2 * state, 2 * state + 1, label, 0, 0.7))
        arcs.append((2 * state + 1, 2 * state + 1, label, 0, 0.3))
        arcs.append((2 * state + 1, 2 * state + 2, 0, 0, 0.0))
        if is_optional:
            arcs.append((2 * state, 2 * state + 2, 0, 0, 0.1))
    return graph_of(arcs, {10: 0.0}, 11)


@pytest.mark.parametrize(
    ("num_frames", "labels"),
    [(40, [3, 1, 2, 3]), (4, [3, 1, 2, 3]), (3, [3, 1, 2]), (2, [1, 2])],
)
def test_flat_start_has_silence_at_the_edges_for_which_there_are_frames(
    num_frames: int, labels: list[int]
) -> None:
    states = equal_alignment(sentence(), num_frames, np.array([False, False, True]))
    assert not isinstance(states, AlignmentFailure)
    assert [label for label, _ in itertools.groupby(states + 1)] == labels


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(0, 50))
def test_flat_start_spreads_frames_evenly_over_the_states_of_the_path(
    labels: list[int], extra: int
) -> None:
    alternating = [1 + (2 * place + label) % 3 for place, label in enumerate(labels)]
    different = [a for a, _ in itertools.groupby(alternating)]
    num_frames = len(different) + extra
    states = equal_alignment(left_to_right(different), num_frames, np.zeros(3, dtype=bool))
    assert not isinstance(states, AlignmentFailure)
    assert states.dtype == np.int32
    groups = [(label, len(list(run))) for label, run in itertools.groupby(states + 1)]
    assert [label for label, _ in groups] == different
    lengths = [length for _, length in groups]
    assert sum(lengths) == num_frames
    assert max(lengths) - min(lengths) <= 1


def test_flat_start_takes_the_more_likely_of_paths_that_are_as_long() -> None:
    arcs: list[Arc] = [(0, 1, 1, 0, 0.9), (0, 2, 2, 0, 0.2), (1, 1, 1, 0, 0.1), (2, 2, 2, 0, 0.1)]
    graph = graph_of(arcs, {1: 0.0, 2: 0.0}, 3)
    states = equal_alignment(graph, 3, np.zeros(3, dtype=bool))
    assert not isinstance(states, AlignmentFailure)
    assert states.tolist() == [1, 1, 1]


def test_flat_start_refuses_a_graph_whose_states_cannot_be_stayed_in() -> None:
    graph = graph_of([(0, 1, 1, 0, 0.0)], {1: 0.0}, 2)
    with pytest.raises(ValueError, match="lets no frame stay in HMM state 0"):
        equal_alignment(graph, 3, np.zeros(3, dtype=bool))


def test_flat_start_of_a_graph_that_takes_no_frame_is_refused() -> None:
    graph = graph_of([(0, 1, 0, 0, 0.0)], {1: 0.0}, 2)
    failed = equal_alignment(graph, 3, np.zeros(3, dtype=bool))
    assert failed == AlignmentFailure("its graph has no path that takes a frame")
