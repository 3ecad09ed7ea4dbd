"""A language drawn at random, and utterances of it: a decoding task that needs no recordings.

Words have random pronunciations; what follows a word is one of 20 others, some far more often. A
bigram model is estimated from sentences of this kind, and composed with the lexicon to a decoding
graph of monophones. An utterance is a sentence whose HMM states each last some frames; a frame is
the mean of its state's pdf plus noise. So the search is a real one, with errors; scores, of about
a hundred pdfs by one matrix product, cost hardly anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.decoding_task import DecodingTask, Utterance
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.graphs.decoding_graph import decoding_graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.hmm import HmmStates, MonophoneTree, Topology
from natgrad.speech.lexicon.lexicon import Lexicon, Pronunciation
from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.score import Setting

__all__ = ["DrawnSize", "Gaussians", "draw_task"]

NUM_SOUNDS = 36
NUM_FOLLOWERS = 20
_RANKS = 1.0 / np.arange(1, NUM_FOLLOWERS + 1)
FOLLOWING = _RANKS / _RANKS.sum()  # how likely each of them is
SENTENCE_WORDS = (4, 14)
SILENCE_BETWEEN_WORDS = 0.15
STAYING = 0.6  # in a state, for one frame more
DIM = 20
MEAN_STDDEV = 0.43  # of the means of pdfs; the noise has 1


@dataclass(frozen=True)
class DrawnSize:
    """How many words the language has, sentences the text, and utterances there are to decode."""

    num_words: int = 5000
    num_sentences: int = 40_000
    num_utterances: int = 30


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Scores frames by Gaussians of unit variance: (T, D) to (T, P), up to a constant a frame."""

    means: NDArray[np.float32]

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return log-likelihoods."""
        norms = 0.5 * np.square(self.means).sum(axis=1)
        scores: NDArray[np.float32] = features @ self.means.T - norms
        return scores


def draw_task(size: DrawnSize, seed: int = 0) -> DecodingTask:
    """Draw a language and utterances of it; the same every time."""
    random = np.random.default_rng(seed)
    names = [f"W{number:05d}" for number in range(size.num_words)]
    lexicon = _draw_lexicon(names, random)
    followers = random.integers(size.num_words, size=(size.num_words, NUM_FOLLOWERS))
    text = [_draw_sentence(names, followers, random) for _ in range(size.num_sentences)]
    grammar = estimate(
        map(" ".join, text), names, order=2, unknown=None, discounts=SMALL_TEXT_DISCOUNTS
    )
    phones, topology = lexicon.phone_set(marks_position=False), Topology()
    tree = MonophoneTree(phones, topology)
    states = HmmStates.of(phones, topology, tree)
    words = word_symbols(lexicon)
    graph = decoding_graph(lexicon, grammar, words, tree, states)
    means = random.normal(0.0, MEAN_STDDEV, (tree.num_pdfs, DIM)).astype(np.float32)
    utterances = []
    for number in range(size.num_utterances):
        said = _draw_sentence(names, followers, random)
        pdfs = _draw_pdfs(said, lexicon, tree, random)
        frames = means[pdfs] + random.standard_normal((len(pdfs), DIM), dtype=np.float32)
        utterances.append(Utterance(f"drawn-{number:04d}", frames, tuple(said)))
    options = DecoderOptions()
    return DecodingTask(
        f"drawn at random, {size.num_words} words, {graph.num_states} states",
        tuple(utterances),
        SearchGraph.of(graph, states.pdf_of_label),
        words,
        Gaussians(means),
        options,
        Setting(1.0 / options.acoustic_scale, 0.0),
    )


def _draw_lexicon(names: Sequence[str], random: np.random.Generator) -> Lexicon:
    sounds = [f"S{number:02d}" for number in range(NUM_SOUNDS)]
    lengths = random.integers(2, 9, len(names))
    return Lexicon(
        [
            Pronunciation(name, tuple(random.choice(sounds, length).tolist()))
            for name, length in zip(names, lengths, strict=True)
        ]
    )


def _draw_sentence(
    names: Sequence[str], followers: NDArray[np.int64], random: np.random.Generator
) -> list[str]:
    """Return words, each of which follows the one before; the first is as rare as its number."""
    word = int(len(names) * random.random() ** 3)
    sentence = [names[word]]
    for place in random.choice(NUM_FOLLOWERS, random.integers(*SENTENCE_WORDS), p=FOLLOWING):
        word = followers[word, place]
        sentence.append(names[word])
    return sentence


def _draw_pdfs(
    said: Sequence[str], lexicon: Lexicon, tree: MonophoneTree, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return the pdf of each frame, with silences at both ends and between some words."""
    phones = tree.phones
    silence = phones.symbols.number(lexicon.silence)
    uttered = [silence]
    for word in said:
        uttered += phones.in_word(lexicon.of(word)[0].sounds)
        if random.random() < SILENCE_BETWEEN_WORDS:
            uttered.append(silence)
    uttered.append(silence)
    pdfs = [
        tree.pdfs_of_phone(phone, position)[0]
        for phone in uttered
        for position in range(tree.topology.num_states(phones, phone))
    ]
    return np.repeat(pdfs, random.geometric(1.0 - STAYING, len(pdfs)))
