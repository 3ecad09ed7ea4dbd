import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from natgrad.run.model_file import ModelFileError, read_model, write_model
from natgrad.speech.decoding.decoder import DecoderOptions, decode
from natgrad.speech.decoding.lattice import Lattice
from natgrad.speech.decoding.lattice_file import read_lattices, write_lattices
from natgrad.speech.decoding.search_graph import SearchGraph

from .random_graphs import (
    PDF_OF_LABEL,
    Way,
    arcs_through_lattice,
    random_graph,
    random_scores,
    way_of,
)

seeds = st.integers(0, 10**6)
scales = st.sampled_from([(1.0, 0.1, 0.0), (0.5, 0.2, 0.7), (2.0, 0.05, -0.4), (1.0, 1.0, 0.0)])


def random_lattice(seed: int, num_frames: int = 4) -> Lattice:
    """What a wide search finds: a few hundred ways at most."""
    graph, scores = random_graph(seed, num_states=3, num_arcs=5), random_scores(seed, num_frames)
    options = DecoderOptions(beam=1e4, lattice_beam=8.0)
    return decode(SearchGraph.of(graph, PDF_OF_LABEL), scores, options)


def cost_of(way: Way, scale: tuple[float, float, float]) -> float:
    lm_scale, acoustic_scale, word_penalty = scale
    scaled = lm_scale * way.graph_cost + acoustic_scale * way.acoustic_cost
    return scaled + word_penalty * len(way.words)


def num_errors(reference: tuple[int, ...], hypothesis: tuple[int, ...]) -> int:
    """Levenshtein's distance, by its recursion."""
    if not reference or not hypothesis:
        return len(reference) + len(hypothesis)
    return min(
        num_errors(reference[1:], hypothesis[1:]) + (reference[0] != hypothesis[0]),
        num_errors(reference[1:], hypothesis) + 1,
        num_errors(reference, hypothesis[1:]) + 1,
    )


@settings(max_examples=60, deadline=None)
@given(seeds, scales)
def test_best_path_costs_least_under_any_scales(
    seed: int, scale: tuple[float, float, float]
) -> None:
    lattice = random_lattice(seed)
    ways = [way_of(lattice.path(arcs)) for arcs in arcs_through_lattice(lattice)]
    best = lattice.best_path(*scale)
    assert best.cost(*scale) == pytest.approx(min(cost_of(way, scale) for way in ways), abs=1e-9)
    assert len(best.alignment) == lattice.num_frames


@settings(max_examples=60, deadline=None)
@given(seeds, scales, st.floats(0.0, 5.0))
def test_pruned_lattice_has_the_arcs_on_ways_within_the_beam(
    seed: int, scale: tuple[float, float, float], beam: float
) -> None:
    lattice = random_lattice(seed)
    ways = list(arcs_through_lattice(lattice))
    costs = np.array([cost_of(way_of(lattice.path(arcs)), scale) for arcs in ways])
    assume(not np.any(np.abs(costs - costs.min() - beam) < 1e-6) or beam == 0.0)
    kept = sorted(
        {
            int(a)
            for arcs in itertools.compress(ways, costs <= costs.min() + beam + 1e-9)
            for a in arcs
        }
    )
    pruned = lattice.prune(beam, *scale)
    for name in ("label", "word", "graph_cost", "acoustic_cost"):
        np.testing.assert_array_equal(getattr(pruned, name), getattr(lattice, name)[kept])
    assert pruned.best_path(*scale).cost(*scale) == pytest.approx(costs.min())
    within = [c for c in costs if c <= costs.min() + beam]
    found = [cost_of(way_of(pruned.path(arcs)), scale) for arcs in arcs_through_lattice(pruned)]
    np.testing.assert_allclose(sorted(found)[: len(within)], sorted(within))


@settings(max_examples=100, deadline=None)
@given(seeds, scales, st.integers(1, 40))
def test_n_best_are_the_best_different_word_sequences(
    seed: int, scale: tuple[float, float, float], num_paths: int
) -> None:
    lattice = random_lattice(seed)
    best_of_words: dict[tuple[int, ...], float] = {}
    for arcs in arcs_through_lattice(lattice):
        way = way_of(lattice.path(arcs))
        cost = cost_of(way, scale)
        best_of_words[way.words] = min(cost, best_of_words.get(way.words, np.inf))
    found = lattice.n_best(num_paths, *scale)
    assert len(found) == min(num_paths, len(best_of_words))
    assert len({path.words for path in found}) == len(found)
    costs = [path.cost(*scale) for path in found]
    np.testing.assert_allclose(costs, sorted(best_of_words.values())[: len(found)])
    np.testing.assert_allclose(costs, [best_of_words[path.words] for path in found])


