from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from natgrad.parallel.engines import open_engine
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Corpus, over_shares
from natgrad.speech.decoding.decoder import DecoderOptions, decode
from natgrad.speech.decoding.search_graph import SearchGraph, SearchGraphError
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.passes import estimate_transforms
from natgrad.speech.gmm.training import GmmTrainer, Schedule
from natgrad.speech.graphs.decoding_graph import decoding_graph
from natgrad.speech.graphs.grammar_fst import restricted_to
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.graph_file import write_graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.recognition import Pass, RecognisedShare, recognise, recognise_by_speaker
from natgrad.speech.score import Setting, WordErrorRate, score
from tests.speech.toy_language import LEXICON, PHONES, TOPOLOGY, WORDS, Language, unigrams

Floats = NDArray[np.float32]
NUMBERS = word_symbols(LEXICON)
OPTIONS = DecoderOptions()
PLAIN = Setting(10.0, 0.0)
DELTAS = FrontEnd(num_deltas=1)


@dataclass
class Heard:
    """A model, its graph in a file, and utterances that it has not heard before."""

    model: AcousticModel
    graph: Path
    corpus: Corpus

    @property
    def one_pass(self) -> Pass:
        return Pass(self.graph, OPTIONS, (PLAIN,))


def graph_of(model: AcousticModel, words: set[str] | None = None) -> Graph:
    grammar = unigrams() if words is None else restricted_to(unigrams(), words)
    return decoding_graph(LEXICON, grammar, NUMBERS, model.tree, model.states)


def score_words(corpus: Corpus, found: RecognisedShare, setting: Setting = PLAIN) -> WordErrorRate:
    words = {key: tuple(map(NUMBERS.name, each[setting])) for key, each in found.words.items()}
    return score({item.key: item.words or () for item in corpus.items}, words)


@pytest.fixture(scope="module")
def heard(tmp_path_factory: pytest.TempPathFactory) -> Heard:
    path = tmp_path_factory.mktemp("heard")
    language = Language.draw(0)
    train = language.record(path / "train", 3, 10, seed=1)
    schedule = Schedule(6, 30, last_growth=4, align_at=(2, 3, 4, 5))
    with open_engine("inline", 1) as engine:
        trainer = GmmTrainer(train.shares(1), LEXICON, engine)
        model = trainer.flat_start(PHONES, TOPOLOGY, DELTAS, schedule).model
    write_graph(path / "graph", graph_of(model))
    return Heard(model, path / "graph", language.record(path / "test", 2, 3, seed=2))


def test_words_and_alignments_are_those_of_the_lattice_at_each_setting(heard: Heard) -> None:
    model, share = heard.model, heard.corpus.shares(1)[0]
    settings = (PLAIN, Setting(2.0, 0.0), Setting(14.0, 30.0))
    pdfs = model.states.pdf_of_label
    found = recognise(
        share, DELTAS, model.gmms.log_likelihoods, pdfs, Pass(heard.graph, OPTIONS, settings)
    )
    assert found.failures == {}
    assert found.num_frames == share.num_frames
    assert found.seconds > 0
    graph = SearchGraph.of(graph_of(model), pdfs)
    for item, features in share.read(DELTAS):
        lattice = decode(graph, model.gmms.log_likelihoods(features), OPTIONS)
        for weight, penalty in settings:
            path = lattice.best_path(acoustic_scale=1 / weight, word_penalty=penalty)
            assert found.words[item.key][Setting(weight, penalty)] == path.words
        best = lattice.best_path(acoustic_scale=OPTIONS.acoustic_scale)
        np.testing.assert_array_equal(found.alignments[item.key], best.alignment)
    few, many = (score_words(heard.corpus, found, each).total for each in (settings[2], PLAIN))
    assert few.deletions > many.deletions


def with_one_broken(scorer: Callable[[Floats], Floats], num_frames: int) -> Callable[..., Floats]:
    def score(features: Floats) -> Floats:
        scores = scorer(features)
        return scores * np.nan if len(features) == num_frames else scores

    return score


def test_utterance_that_cannot_be_decoded_is_named_and_changes_no_other(heard: Heard) -> None:
    share = heard.corpus.shares(1)[0]
    scorer, pdfs = heard.model.gmms.log_likelihoods, heard.model.states.pdf_of_label
    expected = recognise(share, DELTAS, scorer, pdfs, heard.one_pass)
    bad = share.items[1]
    assert [item.num_frames for item in share.items].count(bad.num_frames) == 1
    broken = with_one_broken(scorer, bad.num_frames)
    found = recognise(share, DELTAS, broken, pdfs, heard.one_pass)
    assert list(found.failures) == [bad.key]
    assert found.failures[bad.key]
    del expected.words[bad.key], expected.alignments[bad.key]
    assert found.words == expected.words
    for key, alignment in expected.alignments.items():
        np.testing.assert_array_equal(found.alignments[key], alignment)
    assert found.num_frames == share.num_frames - bad.num_frames


