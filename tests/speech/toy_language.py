"""A language of a few words, spoken as cepstra that are drawn from Gaussians; there is no audio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.corpus import Corpus, Item
from natgrad.speech.features.cmvn import speaker_means
from natgrad.speech.features.store import open_features, write_features
from natgrad.speech.hmm import Topology
from natgrad.speech.lexicon.lexicon import Lexicon, Pronunciation
from natgrad.speech.lm.ngram import BEGIN, END, IMPOSSIBLE, NgramModel
from natgrad.speech.trained import Trained
from tests.speech.toy_grammars import model_of

Doubles = NDArray[np.float64]

WORDS = {
    "BA": "B A",
    "TAB": "T A B",
    "TOP": "T O P",
    "POT": "P O T",
    "ABO": "A B O",
    "PIT": "P I T",
    "TI": "T I",
    "OBI": "O B I",
}
LEXICON = Lexicon(
    [Pronunciation(word, tuple(sounds.split())) for word, sounds in WORDS.items()],
    silence_probability=0.4,
)
PHONES = LEXICON.phone_set()
TOPOLOGY = Topology(speech_states=2, silence_states=2)
DIM = 4


@dataclass(frozen=True)
class Voice:
    """What becomes of the cepstra when a speaker utters them: A x + b."""

    matrix: Doubles
    offset: Doubles

    @staticmethod
    def draw(random: np.random.Generator, strength: float) -> Voice:
        matrix = np.eye(DIM) + strength * random.normal(size=(DIM, DIM))
        return Voice(matrix, random.normal(size=DIM))


@dataclass(frozen=True)
class Language:
    """The mean of each state of each sound, and what the sounds beside it add to it."""

    means: Mapping[tuple[str, int], Doubles]
    effects: Mapping[str, Doubles]

    @staticmethod
    def draw(seed: int) -> Language:
        random = np.random.default_rng(seed)
        means = {
            (sound, position): random.normal(0, 2.5, DIM)
            for sound in PHONES.sounds
            for position in range(2)
        }
        means["SIL", 1] = means["SIL", 0]
        return Language(means, {sound: random.normal(0, 0.8, DIM) for sound in PHONES.speech})

    def utter(
        self, words: Sequence[str], voice: Voice, random: np.random.Generator
    ) -> NDArray[np.float32]:
        """Return (T, D) cepstra of words, with silences at both ends and some between words."""
        sounds = ["SIL"]
        for word in words:
            sounds += WORDS[word].split()
            sounds += ["SIL"] * int(random.random() < 0.3)
        sounds += ["SIL"] * (sounds[-1] != "SIL")
        frames = []
        for place, sound in enumerate(sounds):
            for position in range(2):
                mean = self.means[sound, position]
                if sound != "SIL":
                    mean = mean + self.effects.get(sounds[place + 2 * position - 1], 0.0)
                frames.append(random.normal(mean, 0.7, (random.integers(2, 5), DIM)))
        return (np.concatenate(frames) @ voice.matrix.T + voice.offset).astype(np.float32)

    def record(
        self,
        path: Path,
        num_speakers: int,
        per_speaker: int,
        seed: int,
        strength: float = 0.0,
        num_words: int = 5,
    ) -> Corpus:
        """Write features of random utterances by speakers with voices of their own."""
        random = np.random.default_rng(seed)
        cepstra, items = {}, []
        for number in range(num_speakers):
            speaker, voice = f"speaker{seed}-{number}", Voice.draw(random, strength)
            for count in range(per_speaker):
                key = f"{speaker}-{count:02}"
                words = tuple(str(word) for word in random.choice(list(WORDS), num_words))
                cepstra[key] = self.utter(words, voice, random)
                items.append(Item(key, speaker, len(cepstra[key]), words))
        write_features(path, cepstra.items())
        return corpus_of(path, items)


def corpus_of(path: Path, items: Sequence[Item]) -> Corpus:
    """Return a corpus of utterances whose features are in a store."""
    speakers: dict[str, list[str]] = {}
    for item in items:
        speakers.setdefault(item.speaker, []).append(item.key)
    return Corpus(path, tuple(items), speaker_means(open_features(path), speakers))


def with_more(
    corpus: Corpus, path: Path, more: Sequence[tuple[Item, NDArray[np.float32]]]
) -> Corpus:
    """Return the corpus with utterances added, in a store of its own; means stay as they are."""
    store = open_features(corpus.features)
    cepstra = {item.key: store[item.key] for item in corpus.items}
    cepstra |= {item.key: features for item, features in more}
    write_features(path, sorted(cepstra.items()))
    items = sorted([*corpus.items, *(item for item, _ in more)], key=lambda item: item.key)
    return replace(corpus, features=path, items=tuple(items))


def unigrams() -> NgramModel:
    """A language model that finds all words as likely, and an end after each with 1 / 6."""
    each = float(np.log(5 / 6 / len(WORDS)))
    entries: dict[tuple[str, ...], tuple[float, float]] = {(word,): (each, 0.0) for word in WORDS}
    entries[BEGIN,] = (IMPOSSIBLE, 0.0)
    entries[END,] = (float(np.log(1 / 6)), 0.0)
    return model_of(entries)


def files_of(trained: Trained, directory: Path) -> dict[str, bytes]:
    """Write all of a trained model, and return the bytes: equal ones are of equal models."""
    trained.write(directory)
    return {file.name: file.read_bytes() for file in directory.iterdir()}
