from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Item, Share
from natgrad.speech.features.cmvn import Cmvn
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.store import FeatureStore, open_features, write_features
from natgrad.speech.gmm import passes as gmm_passes
from natgrad.speech.gmm.align import Alignment, align
from natgrad.speech.gmm.fmllr import FmllrStatistics, apply_affine, estimate_fmllr
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.gmm.statistics import update
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.graphs.training_graph import TrainingGraphs
from natgrad.speech.hmm import HmmStates, MonophoneTree
from tests.speech.mixtures import draw_mixtures, literal_scores
from tests.speech.toy_language import DIM, LEXICON, PHONES, TOPOLOGY, Language, Voice

Floats = NDArray[np.float32]

TREE = MonophoneTree(PHONES, TOPOLOGY)
STATES = HmmStates.of(PHONES, TOPOLOGY, TREE)


def true_model(language: Language) -> AcousticModel:
    """The model that the language's frames are drawn from, if sounds do not change by others."""
    means = np.zeros((TREE.num_pdfs, DIM))
    sounds = PHONES.sound_of[STATES.phone]
    for sound, position, pdf in zip(sounds, STATES.position, STATES.pdf, strict=True):
        means[pdf] = language.means[PHONES.sounds[sound], int(position)]
    return AcousticModel(FrontEnd(), TREE, STATES, GmmSet.single(means, np.full_like(means, 0.49)))


@pytest.fixture
def language() -> Language:
    drawn = Language.draw(3)
    return replace(drawn, effects={})


def share_of(path: Path, cepstra: dict[str, Floats], words: dict[str, tuple[str, ...]]) -> Share:
    """Speakers are named before the "-" of a key."""
    write_features(path, cepstra.items())
    items = tuple(
        Item(key, key.split("-")[0], len(cepstra[key]), words.get(key)) for key in cepstra
    )
    return Share(path, items, {})


def align_all(share: Share, model: AcousticModel) -> gmm_passes.AlignedShare:
    return gmm_passes.align_share(share, LEXICON, model, None, 20.0, 80.0, 0.1)


def test_alignment_by_some_pdfs_is_that_by_all(language: Language, tmp_path: Path) -> None:
    random, voice = np.random.default_rng(0), Voice(np.eye(DIM), np.zeros(DIM))
    words = ("TAB", "POT", "OBI")
    share = share_of(tmp_path, {"a-1": language.utter(words, voice, random)}, {"a-1": words})
    model = true_model(language)
    found = align_all(share, model)
    graph = TrainingGraphs(LEXICON, word_symbols(LEXICON), TREE, STATES).graph(words)
    features = open_features(tmp_path)["a-1"]
    expected = align(graph, STATES.pdf_of_label, model.gmms.log_likelihoods(features))
    assert isinstance(expected, Alignment)
    np.testing.assert_array_equal(found.alignments["a-1"], expected.states)
    assert found.log_likelihood == pytest.approx(expected.log_likelihood, rel=1e-5)


def test_alignment_by_another_scorer_is_by_its_scores(language: Language, tmp_path: Path) -> None:
    random, voice = np.random.default_rng(0), Voice(np.eye(DIM), np.zeros(DIM))
    words = ("TAB", "POT", "OBI")
    share = share_of(tmp_path, {"a-1": language.utter(words, voice, random)}, {"a-1": words})
    model = true_model(language)
    expected = align_all(share, model).alignments["a-1"]
    senseless = replace(model, gmms=GmmSet.flat(np.zeros(DIM), np.ones(DIM), TREE.num_pdfs))
    arguments = (LEXICON, senseless, None, 20.0, 80.0, 0.1)
    by_scorer = gmm_passes.align_share(share, *arguments, model.gmms.log_likelihoods)
    np.testing.assert_array_equal(by_scorer.alignments["a-1"], expected)
    by_mixtures = gmm_passes.align_share(share, *arguments)
    assert (by_mixtures.alignments["a-1"] != expected).any()


def test_utterances_that_cannot_be_aligned_are_named_with_the_reason(
    language: Language, tmp_path: Path
) -> None:
    random, voice = np.random.default_rng(0), Voice(np.eye(DIM), np.zeros(DIM))
    good = language.utter(("TAB", "POT"), voice, random)
    words = {
        "a-good": ("TAB", "POT"),
        "a-empty": (),
        "a-unknown": ("TAB", "XYZZY"),
        "a-short": ("TAB", "POT"),
    }
    cepstra = dict.fromkeys([*words, "a-untold"], good) | {"a-short": good[:5]}
    share = share_of(tmp_path / "all", cepstra, words)
    alone = share_of(tmp_path / "alone", {"a-good": good}, words)
    for found, expected in (
        (align_all(share, true_model(language)), align_all(alone, true_model(language))),
        (
            gmm_passes.align_equally(share, LEXICON, TREE, STATES),
            gmm_passes.align_equally(alone, LEXICON, TREE, STATES),
        ),
    ):
        assert list(found.alignments) == ["a-good"]
        np.testing.assert_array_equal(found.alignments["a-good"], expected.alignments["a-good"])
        assert "without words" in found.failures["a-empty"]
        assert "without words" in found.failures["a-untold"]
        assert "the word XYZZY is not in the lexicon" in found.failures["a-unknown"]
        assert "too short: 5 frames, and its transcript needs 12" in found.failures["a-short"]


