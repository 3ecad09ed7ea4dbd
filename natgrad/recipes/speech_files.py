"""What is where in the directory of a speech recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SpeechFiles"]


@dataclass(frozen=True)
class SpeechFiles:
    """Names in a recipe's directory.

    data/NAME/           data directories
    language/            lexicon.txt, lm.arpa.gz
    features/NAME/       cepstra
    gmm/NAME/            a model, its alignments, speakers' transforms
    graphs/              decoding graphs, by what they were made of
    decode/SYSTEM/NAME/  words, speakers' transforms
    dnn/                 examples, the training run, priors
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

    def features(self, name: str) -> Path:
        """The features of a data directory."""
        return self.root / "features" / name

    def gmm(self, name: str) -> Path:
        """A model, with its alignments and transforms."""
        return self.root / "gmm" / name

    @property
    def graphs(self) -> Path:
        """Decoding graphs."""
        return self.root / "graphs"

    def decoded(self, system: str, name: str) -> Path:
        """What a system recognised."""
        return self.root / "decode" / system / name

    @property
    def examples(self) -> Path:
        """What the network is trained on."""
        return self.root / "dnn" / "examples"

    @property
    def network(self) -> Path:
        """The run that trains the network."""
        return self.root / "dnn" / "run"

    @property
    def priors(self) -> Path:
        """The network's priors."""
        return self.root / "dnn" / "priors.safetensors"

    @property
    def results(self) -> Path:
        """The table."""
        return self.root / "results.json"
