"""What is where in the directory of a speech recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["DnnFiles", "SpeechFiles", "at_speed"]


def at_speed(name: str, speed: float) -> str:
    """Return what something is called when it is played at a speed.

    >>> at_speed("anna", 1.0), at_speed("anna", 0.9)
    ('anna', 'anna-0.9')
    """
    return name if speed == 1.0 else f"{name}-{speed:g}"


@dataclass(frozen=True)
class DnnFiles:
    """Names in a network's directory."""

    root: Path

    @property
    def alignments(self) -> Path:
        """What the frames are, by the network before; the first has those of the mixtures."""
        return self.root / "alignments.safetensors"

    @property
    def examples(self) -> Path:
        """What the network is trained on."""
        return self.root / "examples"

    @property
    def run(self) -> Path:
        """The run that trains it."""
        return self.root / "run"

    @property
    def priors(self) -> Path:
        """Its priors."""
        return self.root / "priors.safetensors"


@dataclass(frozen=True)
class SpeechFiles:
    """Names in a recipe's directory.

    data/NAME/           data directories
    language/            lexicon.txt, lm.arpa.gz
    features/NAME/       cepstra; features/NAME-SPEED/ of the utterances at another speed
    gmm/NAME/            a model, its alignments, speakers' transforms; gmm/NAME-SPEED/ likewise
    graphs/              decoding graphs, by what they were made of
    decode/SYSTEM/NAME/  words, speakers' transforms
    dnn/                 examples, the training run, priors; dnn-2/ after re-alignment
    results.json         the table, and how each of its figures came about
    """

    root: Path

    def data(self, name: str) -> Path:
        """A data directory."""
        return self.root / "data" / name

    @property
    def lexicon(self) -> Path:
        """All pronunciations, in Kaldi's format."""
        return self.root / "language" / "lexicon.txt"

    @property
    def language_model(self) -> Path:
        """The language model."""
        return self.root / "language" / "lm.arpa.gz"

    def features(self, name: str, speed: float = 1.0) -> Path:
        """The features of a data directory."""
        return self.root / "features" / at_speed(name, speed)

    def gmm(self, name: str, speed: float = 1.0) -> Path:
        """A model, with its alignments and transforms."""
        return self.root / "gmm" / at_speed(name, speed)

    @property
    def graphs(self) -> Path:
        """Decoding graphs."""
        return self.root / "graphs"

    def decoded(self, system: str, name: str) -> Path:
        """What a system recognised."""
        return self.root / "decode" / system / name

    def dnn(self, number: int = 0) -> DnnFiles:
        """The network, or the one after so many re-alignments."""
        return DnnFiles(self.root / (f"dnn-{number + 1}" if number else "dnn"))

    @property
    def results(self) -> Path:
        """The table."""
        return self.root / "results.json"