def spoken_by(
    language: Language, voices: dict[str, Voice], tmp_path: Path
) -> tuple[Share, Share, dict[str, NDArray[np.int32]]]:
    """The same utterances by plain voices and by others; and how they are aligned."""
    plain, distorted, words = {}, {}, {}
    random = np.random.default_rng(5)
    for speaker, voice in voices.items():
        for number in range(12):
            key = f"{speaker}-{number:02}"
            words[key] = tuple(str(w) for w in random.choice(["TAB", "POT", "OBI", "PIT"], 6))
            plain[key] = language.utter(words[key], Voice(np.eye(DIM), np.zeros(DIM)), random)
            distorted[key] = apply_affine(np.column_stack([voice.matrix, voice.offset]), plain[key])
    share = share_of(tmp_path / "plain", plain, words)
    alignments = align_all(share, true_model(language)).alignments
    return share, share_of(tmp_path / "distorted", distorted, words), alignments


def test_speakers_transforms_undo_what_their_voices_do(language: Language, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    voices = {name: Voice.draw(random, 0.4) for name in ("a", "b")}
    plain, distorted, alignments = spoken_by(language, voices, tmp_path)
    found = gmm_passes.estimate_transforms(distorted, alignments, true_model(language), None)
    assert found.keys() == voices.keys()
    as_plain = dict(plain.read(FrontEnd()))
    errors, distances = [], []
    adapted = distorted.read(FrontEnd(), found)
    for (item, features), (_, unadapted) in zip(adapted, distorted.read(FrontEnd()), strict=True):
        errors.append(np.square(features - as_plain[item]).mean())
        distances.append(np.square(unadapted - as_plain[item]).mean())
    assert np.mean(errors) < 0.02 * np.mean(distances)


def test_silence_hardly_matters_for_a_speakers_transform(
    language: Language, tmp_path: Path
) -> None:
    voices = {"a": Voice.draw(np.random.default_rng(2), 0.3)}
    _, distorted, alignments = spoken_by(language, voices, tmp_path)
    model = true_model(language)
    noisy = {}
    for item, features in distorted.read(FrontEnd()):
        is_silence = STATES.is_silence[alignments[item.key]]
        noisy[item.key] = features + 3 * is_silence[:, None].astype(np.float32)
        assert is_silence.any()
    found = gmm_passes.estimate_transforms(distorted, alignments, model, None)["a"]
    others = share_of(tmp_path / "noisy", noisy, {})
    in_noise = gmm_passes.estimate_transforms(others, alignments, model, None)["a"]
    np.testing.assert_allclose(in_noise, found, atol=0.05)


def test_transform_is_judged_by_the_features_that_the_last_one_made(
    language: Language, tmp_path: Path
) -> None:
    voices = {"a": Voice.draw(np.random.default_rng(4), 0.3)}
    _, share, alignments = spoken_by(language, voices, tmp_path)
    gmms = draw_mixtures([3] * TREE.num_pdfs, DIM, seed=5)
    model = AcousticModel(FrontEnd(), TREE, STATES, gmms)
    start = np.random.default_rng(6).normal(size=(DIM, DIM + 1))
    found = gmm_passes.estimate_transforms(share, alignments, model, {"a": start}, num_rounds=1)
    statistics = FmllrStatistics.zeros(DIM)
    for item, features in share.read(FrontEnd()):
        states = alignments[item.key]
        weights = np.where(STATES.is_silence[states], 0.01, 1.0)
        judged = apply_affine(start, features)
        posteriors = gmms.posteriors(judged, STATES.pdf[states], weights)
        statistics.add_posteriors(features, posteriors, gmms)
    expected = estimate_fmllr(statistics, start=start).transform
    np.testing.assert_allclose(found["a"], expected, rtol=1e-6)


def test_speaker_without_alignments_keeps_the_transform_that_there_was(
    language: Language, tmp_path: Path
) -> None:
    voices = {"a": Voice(np.eye(DIM), np.zeros(DIM)), "b": Voice(np.eye(DIM), np.zeros(DIM))}
    share, _, alignments = spoken_by(language, voices, tmp_path)
    of_a = {key: states for key, states in alignments.items() if key.startswith("a")}
    model = true_model(language)
    assert gmm_passes.estimate_transforms(share, of_a, model, None).keys() == {"a"}
    before = np.full((DIM, DIM + 1), 0.5)
    found = gmm_passes.estimate_transforms(share, of_a, model, {"b": before})
    assert found.keys() == {"a", "b"}
    np.testing.assert_array_equal(found["b"], before)


def test_unadapted_mixtures_are_those_of_the_frames_of_each_adapted_gaussian(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(0)
    cepstra = {f"a-{n}": random.normal(size=(200, 2)).astype(np.float32) for n in range(2)}
    share = share_of(tmp_path, cepstra, {})
    gmms = draw_mixtures([3] * TREE.num_pdfs, 2, seed=1)
    model = AcousticModel(FrontEnd(), TREE, STATES, gmms)
    alignments = {key: random.integers(0, len(STATES), 200).astype(np.int32) for key in cepstra}
    transform = random.normal(size=(2, 3))
    statistics = gmm_passes.count_for_unadapted(share, alignments, model, {"a": transform})
    found = update(gmms, statistics, least_count=0.0, least_weight=0.0)

    store = open_features(tmp_path)
    pdf = 4
    plain = np.concatenate(
        [store[key][STATES.pdf[alignments[key]] == pdf] for key in cepstra]
    ).astype(np.float64)
    adapted = (plain @ transform[:, :2].T + transform[:, 2]).astype(np.float32)
    scores = np.exp(literal_scores(gmms, adapted)[:, 3 * pdf : 3 * pdf + 3])
    posteriors = scores / scores.sum(axis=1, keepdims=True)
    means = posteriors.T @ plain / posteriors.sum(axis=0)[:, None]
    np.testing.assert_allclose(found.means[3 * pdf : 3 * pdf + 3], means, rtol=1e-4, atol=1e-5)


def test_moments_are_of_aligned_utterances_as_the_front_end_gives_them(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    cepstra = {f"a-{n}": random.normal(size=(50, 2)).astype(np.float32) for n in range(3)}
    cmvn = {"a": Cmvn(np.full(2, 5, np.float32), np.ones(2, np.float32))}
    share = replace(share_of(tmp_path, cepstra, {}), cmvn=cmvn)
    aligned = {key: np.zeros(50, np.int32) for key in ("a-0", "a-2")}
    found = gmm_passes.count_features(share, aligned, FrontEnd(num_deltas=1))
    both = np.concatenate([cepstra["a-0"], cepstra["a-2"]])
    assert (found.count, found.total.shape) == (100, (4,))
    np.testing.assert_allclose(found.total[:2] / 100, both.mean(axis=0) + 5, rtol=1e-3)


def test_alignment_of_other_features_is_refused_with_its_utterance(tmp_path: Path) -> None:
    share = share_of(tmp_path, {"a-1": np.ones((5, DIM), np.float32)}, {})
    stale = {"a-1": np.zeros(4, np.int32)}
    model = AcousticModel(FrontEnd(), TREE, STATES, draw_mixtures([1] * TREE.num_pdfs, DIM, 0))
    message = "the alignment of a-1 has 4 frames, its features in .* have 5"
    with pytest.raises(ValueError, match=message):
        gmm_passes.count_for_gmms(share, stale, model, None)
    with pytest.raises(ValueError, match=message):
        gmm_passes.count_for_tree(share, stale, FrontEnd(), STATES, None)
    with pytest.raises(ValueError, match=message):
        gmm_passes.estimate_transforms(share, stale, model, None)


def test_features_are_not_opened_anew_for_each_speaker(
    language: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Voice(np.eye(DIM), np.zeros(DIM))
    share, _, alignments = spoken_by(language, dict.fromkeys("abcd", plain), tmp_path)
    opened = []

    def count_and_open(path: Path) -> FeatureStore:
        opened.append(path)
        return open_features(path)

    monkeypatch.setattr("natgrad.speech.corpus.open_features", count_and_open)
    found = gmm_passes.estimate_transforms(share, alignments, true_model(language), None, 2)
    assert found.keys() == set("abcd")
    assert len(opened) == 2


def test_transform_of_a_speaker_does_not_depend_on_who_else_is_in_the_share(
    language: Language, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    voices = {name: Voice.draw(random, 0.4) for name in ("a", "b")}
    _, share, alignments = spoken_by(language, voices, tmp_path)
    by_turns = tuple(
        item for pair in zip(*share.by_speaker().values(), strict=True) for item in pair
    )
    together = gmm_passes.estimate_transforms(
        replace(share, items=by_turns), alignments, true_model(language), None
    )
    for speaker, items in share.by_speaker().items():
        alone = replace(share, items=tuple(items))
        found = gmm_passes.estimate_transforms(alone, alignments, true_model(language), None)
        np.testing.assert_array_equal(together[speaker], found[speaker])
