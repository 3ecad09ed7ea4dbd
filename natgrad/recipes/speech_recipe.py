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
from natgrad.recipes.dnn_stages import (
    align_again,
    forget_network,
    train_network,
    write_examples,
    write_priors,
)
from natgrad.recipes.gmm_stages import train_lda, train_mono, train_sat, train_tri
from natgrad.recipes.recording_stages import extract_features
from natgrad.recipes.speech_config import SpeechConfig
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.recipes.speech_table import write_table
from natgrad.recipes.speeds import align_at_speed
from natgrad.recipes.train_config import EngineConfig, settings_of
from natgrad.recipes.workshop import Progress, Workshop
from natgrad.run.stages import Facts, Stage, StageError, run_stages, settings_done_with

__all__ = ["Prepare", "SpeechRecipe"]

# Where stages write, beside examples and runs, which clean up after themselves.
PLACES = ("data/*", "language", "features/*", "gmm/*", "graphs", "decode/*/*", "dnn*")

Prepare = Callable[[Workshop], Facts]  # writes files, and says what it found
OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class SpeechRecipe:
    """A recipe for one corpus.

    Args:
        config: all choices.
        prepare_data: writes the data directories "train" and those that the configuration names.
        prepare_language: writes the lexicon and the language model.
        settings: what these two depend on, as JSON takes it; "source" is where the corpus is.
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

        A directory of another corpus is refused, unless the first stage is asked for by name: a
        slip in a command must not undo the work of hours.

        Args:
            root: the directory of everything.
            engine: where utterances and jobs are worked on.
            progress: makes progress bars.
            first, last: the stages to begin and to end with.
            on_event: called with the events of stages.
            follow_training: called with the events of the network's training.
        """
        if first != "data":
            self._refuse_other_corpus(Path(root))
        shop = Workshop(self.config, SpeechFiles(Path(root).absolute()), engine, progress)
        try:
            stages = self.stages(shop, follow_training)
            return run_stages(root, stages, first, last, on_event, PLACES)
        finally:
            shop.close()

    def _refuse_other_corpus(self, root: Path) -> None:
        done_with = settings_done_with(root, "data")
        before, now = (None if s is None else s.get("source") for s in (done_with, self.settings))
        if done_with is not None and before != now:
            raise StageError(
                f"what is in {root} was made of {before or 'no corpus, but synthesised'}, and this "
                f"would be made of {now or 'none'}: give another directory for what is made; or, "
                "to do all of it again, begin with the stage data (--from data)"
            )

    def stages(self, shop: Workshop, follow_training: OnEvent | None = None) -> list[Stage]:
        """Return the stages, in order."""
        config = self.config
        sets: dict[str, Any] = {"sets": sorted(shop.sets)}
        weighed: dict[str, Any] = {"tune": config.tune, "report": config.report}
        return [
            Stage("data", partial(self.prepare_data, shop), self.settings),
            Stage("language", partial(self.prepare_language, shop), self.settings),
            Stage("features", partial(extract_features, shop), asdict(config.mfcc), sets),
            Stage("mono", partial(train_mono, shop), _mono_settings(config)),
            Stage("tri", partial(train_tri, shop), asdict(config.triphone)),
            Stage("lda", partial(train_lda, shop), _lda_settings(config)),
            Stage("sat", partial(train_sat, shop), asdict(config.sat)),
            *(
                Stage(
                    f"decode-{name}",
                    partial(decode_gmm, shop, name),
                    asdict(config.decoding),
                    weighed,
                )
                for name in config.decoded
            ),
            *self._network_stages(shop, follow_training),
            Stage("decode-dnn", partial(decode_dnn, shop), _dnn_decoding_settings(config), weighed),
            Stage("table", partial(write_table, shop), {"decoded": config.decoded}),
        ]

    def _network_stages(self, shop: Workshop, follow_training: OnEvent | None) -> list[Stage]:
        examples, training = _example_settings(self.config), _training_settings(self.config)
        stages = [
            Stage(f"sat-{speed:g}", partial(align_at_speed, shop, speed))
            for speed in self.config.dnn.other_speeds
        ]
        for number in range(self.config.dnn.num_realignments + 1):
            name = f"dnn-{number + 1}" if number else "dnn"
            if number:
                stages.append(Stage(f"{name}-align", partial(align_again, shop, number)))
            stages += [
                Stage(f"{name}-examples", partial(write_examples, shop, number), examples),
                Stage(
                    name,
                    partial(train_network, shop, number, follow_training),
                    training,
                    forget=partial(forget_network, shop, number),
                ),
                Stage(f"{name}-priors", partial(write_priors, shop, number)),
            ]
        return stages


def _mono_settings(config: SpeechConfig) -> dict[str, Any]:
    return {
        "schedule": asdict(config.monophone),
        "utterances": config.monophone_utterances,
        "topology": asdict(config.topology),
        "marks_position": config.marks_position,
        "silence_probability": config.silence_probability,
        "normalize_variance": config.normalize_variance,
    }


def _lda_settings(config: SpeechConfig) -> dict[str, Any]:
    return {
        **asdict(config.lda_mllt),
        "context": config.lda_context,
        "dim": config.lda_dim,
    }


def _example_settings(config: SpeechConfig) -> dict[str, Any]:
    dnn = config.dnn
    return {
        "context": dnn.context,
        "num_jobs": dnn.training.num_jobs,
        "samples_per_job": dnn.samples_per_job,
        "validation_samples": dnn.validation_samples,
        "train_subset_samples": dnn.train_subset_samples,
        "piece_frames": dnn.piece_frames,
        "other_speeds": dnn.other_speeds,
    }


def _training_settings(config: SpeechConfig) -> dict[str, Any]:
    dnn = config.dnn
    return {
        "network": asdict(dnn.network),
        "training": settings_of(dnn.training),
        "combination": asdict(dnn.combination),
    }


def _dnn_decoding_settings(config: SpeechConfig) -> dict[str, Any]:
    return {
        "decoder": asdict(config.dnn.decoder),
        "settings": config.decoding.settings,
        "num_realignments": config.dnn.num_realignments,  # which says whose words they are
    }
