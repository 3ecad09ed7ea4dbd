"""All models, one from the other, learn a language; and adapt to voices they have not heard."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from natgrad.parallel.engines import open_engine
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Corpus, SpeakerTransforms
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.training import GmmTrainer, Schedule
from natgrad.speech.graphs.decoding_graph import decoding_graph
from natgrad.speech.graphs.graph_file import write_graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.recognition import Pass, RecognisedShare, recognise_by_speaker
from natgrad.speech.score import Setting, score
from natgrad.speech.trained import Trained
from tests.speech.toy_language import LEXICON, PHONES, TOPOLOGY, Language, unigrams

NUMBERS = word_symbols(LEXICON)
PLAIN = Setting(10.0, 0.0)
DELTAS = FrontEnd(num_deltas=1)
MONO = Schedule(10, 50, last_growth=7, align_at=(2, 3, 4, 5, 7, 9))
NEXT = Schedule(5, 100, last_growth=4, align_at=(3,))
NUM_LEAVES = 40


@dataclass
class Learned:
    train: Corpus
    voices_are_alike: bool
    models: dict[str, Trained]
    rates: dict[str, float]


def learn(corpus: Corpus) -> dict[str, Trained]:
    with open_engine("inline", 1) as engine:
        trainer = GmmTrainer(corpus.shares(4), LEXICON, engine)
        mono = trainer.flat_start(PHONES, TOPOLOGY, DELTAS, MONO)
        tri = trainer.train_context(mono, DELTAS, NUM_LEAVES, NEXT)
        front_end = trainer.estimate_lda(tri, 1, 1, 6)
        lda = trainer.train_context(tri, front_end, NUM_LEAVES, replace(NEXT, mllt_at=(2,)))
        start = trainer.adapt(lda, NEXT)
        sat = trainer.train_context(
            start, start.model.front_end, NUM_LEAVES, replace(NEXT, fmllr_at=(2, 4))
        )
    return {"mono": mono, "tri": tri, "lda": lda, "sat": sat}


def error_rates(model: AcousticModel, corpus: Corpus, directory: Path) -> list[float]:
    """The word error rates of all passes."""
    graph = decoding_graph(LEXICON, unigrams(), NUMBERS, model.tree, model.states)
    write_graph(directory / "graph", graph)
    one_pass = Pass(directory / "graph", DecoderOptions(), (PLAIN,))
    passes = [one_pass] * (1 if model.unadapted is None else 2)
    parts = [recognise_by_speaker(share, model, passes)[0] for share in corpus.shares(2)]
    rates = []
    for number in range(len(passes)):
        found = RecognisedShare.total(part[number] for part in parts)
        assert found.failures == {}
        words = {key: tuple(map(NUMBERS.name, each[PLAIN])) for key, each in found.words.items()}
        rates.append(score({item.key: item.words or () for item in corpus.items}, words).rate)
    return rates


@pytest.fixture(scope="module", params=[True, False], ids=["voices alike", "voices unlike"])
def learned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Learned:
    path = tmp_path_factory.mktemp("learned")
    language, strength = Language.draw(1), 0.15 if request.param else 0.45
    train = language.record(path / "train", 8, 10, seed=1, strength=strength)
    test = language.record(path / "test", 4, 15, seed=2, strength=strength)
    models = learn(train)
    rates = {}
    for name, trained in models.items():
        *first, rates[name] = error_rates(trained.model, test, path)
        if first:
            rates["sat, unadapted"] = first[0]
    return Learned(train, request.param, models, rates)


def test_language_is_learned_from_a_flat_start(learned: Learned) -> None:
    rates = learned.rates
    if learned.voices_are_alike:
        assert max(rates.values()) < 0.03
    else:  # only who adapts understands voices that are so unlike
        assert min(rates["lda"], rates["sat, unadapted"]) > 0.08
    assert rates["sat"] < 0.02


def scatter_of_speakers(
    trained: Trained, corpus: Corpus, transforms: SpeakerTransforms | None
) -> float:
    """How far apart speakers' means of a pdf are, relative to the means of different pdfs."""
    states, front_end = trained.model.states, trained.model.front_end
    sums: dict[str, list[np.ndarray]] = {}
    for share in corpus.shares(1):
        for item, features in share.read(front_end, transforms):
            pdfs = states.pdf[trained.alignments[item.key]]
            one_hot = np.eye(states.num_pdfs)[pdfs]
            sums.setdefault(item.speaker, []).append(
                np.column_stack([one_hot.T @ features, one_hot.sum(axis=0)])
            )
    totals = np.stack([np.sum(each, axis=0) for each in sums.values()])
    often = (totals[:, :, -1] >= 10).all(axis=0)
    means = totals[:, often, :-1] / totals[:, often, -1:]
    return float(means.var(axis=0).mean() / means.mean(axis=0).var(axis=0).mean())


def test_adaptive_training_brings_speakers_together(learned: Learned) -> None:
    sat = learned.models["sat"]
    assert sat.transforms is not None
    assert sat.transforms.keys() == {item.speaker for item in learned.train.items}
    before = scatter_of_speakers(sat, learned.train, None)
    after = scatter_of_speakers(sat, learned.train, sat.transforms)
    assert after < 0.3 * before


def test_every_utterance_of_the_training_data_was_aligned(learned: Learned) -> None:
    for trained in learned.models.values():
        assert trained.failures == {}
        for item in learned.train.items:
            assert len(trained.alignments[item.key]) == item.num_frames
            spans = trained.model.states.spans(trained.alignments[item.key])
            spoken = [span.phone for span in spans if span.phone not in PHONES.silence_numbers]
            expected = [
                phone
                for word in item.words or ()
                for phone in PHONES.in_word(LEXICON.of(word)[0].sounds)
            ]
            assert spoken == expected
