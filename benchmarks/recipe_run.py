"""A decoding task from the directory of a speech recipe, which is only read.

Everything is as the recipe decodes: the graph that it has made, the speakers' transforms of its
GMM-HMM, its search, and the setting that it has chosen on other utterances; of several, which are
for different speakers, the first, so that errors are not quite those that the recipe reports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.decoding_task import FRAMES_PER_SECOND, DecodingTask, Utterance
from natgrad.recipes.dnn import NetworkScorer
from natgrad.recipes.speech_files import SpeechFiles
from natgrad.run.directory import RunDirectory
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.corpus import Item, Scorer, Share
from natgrad.speech.data.directory import DataDirectory
from natgrad.speech.decoding.decoder import DecoderOptions
from natgrad.speech.decoding.search_graph import SearchGraph
from natgrad.speech.features.cmvn import speaker_means
from natgrad.speech.features.store import open_features
from natgrad.speech.graphs.context_labels import ContextLabels
from natgrad.speech.graphs.decoding_graph import ALGORITHM
from natgrad.speech.graphs.graph import Graph
from natgrad.speech.graphs.graph_file import hash_of, make_once, read_graph
from natgrad.speech.graphs.lexicon_fst import word_symbols
from natgrad.speech.graphs.self_loops import TransitionCosts
from natgrad.speech.lexicon.files import read_lexicon
from natgrad.speech.lexicon.lexicon import Lexicon
from natgrad.speech.lm.arpa import read_arpa
from natgrad.speech.score import Setting
from natgrad.speech.trained import MODEL, TRANSFORMS, read_transforms

__all__ = ["SYSTEMS", "RunError", "task_of_run"]

SYSTEMS = ("dnn", "sat")
SELF_LOOP_SCALE = 0.1  # the default of decoding graphs


class RunError(ValueError):
    """A directory is not that of a recipe that has got far enough."""


def task_of_run(root: Path, system: str, num_seconds: float) -> DecodingTask:
    """Return some of the utterances that a recipe reports on, and its recogniser.

    Args:
        root: the recipe's directory, with all stages done up to the system's decoding.
        system: "dnn" or "sat".
        num_seconds: about as much speech is taken, evenly from the whole set.
    """
    run = _Run(SpeechFiles(root.absolute()))
    model = AcousticModel.read(run.needed(run.files.gmm("sat") / MODEL, "sat"))
    lexicon = run.lexicon()
    name, setting = run.reported(system)
    options, scorer = run.search(system, model)
    transforms = run.needed(run.files.decoded("sat", name) / TRANSFORMS, "decode-sat")
    share = run.share(name, num_seconds)
    return DecodingTask(
        f"{root}, {system} on {name}",
        tuple(
            Utterance(item.key, features, item.words)
            for item, features in share.read(model.front_end, read_transforms(transforms))
        ),
        SearchGraph.of(run.graph(lexicon, model), model.states.pdf_of_label),
        word_symbols(lexicon),
        scorer,
        options,
        setting,
    )


@dataclass(frozen=True)
class _Run:
    """Reads what is in a recipe's directory; what is not there is told with how to get it."""

    files: SpeechFiles

    def needed(self, path: Path, stage: str) -> Path:
        if not path.exists():
            raise RunError(
                f"{path} is not there: a run to decode in is the directory of a speech recipe in "
                f"which stage {stage} is done. Run  natgrad recipe NAME --out {self.files.root}  "
                "to its end, or give another directory"
            )
        return path

    def marker(self, stage: str) -> Path:
        """Return the file that says that a stage is done."""
        return self.files.root / "stages" / f"{stage}.json"

    def settings(self, stage: str) -> dict[str, Any]:
        """Return what a stage was done with."""
        marker = self.needed(self.marker(stage), stage)
        settings: dict[str, Any] = json.loads(marker.read_bytes())["settings"]
        return settings

    def reported(self, system: str) -> tuple[str, Setting]:
        """Return the set that a system's errors are reported on, and the setting they are with."""
        parent = self.needed(self.files.decoded(system, ""), f"decode-{system}")
        results = sorted(parent.glob("*/result.json"))
        if not results:
            self.needed(parent / "SET" / "result.json", f"decode-{system}")
        chosen = json.loads(results[0].read_bytes())["settings"][0]
        return results[0].parent.name, Setting(**chosen)

    def search(self, system: str, model: AcousticModel) -> tuple[DecoderOptions, Scorer]:
        """Return how a system searches, and what scores its frames."""
        settings = self.settings(f"decode-{system}")
        if system == "sat":
            return DecoderOptions(**settings["next"][-1]), model.gmms.log_likelihoods
        number, name = 0, "dnn"
        while self.marker(f"dnn-{number + 2}-priors").exists():  # the last re-alignment counts
            number, name = number + 1, f"dnn-{number + 2}"
        files = self.files.dnn(number)
        context = self.settings(f"{name}-examples")["context"]
        final = self.needed(RunDirectory(files.run).final, name)
        priors = self.needed(files.priors, f"{name}-priors")
        return DecoderOptions(**settings["decoder"]), NetworkScorer(final, priors, context, context)

    def lexicon(self) -> Lexicon:
        path = self.needed(self.files.lexicon, "language")
        probability = self.settings("mono")["silence_probability"]
        return read_lexicon(path, silence_probability=probability)

    def graph(self, lexicon: Lexicon, model: AcousticModel) -> Graph:
        """Read the graph of a model; it is not made, as nothing is to be written here."""
        grammar = read_arpa(self.needed(self.files.language_model, "language"))
        labels = ContextLabels(model.tree, model.states)
        costs = TransitionCosts.of(model.states, SELF_LOOP_SCALE)
        words = word_symbols(lexicon)
        key = hash_of(lexicon, grammar, words, labels, costs, ALGORITHM)

        def refuse() -> Graph:
            raise RunError(
                f"{self.files.graphs} has no graph of this lexicon, language model and model "
                f"(graph-{key}.safetensors): run  natgrad recipe NAME --out {self.files.root} "
                "--from decode-sat --to decode-sat  to have it made"
            )

        return read_graph(make_once(self.files.graphs, key, refuse))

    def share(self, name: str, num_seconds: float) -> Share:
        """Return utterances from all over a set, with speakers' means of all that they said."""
        data = DataDirectory.read(self.needed(self.files.data(name), "data"))
        place = self.needed(self.files.features(name), "features")
        store = open_features(place)
        kept = data.subset([key for key in data.utterances if key in store])
        items = [
            Item(key, utterance.speaker, store.num_frames(key), utterance.text)
            for key, utterance in kept.utterances.items()
        ]
        num_frames = sum(item.num_frames for item in items)
        step = max(1, round(num_frames / (num_seconds * FRAMES_PER_SECOND)))
        return Share(place, tuple(items[::step]), speaker_means(store, kept.speakers))