@settings(max_examples=60, deadline=None)
@given(seeds, st.lists(st.integers(1, 4), max_size=4))
def test_oracle_is_the_least_distance_of_any_way(seed: int, reference: list[int]) -> None:
    lattice = random_lattice(seed)
    sequences = {lattice.path(arcs).words for arcs in arcs_through_lattice(lattice)}
    oracle = lattice.oracle(reference)
    assert oracle.errors == min(num_errors(tuple(reference), words) for words in sequences)
    assert oracle.words in sequences
    assert num_errors(tuple(reference), oracle.words) == oracle.errors


@settings(max_examples=60, deadline=None)
@given(seeds, scales)
def test_posteriors_are_shares_of_all_ways(seed: int, scale: tuple[float, float, float]) -> None:
    lattice = random_lattice(seed)
    ways = list(arcs_through_lattice(lattice))
    costs = np.array([cost_of(way_of(lattice.path(arcs)), scale) for arcs in ways])
    shares = np.exp(costs.min() - costs)
    shares /= shares.sum()
    literal = np.zeros(lattice.num_arcs)
    by_state: dict[tuple[int, int], float] = {}
    for arcs, share in zip(ways, shares.tolist(), strict=True):
        literal[arcs] += share
        for at in enumerate(lattice.path(arcs).alignment.tolist()):
            by_state[at] = by_state.get(at, 0.0) + share
    np.testing.assert_allclose(lattice.arc_posteriors(*scale), literal, atol=1e-12)
    frame, state, weight = lattice.state_posteriors(*scale)
    assert list(zip(frame.tolist(), state.tolist(), strict=True)) == sorted(by_state)
    np.testing.assert_allclose(weight, [by_state[at] for at in sorted(by_state)], atol=1e-12)


def test_lattice_of_no_frames_has_the_words_that_cost_none() -> None:
    lattice = random_lattice(1, num_frames=0).prune(0.0)
    assert (lattice.num_states, lattice.num_arcs) == (1, 0)
    assert lattice.best_path().words == ()
    assert [path.words for path in lattice.n_best(3)] == [()]
    assert lattice.oracle([1, 2]) == (2, ())
    assert lattice.arc_posteriors().tolist() == []
    assert lattice.state_posteriors().frame.tolist() == []


@pytest.mark.parametrize("beam", [-1.0, np.nan])
def test_beam_that_no_path_is_within_is_refused(beam: float) -> None:
    with pytest.raises(ValueError, match=f"the beam is {beam}; it must be at least 0"):
        random_lattice(1).prune(beam)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["lm_scale", "acoustic_scale", "word_penalty"])
def test_scales_that_are_no_numbers_are_refused_by_name(name: str, bad: float) -> None:
    lattice = random_lattice(1)
    scale = {name: bad}
    for use in (
        lambda: lattice.best_path(**scale),
        lambda: lattice.prune(1.0, **scale),
        lambda: lattice.n_best(2, **scale),
        lambda: lattice.arc_posteriors(**scale),
    ):
        with pytest.raises(ValueError, match=f"{name}( is)? {bad}.*; all must be finite"):
            use()


def test_lattices_survive_a_file(tmp_path: Path) -> None:
    lattices = {f"speaker-{seed}": random_lattice(seed, num_frames=seed) for seed in range(5)}
    write_lattices(tmp_path / "lattices", lattices)
    again = read_lattices(tmp_path / "lattices")
    assert list(again) == list(lattices)
    for key, lattice in lattices.items():
        for name, value in vars(lattice).items():
            np.testing.assert_array_equal(getattr(again[key], name), value)
            if isinstance(value, np.ndarray):
                assert getattr(again[key], name).dtype == value.dtype


def test_no_lattices_survive_a_file_too(tmp_path: Path) -> None:
    write_lattices(tmp_path / "lattices", {})
    assert read_lattices(tmp_path / "lattices") == {}


@pytest.mark.parametrize("more", [-2, 2])
@pytest.mark.parametrize("name", ["final", "word", "num_states", "num_arcs"])
def test_file_with_fewer_or_more_states_or_arcs_than_it_says_is_refused_by_name(
    tmp_path: Path, name: str, more: int
) -> None:
    path = tmp_path / "some.lattices"
    write_lattices(path, {f"u{seed}": random_lattice(seed) for seed in (1, 2)})
    model = read_model(path)
    tensors, description = dict(model.tensors), dict(model.description)
    if name in tensors:
        tensors[name] = torch.cat([tensors[name], tensors[name]])[: len(tensors[name]) + more]
    else:
        description[name] = [1, 1, 1][: 2 + more // 2]
    write_model(path, tensors, description)
    with pytest.raises(ModelFileError, match=rf"some\.lattices .*{name} has \d+ values; expected"):
        read_lattices(path)


def test_file_of_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "network", {"weight": torch.ones(1)}, {"kind": "network"})
    with pytest.raises(ModelFileError, match="network has 'network' in it; expected 'lattices'"):
        read_lattices(tmp_path / "network")
