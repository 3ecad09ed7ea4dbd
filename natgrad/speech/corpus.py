"""Utterances as workers take them: where their features are, who speaks, what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.features.cmvn import Cmvn
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.features.store import open_features

__all__ = ["Corpus", "Item", "Scorer", "Share", "SpeakerTransforms", "over_shares"]

T = TypeVar("T")
Scorer = Callable[[NDArray[np.float32]], NDArray[np.float32]]  # features to log-likelihoods (T, P)
# (D, D + 1), by speaker; a speaker without one has features as they are.
SpeakerTransforms = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Item:
    """An utterance whose features are in a store."""

    key: str
    speaker: str
    num_frames: int
    words: tuple[str, ...] | None  # None where nobody has said what it is


@dataclass(frozen=True, eq=False)
class Share:
    """Some speakers' utterances: what one worker does at a time. It is small, and is sent whole."""

    features: Path
    items: tuple[Item, ...]
    cmvn: Mapping[str, Cmvn]

    @property
    def num_frames(self) -> int:
        """How many frames the utterances have."""
        return sum(item.num_frames for item in self.items)

    def by_speaker(self) -> dict[str, list[Item]]:
        """Return the utterances of each speaker."""
        speakers: dict[str, list[Item]] = {}
        for item in self.items:
            speakers.setdefault(item.speaker, []).append(item)
        return speakers

    def read(
        self,
        front_end: FrontEnd,
        transforms: SpeakerTransforms | None = None,
        items: Sequence[Item] | None = None,
    ) -> Iterator[tuple[Item, NDArray[np.float32]]]:
        """Yield utterances with their features, by a front end and the speakers' transforms."""
        store = open_features(self.features)
        for item in self.items if items is None else items:
            transform = None if transforms is None else transforms.get(item.speaker)
            single = None if transform is None else transform.astype(np.float32)
            yield item, front_end(store[item.key], self.cmvn.get(item.speaker), single)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Utterances with features in one store, in the order of their keys."""

    features: Path
    items: tuple[Item, ...]
    cmvn: Mapping[str, Cmvn]

    def shares(self, num_shares: int) -> list[Share]:
        """Divide the utterances into shares of whole speakers that are about as long.

        How many there are is not for the number of workers to say: sums over shares are made in
        their order, and so are the same on any number of workers.
        """
        if num_shares < 1:
            raise ValueError(f"{num_shares} shares were asked for; expected 1 at least")
        speakers = Share(self.features, self.items, self.cmvn).by_speaker()
        lengths = {name: sum(i.num_frames for i in items) for name, items in speakers.items()}
        piles: list[list[str]] = [[] for _ in range(min(num_shares, len(speakers)))]
        heights = [0] * len(piles)
        for name in sorted(speakers, key=lambda name: (-lengths[name], name)):
            lowest = heights.index(min(heights))
            piles[lowest].append(name)
            heights[lowest] += lengths[name]
        return [
            Share(
                self.features,
                tuple(item for name in sorted(pile) for item in speakers[name]),
                {name: self.cmvn[name] for name in sorted(pile) if name in self.cmvn},
            )
            for pile in piles
        ]

    def subset(self, keys: Sequence[str]) -> Corpus:
        """Return the corpus with only some of its utterances."""
        wanted = set(keys)
        items = tuple(item for item in self.items if item.key in wanted)
        return Corpus(self.features, items, self.cmvn)


def over_shares(
    executor: Executor,
    function: Callable[..., T],
    shares: Sequence[Share],
    *arguments: Sequence[Any] | Any,
    each: Sequence[Any] | None = None,
    on_done: Callable[[int], object] | None = None,
) -> list[T]:
    """Return function(share, [of this share,] *arguments) for each share, in their order.

    Args:
        executor: runs the calls.
        function: of a module, so that it can be sent.
        shares: the first arguments.
        arguments: the same for all.
        each: a second argument for each share, if there is one.
        on_done: called with the number of frames of a share that is done.
    """
    futures = [
        executor.submit(function, share, *(() if each is None else (each[number],)), *arguments)
        for number, share in enumerate(shares)
    ]
    results = []
    for share, future in zip(shares, futures, strict=True):
        results.append(future.result())
        if on_done is not None:
            on_done(share.num_frames)
    return results
