import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from natgrad.speech.decoding import decoder as decoder_module
from natgrad.speech.decoding.decoder import Decoder, DecoderOptions, DecodingError, decode
from natgrad.speech.decoding.lattice import Lattice
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.graphs.graph import Graph

from .random_graphs import (
    NUM_PDFS,
    PDF_OF_LABEL,
    Way,
    arcs_through_lattice,
    random_graph,
    random_scores,
    way_of,
    ways_through,
)

SCALE = 0.1
WIDE = DecoderOptions(beam=1e4, lattice_beam=3.0, acoustic_scale=SCALE, prune_interval_frames=2)
NARROW = DecoderOptions(
    beam=3.0, max_active=9, min_active=3, lattice_beam=2.0, prune_interval_frames=3
)
ARRAYS = ("frame", "final", "source", "target", "label", "word", "graph_cost", "acoustic_cost")

seeds = st.integers(0, 10**6)


def search_graph(graph: Graph) -> SearchGraph:
    return SearchGraph.of(graph, PDF_OF_LABEL)


def larger_graph(seed: int) -> SearchGraph:
    return search_graph(random_graph(seed, num_states=40, num_arcs=120, num_words=9))


def assert_best_way(ours: Way, every: list[Way]) -> None:
    """Of ways that cost the same (the same arcs in another order, say), any is the best."""
    best = every[0].cost(SCALE)
    assert any(
        ours[:2] == way[:2] and np.allclose(ours[2:], way[2:], rtol=1e-6, atol=1e-5)
        for way in every
        if way.cost(SCALE) < best + 1e-5
    )


def assert_same_lattice(one: Lattice, other: Lattice) -> None:
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert (one.num_frames, one.reached_final) == (other.num_frames, other.reached_final)


def assert_lattice_is_of_ways(lattice: Lattice, every: list[Way], beam: float) -> None:
    """All ways within the beam are paths of the lattice; every arc is on one of them."""
    best = every[0].cost(SCALE)
    wanted = [way for way in every if way.cost(SCALE) < best + beam - 1e-4]
    best_with_arc = np.full(lattice.num_arcs, np.inf)
    found = []
    for arcs in arcs_through_lattice(lattice):
        found.append(way_of(lattice.path(arcs)))
        best_with_arc[arcs] = np.minimum(best_with_arc[arcs], found[-1].cost(SCALE))
    found.sort(key=lambda way: way.cost(SCALE))
    for ours, literal in zip(found[: len(wanted)], wanted, strict=True):
        assert ours.cost(SCALE) == pytest.approx(literal.cost(SCALE), abs=1e-4)
    assert {way[:2] for way in wanted} <= {way[:2] for way in found} <= {way[:2] for way in every}
    assert best_with_arc.max(initial=best) <= best + beam + 1e-4


@settings(max_examples=120, deadline=None)
@given(seeds, st.integers(0, 5), st.integers(2, 4))
@example(seed=329, num_frames=3, num_states=2)  # two ways are the best
def test_lattice_has_every_way_within_its_beam_and_no_arc_beyond(
    seed: int, num_frames: int, num_states: int
) -> None:
    graph, scores = random_graph(seed, num_states, 2 * num_states), random_scores(seed, num_frames)
    every = sorted(ways_through(graph, scores), key=lambda way: way.cost(SCALE))
    lattice = decode(search_graph(graph), scores, WIDE)
    assert lattice.reached_final == bool(every)
    if not every:
        every = ways_through(graph, scores, use_final=False)
        every.sort(key=lambda way: way.cost(SCALE))
    assert_best_way(way_of(lattice.best_path(acoustic_scale=SCALE)), every)
    assert_lattice_is_of_ways(lattice, every, WIDE.lattice_beam)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_states_and_arcs_of_lattice_are_in_order(seed: int) -> None:
    lattice = decode(larger_graph(seed), random_scores(seed, 20), NARROW)
    assert np.all(lattice.source < lattice.target)
    assert np.all(np.diff(lattice.source) >= 0)
    assert np.all(np.diff(lattice.frame) >= 0)
    taken = lattice.frame[lattice.target] - lattice.frame[lattice.source]
    np.testing.assert_array_equal(taken, lattice.label > 0)
    entered = np.zeros(lattice.num_states, dtype=bool)
    entered[lattice.target] = True
    np.testing.assert_array_equal(np.flatnonzero(~entered), [0])


