"""What every stage of a speech recipe works with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace

from natgrad.parallel.engines import open_engine
from natgrad.parallel.resubmit import Resubmitting
from natgrad.recipes.speech_config import SpeechConfig
from natgrad.recipes.speech_files import SpeechFiles, at_speed
from natgrad.recipes.train_config import EngineConfig
from natgrad.speech.corpus import Corpus, Item, Share
from natgrad.speech.data.directory import DataDirectory
from natgrad.speech.features.cmvn import speaker_means
from natgrad.speech.features.store import open_features
from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.lexicon.lexicon import Lexicon

__all__ = ["Progress", "Workshop"]

# Given what is done and how much of it there is: something to call with how much more is done.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]

# Sums are taken over shares in their order, so this must not depend on the number of workers.
NUM_SHARES = 16


@dataclass(frozen=True)
class Workshop:
    """A recipe's choices, its files, its workers and its progress bars."""

    config: SpeechConfig
    files: SpeechFiles
    engine: EngineConfig
    progress: Progress
    _workers: list[Executor] = field(default_factory=list)
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def workers(self) -> Executor:
        """The workers, which are started when they are first needed."""
        if not self._workers:
            engine = self.engine
            num_workers = engine.num_workers or os.cpu_count() or 1
            opened = open_engine(engine.name, num_workers, **engine.options)
            self._workers.append(
                Resubmitting(self._open.enter_context(opened), engine.max_attempts)
            )
        return self._workers[0]

    def close(self) -> None:
        """Send the workers home: at once, with what they do, while an exception is on its way."""
        self._workers.clear()
        self._open.__exit__(*sys.exc_info())

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of all data directories."""
        return tuple(dict.fromkeys(("train", *self.decoded_sets)))

    @property
    def decoded_sets(self) -> tuple[str, ...]:
        """The names of those that are recognised."""
        return tuple(dict.fromkeys((self.config.tune, self.config.report)))

    def data(self, name: str, speed: float = 1.0) -> DataDirectory:
        """Return a data directory, with other keys and speakers at another speed."""
        data = DataDirectory.read(self.files.data(name))
        if speed == 1.0:
            return data
        return DataDirectory.of(
            replace(u, key=at_speed(u.key, speed), speaker=at_speed(u.speaker, speed))
            for u in data.utterances.values()
        )

    def corpus(self, name: str, speed: float = 1.0) -> Corpus:
        """Return the utterances of a data directory that have features."""
        data = self.data(name, speed)
        store = open_features(self.files.features(name, speed))
        kept = data.subset([key for key in data.utterances if key in store])
        items = tuple(
            Item(key, utterance.speaker, store.num_frames(key), utterance.text)
            for key, utterance in kept.utterances.items()
        )
        means = speaker_means(store, kept.speakers, self.config.normalize_variance)
        return Corpus(self.files.features(name, speed).absolute(), items, means)

    def shares(self, name: str, speed: float = 1.0) -> list[Share]:
        """Return the utterances of a data directory in shares for the workers."""
        return self.corpus(name, speed).shares(NUM_SHARES)

    @property
    def lexicon(self) -> Lexicon:
        """The recipe's lexicon."""
        return read_lexicon(self.files.lexicon, silence_probability=self.config.silence_probability)
