"""The same graphs and scores, searched by us and by Kaldi's decoders."""

import kaldi_decoder
import kaldifst
import numpy as np
import pytest
from numpy.typing import NDArray

from natgrad.speech.decoding.decoder import DecoderOptions, decode
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.graphs.graph import Graph

from .random_graphs import PDF_OF_LABEL, random_graph, random_scores, way_of

SCALE = 0.1
BEAM, LATTICE_BEAM = 12.0, 4.0


def fst_of(graph: Graph) -> kaldifst.StdVectorFst:
    fst = kaldifst.StdVectorFst()
    for _ in range(graph.num_states):
        fst.add_state()
    fst.start = graph.start
    for state in range(graph.num_states):
        if np.isfinite(graph.final[state]):
            fst.set_final(state, float(graph.final[state]))
        for arc in range(graph.first_arc[state], graph.first_arc[state + 1]):
            columns = (graph.label[arc], graph.word[arc], graph.weight[arc], graph.target[arc])
            label, word, weight, target = (column.item() for column in columns)
            fst.add_arc(state, kaldifst.StdArc(label, word, weight, target))
    return fst


def decodable(scores: NDArray[np.float32]) -> kaldi_decoder.DecodableCtc:
    """It gives label k the score in column k - 1."""
    by_label = scores[:, PDF_OF_LABEL[1:]]
    return kaldi_decoder.DecodableCtc(np.ascontiguousarray(np.float32(SCALE) * by_label))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", ["faster", "lattice"])
def test_best_path_and_score_are_those_of_kaldi(seed: int, kind: str) -> None:
    graph = random_graph(seed, num_states=300, num_arcs=900, num_words=50)
    scores = random_scores(seed, 60)
    fst = fst_of(graph)  # their decoders do not keep it alive
    if kind == "faster":
        options = kaldi_decoder.FasterDecoderOptions(beam=BEAM, min_active=0)
        theirs = kaldi_decoder.FasterDecoder(fst, options)
    else:
        config = kaldi_decoder.LatticeSimpleDecoderConfig(beam=BEAM, lattice_beam=LATTICE_BEAM)
        theirs = kaldi_decoder.LatticeSimpleDecoder(fst, config)
    theirs.decode(decodable(scores))
    _, linear = theirs.get_best_path()
    _, labels, words, weight = kaldifst.get_linear_symbol_sequence(linear)
    ours = decode(
        SearchGraph.of(graph, PDF_OF_LABEL),
        scores,
        DecoderOptions(beam=BEAM, lattice_beam=LATTICE_BEAM, min_active=0, acoustic_scale=SCALE),
    )
    path = ours.best_path(acoustic_scale=SCALE)
    assert way_of(path)[:2] == (tuple(labels), tuple(words))
    assert path.graph_cost == pytest.approx(weight.value1, abs=2e-3)
    assert SCALE * path.acoustic_cost == pytest.approx(weight.value2, abs=2e-3)
    assert len(words) > 10


@pytest.mark.parametrize("seed", range(6))
def test_lattice_is_as_large_as_that_of_kaldi(seed: int) -> None:
    graph = random_graph(seed, num_states=100, num_arcs=300, num_words=50)
    scores = random_scores(seed, 40)
    config = kaldi_decoder.LatticeSimpleDecoderConfig(beam=1e3, lattice_beam=LATTICE_BEAM)
    fst = fst_of(graph)  # their decoder does not keep it alive
    theirs = kaldi_decoder.LatticeSimpleDecoder(fst, config)
    theirs.decode(decodable(scores))
    _, raw = theirs.get_raw_lattice()
    options = DecoderOptions(beam=1e3, lattice_beam=LATTICE_BEAM, acoustic_scale=SCALE)
    ours = decode(SearchGraph.of(graph, PDF_OF_LABEL), scores, options)
    assert ours.num_states == raw.num_states > 100
    assert ours.num_arcs == sum(raw.num_arcs(state) for state in range(raw.num_states))