@settings(max_examples=40, deadline=None)
@given(seeds, st.lists(st.integers(0, 30), max_size=6))
def test_pieces_give_the_same_lattice_as_the_whole(seed: int, breaks: list[int]) -> None:
    graph, scores = larger_graph(seed), random_scores(seed, 30)
    decoder = Decoder(graph, NARROW)
    edges = [0, *sorted(breaks), 30]
    for begin, end in itertools.pairwise(edges):
        decoder.accept(scores[begin:end])
        decoder.best_path()
    assert_same_lattice(decoder.finish(), decode(graph, scores, NARROW))


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 40))
def test_how_often_links_are_pruned_does_not_change_the_lattice(seed: int, interval: int) -> None:
    graph, scores = larger_graph(seed), random_scores(seed, 40)
    options = DecoderOptions(beam=6.0, lattice_beam=4.0, prune_interval_frames=interval)
    never = DecoderOptions(beam=6.0, lattice_beam=4.0, prune_interval_frames=1000)
    assert_same_lattice(decode(graph, scores, options), decode(graph, scores, never))


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(0, 5))
def test_best_path_so_far_is_the_best_way_that_need_not_end(seed: int, num_frames: int) -> None:
    graph, scores = random_graph(seed), random_scores(seed, num_frames)
    decoder = Decoder(search_graph(graph), WIDE)
    decoder.accept(scores)
    every = ways_through(graph, scores, use_final=False)
    path = decoder.best_path()
    best = min(way.cost(SCALE) for way in every)
    assert path.cost(acoustic_scale=SCALE) == pytest.approx(best, abs=1e-5)
    assert way_of(path)[:2] in {way[:2] for way in every}
    assert decoder.num_frames == num_frames == len(path.alignment)


def test_words_of_a_path_begin_where_their_arcs_do() -> None:
    lattice = decode(larger_graph(1), random_scores(1, 30), NARROW)
    decoder = Decoder(larger_graph(1), NARROW)
    decoder.accept(random_scores(1, 30))
    so_far, path = decoder.best_path(), lattice.best_path(acoustic_scale=SCALE)
    for one in (so_far, path):
        assert len(one.word_begin_frames) == len(one.words) > 3
        assert list(one.word_begin_frames) == sorted(one.word_begin_frames)
        assert 0 <= one.word_begin_frames[0] <= one.word_begin_frames[-1] <= 30
    common = [begin for begin in so_far.word_begin_frames if begin < 20]
    assert [begin for begin in path.word_begin_frames if begin < 20] == common


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_room_grows_as_needed_and_numbers_start_anew(seed: int) -> None:
    graph, scores = larger_graph(seed), random_scores(seed, 12)
    options = DecoderOptions(beam=8.0, lattice_beam=6.0)
    roomy = decode(graph, scores, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_module, "FIRST_NUM_TOKENS", 1)
        patch.setattr(decoder_module, "LAST_BASE", 50)
        assert_same_lattice(decode(graph, scores, options), roomy)


def test_decoder_serves_one_utterance_after_another() -> None:
    graph = larger_graph(2)
    decoder = Decoder(graph, NARROW)
    for seed in (3, 4, 5):
        decoder.start()
        decoder.accept(random_scores(seed, 10 * seed))
        expected = decode(graph, random_scores(seed, 10 * seed), NARROW)
        assert_same_lattice(decoder.finish(), expected)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 20))
def test_tokens_beyond_max_active_are_not_passed_on(seed: int, max_active: int) -> None:
    """With one token a frame, search is greedy: it follows the best token so far."""
    graph, scores = random_graph(seed, 30, 90, epsilons=False), random_scores(seed, 15)
    options = DecoderOptions(beam=1e4, max_active=max_active, min_active=0, lattice_beam=1e4)
    decoder = Decoder(search_graph(graph), options)
    decoder.accept(scores)
    if max_active == 1:
        cost = decoder.best_path().cost(acoustic_scale=SCALE)
        assert cost == pytest.approx(greedy_cost(graph, scores), abs=1e-4)
    lattice = decoder.finish()
    widths = np.bincount(lattice.frame[np.unique(lattice.source)])
    assert widths.max() <= max_active


def greedy_cost(graph: Graph, scores: NDArray[np.float32]) -> float:
    state, total = graph.start, 0.0
    for row in scores:
        arcs = np.arange(graph.first_arc[state], graph.first_arc[state + 1])
        costs = graph.weight[arcs] - SCALE * row[PDF_OF_LABEL[graph.label[arcs]]]
        total += float(costs.min())
        state = int(graph.target[arcs[int(np.argmin(costs))]])
    return total


def test_min_active_tokens_are_passed_on_beyond_the_beam() -> None:
    """Two words of two frames: the better one's first frame is beyond the beam of the other's."""
    graph = Graph(
        start=0,
        first_arc=np.array([0, 2, 3, 4, 4]),
        label=np.array([1, 2, 1, 2], dtype=np.int32),
        word=np.array([1, 2, 0, 0], dtype=np.int32),
        weight=np.zeros(4, dtype=np.float32),
        target=np.array([1, 2, 3, 3], dtype=np.int32),
        final=np.array([np.inf, np.inf, np.inf, 0.0], dtype=np.float32),
    )
    scores = np.array([[-10.0, -14.0], [-90.0, -1.0]], dtype=np.float32)
    made = SearchGraph.of(graph, np.array([-1, 0, 1], dtype=np.int32))
    for beam, min_active, word in ((1.0, 0, 2), (0.3, 0, 1), (0.3, 2, 2)):
        options = DecoderOptions(beam=beam, min_active=min_active, lattice_beam=0.1)
        assert decode(made, scores, options).best_path().words == (word,)


