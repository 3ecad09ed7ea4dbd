"""DNN1: examples from alignments, the network, and its scores for the decoder (section 6.1).

A decoder takes log p(y|x) - log p(y), which is log p(x|y) up to a constant of each frame. The
priors are the mean posterior of the network itself over training frames, not the counts of the
alignments: it is what the network believes that must be divided out (appendix C.5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from natgrad.data import Block, Examples, Segment
from natgrad.nn import Network
from natgrad.recipes.network_job import EVALUATION_SIZE, restore
from natgrad.run.model_file import read_model, write_model
from natgrad.speech.corpus import Corpus, Share, SpeakerTransforms
from natgrad.speech.features.deltas import splice
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.trained import Alignments, Trained

__all__ = ["AlignedSource", "NetworkScorer", "choose_held_out", "estimate_priors", "sources_of"]

SMALLEST_PRIOR = 1e-8  # a class that never occurs must not be the best answer to everything
# With ten samples to a class, log-priors were off by 0.7, and errors by a few percent.
SAMPLES_PER_PRIOR = 150


@dataclass(frozen=True, eq=False)
class AlignedSource:
    """Yields a share's aligned utterances, each frame with the label of its state."""

    share: Share
    alignments: Alignments
    front_end: FrontEnd
    transforms: SpeakerTransforms | None
    label_of_state: NDArray[np.int32]

    def __call__(self) -> Iterator[Segment]:
        """Yield the utterances; see `natgrad.data.build`."""
        kept = [item for item in self.share.items if item.key in self.alignments]
        for item, features in self.share.read(self.front_end, self.transforms, kept):
            yield Segment(item.key, features, self.label_of_state[self.alignments[item.key]])


def sources_of(
    shares: Sequence[Share], trained: Trained, label_of_state: NDArray[np.int32]
) -> list[AlignedSource]:
    """Return the sources of examples that shares of aligned utterances are."""
    return [
        AlignedSource(
            share,
            {i.key: trained.alignments[i.key] for i in share.items if i.key in trained.alignments},
            trained.model.front_end,
            trained.transforms,
            label_of_state,
        )
        for share in shares
    ]


def choose_held_out(corpus: Corpus, num_frames: int, seed: int = 0) -> set[str]:
    """Return the keys of utterances, drawn at random, that have about as many frames."""
    chosen: set[str] = set()
    for place in np.random.default_rng(seed).permutation(len(corpus.items)):
        if num_frames <= 0:
            break
        item = corpus.items[place]
        chosen.add(item.key)
        num_frames -= item.num_frames
    return chosen


@dataclass(frozen=True)
class NetworkScorer:
    """Scores features by a network: it takes (T, D), and gives (T, P) log-likelihoods.

    It is small, as it reads the network where it is first called.
    """

    model: Path
    priors: Path
    left: int
    right: int

    def __call__(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the log-likelihoods of all pdfs, each frame's up to a constant."""
        files = self.model.stat(), self.priors.stat()
        version = tuple((file.st_ino, file.st_mtime_ns) for file in files)
        network, log_priors = _loaded(self.model, self.priors, version)
        spliced = torch.from_numpy(splice(features, self.left, self.right))
        with torch.inference_mode():
            scores = torch.cat(
                [network.log_posteriors(part) for part in spliced.split(EVALUATION_SIZE)]
            )
            return (scores - log_priors).numpy()


@lru_cache(maxsize=2)
def _loaded(
    model: Path, priors: Path, version: tuple[tuple[int, int], ...]
) -> tuple[Network, Tensor]:
    """Read them once in each process, and again when others were written in their place."""
    log_priors = read_model(priors).tensors["priors"].clamp_min(SMALLEST_PRIOR).log()
    return restore(read_model(model)).eval(), log_priors.float()


def estimate_priors(model: Path, examples: Examples, out: Path) -> Mapping[str, float]:
    """Write the mean posterior of each class, in float64.

    It is taken over as many training blocks, spread evenly over all, as give each class enough
    samples on average.
    """
    network = restore(read_model(model)).eval()
    wanted = SAMPLES_PER_PRIOR * examples.num_classes
    num_blocks = min(-(-wanted * examples.num_blocks // examples.num_samples), examples.num_blocks)
    total = torch.zeros(examples.num_classes, dtype=torch.float64)
    num_samples = 0
    with torch.inference_mode():
        for number in range(num_blocks):
            block = Block.read(examples.block_paths[number * examples.num_blocks // num_blocks])
            num_samples += block.num_samples
            for minibatch in block.minibatches(EVALUATION_SIZE, seed=0):
                total += network.log_posteriors(minibatch.features).double().exp().sum(dim=0)
    priors = total / total.sum()
    write_model(out, {"priors": priors}, {"kind": "priors", "num_samples": num_samples})
    return {
        "smallest": float(priors.min()),
        "largest": float(priors.max()),
        "samples": num_samples,
    }
