"""From recordings to word error rates: the stages that all corpora share.

What is different about a corpus (where its recordings and its words come from) is said by two
functions, and by its configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from natgrad.recipes.decode_stages import decode_dnn, decode_gmm
from natgrad.recipes.dnn_stages import train_network, write_examples, write_priors
from natgrad.recipes.gmm_stages import train_lda, train_mono, train_sat, train_tri
from natgrad.recipes.speech_config import SpeechConfig
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_table import write_table
from natgrad.recipes.train_config import EngineConfig
from natgrad.recipes.workshop import Progress, Workshop
from natgrad.run.stages import Facts, Stage, run_stages
from natgrad.speech.audio import read_audio
from natgrad.speech.extraction import extract

__all__ = ["Prepare", "SpeechRecipe"]

Prepare = Callable[[Workshop], Facts]  # writes files, and says what it found
OnEvent = Callable[[dict[str, Any]], None]
FRAMES_PER_HOUR = 360_000


@dataclass(frozen=True)
class SpeechRecipe:
    """A recipe for one corpus.

    Args:
        config: all choices.
        prepare_data: writes the data directories "train" and those that the configuration names.
        prepare_language: writes the lexicon and the language model.
        settings: what these two depend on, as JSON takes it: where the corpus is, for one.
    """

    config: SpeechConfig
    prepare_data: Prepare
    prepare_language: Prepare
    settings: dict[str, Any]

    def run(
        self,
        root: str | Path,
        engine: EngineConfig,
        progress: Progress,
        first: str | None = None,
        last: str | None = None,
        on_event: OnEvent | None = None,
        follow_training: OnEvent | None = None,
    ) -> dict[str, Facts]:
        """Do all stages that are not done in a directory; see `run_stages`.

        Args:
            root: the directory of everything.
            engine: where utterances and jobs are worked on.
            progress: makes progress bars.
            first, last: the stages to begin and to end with.
            on_event: called with the events of stages.
            follow_training: called with the events of the network's training.
        """
        shop = Workshop(self.config, SpeechFiles(Path(root).absolute()), engine, progress)
        try:
            return run_stages(root, self.stages(shop, follow_training), first, last, on_event)
        finally:
            shop.close()

    def stages(self, shop: Workshop, follow_training: OnEvent | None = None) -> list[Stage]:
        """Return the stages, in order."""
        config = self.config
        dnn = asdict(config.dnn)
        decoder = {"decoder": dnn.pop("decoder"), "settings": config.decoding.settings}
        sizes = ("context", "samples_per_job", "validation_samples", "train_subset_samples")
        examples = {name: dnn.pop(name) for name in sizes} | {
            "num_jobs": config.dnn.training.num_jobs
        }
        return [
            Stage("data", partial(self.prepare_data, shop), self.settings),
            Stage("language", partial(self.prepare_language, shop), self.settings),
            Stage("features", partial(extract_features, shop), asdict(config.mfcc)),
            Stage("mono", partial(train_mono, shop), _mono_settings(config)),
            Stage("tri", partial(train_tri, shop), asdict(config.triphone)),
            Stage("lda", partial(train_lda, shop), _lda_settings(config)),
            Stage("sat", partial(train_sat, shop), asdict(config.sat)),
            *(
                Stage(f"decode-{name}", partial(decode_gmm, shop, name), asdict(config.decoding))
                for name in config.decoded
            ),
            Stage("dnn-examples", partial(write_examples, shop), examples),
            Stage("dnn", partial(train_network, shop, follow_training), dnn),
            Stage("dnn-priors", partial(write_priors, shop)),
            Stage("decode-dnn", partial(decode_dnn, shop), decoder),
            Stage("table", partial(write_table, shop)),
        ]


def extract_features(shop: Workshop) -> Facts:
    """Compute the cepstra of all data directories; recordings that have none are in the facts."""
    facts: Facts = {}
    for name in shop.sets:
        utterances = shop.data(name).utterances.values()
        place = shop.files.features(name)
        found = extract(utterances, shop.config.mfcc, place, shop.workers, read_audio)
        hours = round(found.store.total_frames / FRAMES_PER_HOUR, 3)
        facts[name] = {"utterances": len(found.store), "hours": hours, "failures": found.failures}
    return facts


def _mono_settings(config: SpeechConfig) -> dict[str, Any]:
    return {
        "schedule": asdict(config.monophone),
        "utterances": config.monophone_utterances,
        "topology": asdict(config.topology),
        "marks_position": config.marks_position,
        "silence_probability": config.silence_probability,
    }


def _lda_settings(config: SpeechConfig) -> dict[str, Any]:
    return {
        **asdict(config.lda_mllt),
        "context": config.lda_context,
        "dim": config.lda_dim,
    }