def test_unlikely_pdfs_may_have_no_likelihood_at_all() -> None:
    graph, scores = random_graph(7), random_scores(7, 4)
    scores[:, 3] = -np.inf
    every = ways_through(graph, scores) or ways_through(graph, scores, use_final=False)
    best = decode(search_graph(graph), scores, WIDE).best_path(acoustic_scale=SCALE)
    assert best.cost() == pytest.approx(min(way.cost(SCALE) for way in every), abs=1e-5)


def test_layout_and_precision_of_scores_do_not_matter() -> None:
    graph, scores = larger_graph(1), random_scores(1, 20)
    for same in (np.asfortranarray(scores), scores.astype(np.float64), scores[::-1][::-1]):
        assert_same_lattice(decode(graph, same, NARROW), decode(graph, scores, NARROW))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_numbers_are_refused_by_frame_and_pdf(bad: float) -> None:
    decoder = Decoder(larger_graph(1), NARROW)
    decoder.accept(random_scores(1, 3))
    scores = random_scores(1, 5)
    scores[2, 1] = bad
    with pytest.raises(DecodingError, match=r"pdf 1 at frame 5 is (nan|inf)"):
        decoder.accept(scores)


def test_scores_of_another_model_are_refused() -> None:
    with pytest.raises(DecodingError, match=rf"shape \(3, 2\).*{NUM_PDFS} pdfs or more"):
        decode(larger_graph(1), random_scores(1, 3)[:, :2], NARROW)


def test_utterance_without_any_way_is_refused_and_harms_no_other() -> None:
    graph, scores = larger_graph(1), random_scores(1, 9)
    decoder = Decoder(graph, NARROW)
    hopeless = scores.copy()
    hopeless[4] = -np.inf
    with pytest.raises(DecodingError, match="no way through the graph is left after frame 5"):
        decoder.accept(hopeless)
    with pytest.raises(RuntimeError, match="call start"):
        decoder.finish()
    with pytest.raises(RuntimeError, match="call start"):
        decoder.best_path()
    decoder.start()
    decoder.accept(scores)
    assert_same_lattice(decoder.finish(), decode(graph, scores, NARROW))


def test_finished_utterance_takes_no_more_frames() -> None:
    decoder = Decoder(larger_graph(1), NARROW)
    decoder.accept(random_scores(1, 3))
    decoder.finish()
    with pytest.raises(RuntimeError, match="call start"):
        decoder.accept(random_scores(1, 3))


def test_finished_utterance_has_its_best_path_in_the_lattice_only() -> None:
    """The links that are left are the lattice's: tokens do not find theirs among them any more."""
    decoder = Decoder(larger_graph(1), NARROW)
    decoder.accept(random_scores(1, 30))
    decoder.finish()
    with pytest.raises(RuntimeError, match="best path is that of the lattice"):
        decoder.best_path()


def test_beam_that_leaves_only_ways_that_end_is_named() -> None:
    """State 1 is cheaper to reach than state 2, but leads nowhere."""
    graph = Graph(
        start=0,
        first_arc=np.array([0, 2, 2, 3]),
        label=np.array([1, 2, 2], dtype=np.int32),
        word=np.zeros(3, dtype=np.int32),
        weight=np.zeros(3, dtype=np.float32),
        target=np.array([1, 2, 2], dtype=np.int32),
        final=np.zeros(3, dtype=np.float32),
    )
    scores = np.array([[-10.0, -20.0], [-10.0, -20.0]], dtype=np.float32)
    made = SearchGraph.of(graph, np.array([-1, 0, 1], dtype=np.int32))
    with pytest.raises(DecodingError, match=r"after frame 2: .* the beam, 0\.5, leads no further"):
        decode(made, scores, DecoderOptions(beam=0.5, min_active=0))
    assert decode(made, scores, DecoderOptions(beam=1.5, min_active=0)).reached_final


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam", 0.0),
        ("beam", np.inf),
        ("lattice_beam", -1.0),
        ("acoustic_scale", np.nan),
        ("max_active", 0),
        ("max_active", np.inf),
        ("min_active", 7001),
        ("min_active", 0.5),
        ("prune_interval_frames", 0),
    ],
)
def test_options_out_of_range_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is"):
        DecoderOptions(**{name: value})
