"""All choices of a speech recipe."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from natgrad.recipes.train_config import CombinationConfig, NetworkShape, TrainingConfig
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.features.mfcc import MfccOptions
from natgrad.speech.gmm.training import Schedule
from natgrad.speech.hmm import Topology
from natgrad.speech.score import Setting

__all__ = [
    "ALIGN_MONOPHONES_AT",
    "ContextModel",
    "Decoding",
    "DnnConfig",
    "SpeechConfig",
    "settings_grid",
]

# As in Kaldi's recipes: often at first, as a flat start is far from the truth.
ALIGN_MONOPHONES_AT = (*range(2, 11), 12, 14, 16, 18, 20, 23, 26, 29, 32, 35, 38)


@dataclass(frozen=True)
class ContextModel:
    """How many pdfs a model of phones in context has, and how it is trained."""

    num_leaves: int
    schedule: Schedule


@dataclass(frozen=True)
class Decoding:
    """How utterances are decoded.

    Args:
        first: the search without speakers' transforms.
        next: the searches with them, of which each begins with the words of the one before.
        settings: language-model weights and word penalties to choose from.
    """

    first: DecoderOptions
    next: tuple[DecoderOptions, ...]
    settings: tuple[Setting, ...]


@dataclass(frozen=True)
class DnnConfig:
    """The network DNN1, what it sees and how it is trained (section 6.1).

    Args:
        context: frames that it sees before and after each.
        network: its shape.
        training: epochs, jobs, learning rates.
        combination: of the last models.
        samples_per_job: K of the paper.
        validation_samples: held out, as whole utterances.
        train_subset_samples: copied for diagnostics, priors and combination.
        piece_frames: of the pieces that utterances are scattered in; see `natgrad.data.build`.
        decoder: the search; its acoustic scale is that of posteriors over priors.
        num_realignments: how often the network aligns the training utterances, and another one is
            trained on that.
        other_speeds: it learns from the training utterances at these speeds too.
    """

    context: int
    network: NetworkShape
    training: TrainingConfig
    combination: CombinationConfig
    samples_per_job: int
    validation_samples: int
    train_subset_samples: int
    piece_frames: int | None
    decoder: DecoderOptions
    num_realignments: int = 0
    other_speeds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        # Their names are those of stages, utterances and files; 1 is that of what was recorded.
        names = {f"{speed:g}" for speed in (1.0, *self.other_speeds)}
        if len(names) <= len(self.other_speeds) or not all(s > 0 for s in self.other_speeds):
            raise ValueError(
                f"other_speeds are {self.other_speeds}: expected positive ones, no two the same, "
                "and none of them 1, which is always learned from"
            )


@dataclass(frozen=True)
class SpeechConfig:
    """A recipe.

    Args:
        name: of the corpus.
        tune, report: the data directories whose errors the settings are chosen by, and that are
            reported. If they are the same, each speaker is recognised with the setting that is best
            for all others.
        mfcc: features, and so the sample rate.
        normalize_variance: whether speakers' cepstra have not only a mean of zero but also a
            variance of one.
        monophone, triphone, lda_mllt, sat: the models, each of which gives the next its alignments.
        monophone_utterances: monophones are trained on so many of the shortest; None means all.
        lda_context, lda_dim: of the frames that LDA sees, and what it makes of them.
        decoded: which of the models ("mono", "tri", "lda", "sat") are decoded.
        dnn: the network.
    """

    name: str
    tune: str
    report: str
    mfcc: MfccOptions
    monophone: Schedule
    triphone: ContextModel
    lda_mllt: ContextModel
    sat: ContextModel
    decoding: Decoding
    dnn: DnnConfig
    decoded: tuple[str, ...]
    monophone_utterances: int | None = None
    lda_context: int = 3
    lda_dim: int = 40
    topology: Topology = field(default_factory=Topology)
    silence_probability: float = 0.5
    marks_position: bool = True
    normalize_variance: bool = False


def settings_grid(
    lm_weights: tuple[float, ...], word_penalties: tuple[float, ...]
) -> tuple[Setting, ...]:
    """Return all pairs of a language-model weight and a word penalty."""
    return tuple(Setting(*pair) for pair in product(lm_weights, word_penalties))