def test_utterance_that_breaks_off_is_told_as_unfinished(heard: Heard) -> None:
    share = heard.corpus.shares(1)[0]
    model = heard.model
    narrow = Pass(heard.graph, DecoderOptions(beam=1.0, min_active=1), (PLAIN,))
    pdfs = model.states.pdf_of_label

    def cut(features: Floats) -> Floats:
        return model.gmms.log_likelihoods(features[:8])

    found = recognise(share, DELTAS, cut, pdfs, narrow)
    assert found.unfinished
    assert set(found.unfinished) <= found.words.keys()


def test_graph_that_was_written_anew_is_read_anew(heard: Heard, tmp_path: Path) -> None:
    share, model = heard.corpus.shares(1)[0], heard.model
    one_pass = replace(heard.one_pass, graph=tmp_path / "graph")
    pdfs = model.states.pdf_of_label
    for words in ({"TAB", "POT"}, {"BA", "PIT", "TI"}, set(WORDS)):
        write_graph(one_pass.graph, graph_of(model, words))
        found = recognise(share, DELTAS, model.gmms.log_likelihoods, pdfs, one_pass)
        said = {NUMBERS.name(n) for each in found.words.values() for n in each[PLAIN]}
        assert said <= words


def test_graph_of_another_model_is_refused_by_file(heard: Heard) -> None:
    share, model = heard.corpus.shares(1)[0], heard.model
    few = model.states.pdf_of_label[:3]
    with pytest.raises(SearchGraphError, match=rf"^{heard.graph}: the graph's labels are"):
        recognise(share, DELTAS, model.gmms.log_likelihoods, few, heard.one_pass)


@pytest.mark.parametrize("bad", [(0.0, 0.0), (-1.0, 0.0), (np.inf, 0.0), (10.0, np.nan)])
def test_settings_that_give_no_scale_are_refused(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=f"lm_weight {bad[0]} and the word_penalty {bad[1]};"):
        Pass(Path("graph"), OPTIONS, (PLAIN, Setting(*bad)))
    with pytest.raises(ValueError, match="no setting"):
        Pass(Path("graph"), OPTIONS, ())


def test_parts_add_up_to_all(heard: Heard) -> None:
    scorer, pdfs = heard.model.gmms.log_likelihoods, heard.model.states.pdf_of_label
    with open_engine("inline", 1) as engine:
        parts, whole = (
            over_shares(
                engine, recognise, heard.corpus.shares(n), DELTAS, scorer, pdfs, heard.one_pass
            )
            for n in (2, 1)
        )
    total = RecognisedShare.total(parts)
    assert len(parts) == 2
    assert total.words == whole[0].words
    assert total.num_frames == whole[0].num_frames
    assert total.seconds == pytest.approx(sum(part.seconds for part in parts))
    assert score_words(heard.corpus, total).total.rate < 0.05


def test_model_without_transforms_is_decoded_in_one_pass(heard: Heard) -> None:
    share = heard.corpus.shares(1)[0]
    passes, transforms = recognise_by_speaker(share, heard.model, [heard.one_pass])
    assert len(passes) == 1
    assert transforms == {}
    assert passes[0].words.keys() == {item.key for item in share.items}


def test_first_pass_is_unadapted_and_the_next_have_the_transforms_of_the_one_before(
    heard: Heard,
) -> None:
    share, gmms = heard.corpus.shares(1)[0], heard.model.gmms
    blurred = replace(gmms, variances=gmms.variances * 30)
    model = replace(heard.model, unadapted=blurred)
    one_pass = replace(heard.one_pass, settings=(PLAIN, Setting(2.0, 0.0)))
    pdfs = model.states.pdf_of_label
    (first, second), transforms = recognise_by_speaker(share, model, [one_pass] * 2)
    expected = recognise(share, DELTAS, blurred.log_likelihoods, pdfs, one_pass)
    assert first.words == expected.words
    assert transforms.keys() == set(share.by_speaker())
    suggested = estimate_transforms(share, first.alignments, model, None, 3)
    adapted = recognise(share, DELTAS, gmms.log_likelihoods, pdfs, one_pass, suggested)
    assert second.words == adapted.words
    for key, alignment in adapted.alignments.items():
        np.testing.assert_array_equal(second.alignments[key], alignment)
    assert first.words != second.words
    for speaker, transform in estimate_transforms(
        share, second.alignments, model, suggested, 3
    ).items():
        np.testing.assert_array_equal(transforms[speaker], transform)
