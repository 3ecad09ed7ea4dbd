"""How fast the decoder is on one core, at several beams, and what it finds.

    python -m benchmarks.decode [--run exp/librispeech] [--system dnn] [--beams 9 11 13 15 17]

With --run, utterances that a speech recipe reports on are decoded with what the recipe has made in
its directory, from which is only read. Without it, utterances of a language that is drawn at random
(benchmarks/drawn_speech.py). A round decodes all of them at every beam, from features to lattices
and words; features are in memory. The first method is the acoustic scores alone, which are a part
of all others. Times are of the processor, on one thread: other programs disturb them less.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from benchmarks.decoding_task import FRAMES_PER_SECOND, DecodingTask
from benchmarks.drawn_speech import DrawnSize, draw_task
from benchmarks.harness import (
    Benchmark,
    Findings,
    above_zero,
    per_call,
    run_benchmark,
    take_rounds,
    tell,
)
from benchmarks.recipe_run import SYSTEMS, task_of_run
from benchmarks.table import Goal, Row, Table, spread
from natgrad.speech.decoding.decoder import Decoder, DecoderOptions, DecodingError
from natgrad.speech.score import score

MOST_OF_REAL_TIME = 0.5  # at the beam that a recipe reports with
AROUND = (-4.0, -2.0, 0.0, 2.0, 4.0)
QUICK_AROUND = (-4.0, 0.0)
NUM_SECONDS, QUICK_NUM_SECONDS = 120.0, 5.0
QUICK = DrawnSize(num_words=60, num_sentences=200, num_utterances=3)
SCORES = "scores alone"


@dataclass
class Search:
    """Decodes a task's utterances at one beam, and remembers what it found."""

    task: DecodingTask
    options: DecoderOptions
    words: dict[str, tuple[str, ...]] = field(default_factory=dict)
    num_arcs: int = 0
    num_failures: int = 0

    def __post_init__(self) -> None:
        self._decoder = Decoder(self.task.graph, self.options)

    def __call__(self) -> None:
        """Decode all utterances, from features to words."""
        self.num_arcs = self.num_failures = 0
        setting, scorer = self.task.setting, self.task.scorer
        for utterance in self.task.utterances:
            try:
                self._decoder.start()
                self._decoder.accept(scorer(utterance.features))
                lattice = self._decoder.finish()
            except DecodingError:
                self.words[utterance.key] = ()
                self.num_failures += 1
                continue
            path = lattice.best_path(
                acoustic_scale=1.0 / setting.lm_weight, word_penalty=setting.word_penalty
            )
            self.num_arcs += lattice.num_arcs
            self.words[utterance.key] = tuple(map(self.task.words.name, path.words))

    def figures(self, values: Sequence[float]) -> dict[str, float]:
        """Return what is told beside the times."""
        found = spread(values)
        assert found is not None
        said = {u.key: u.words for u in self.task.utterances if u.words is not None}
        errors = score(said, {key: self.words[key] for key in said}).total if said else None
        return {
            "frames/s": FRAMES_PER_SECOND / found.median,
            "arcs a frame": self.num_arcs / self.task.num_frames,
            **({"word errors %": 100.0 * errors.rate} if errors and errors.num_words else {}),
            **({"failures": self.num_failures} if self.num_failures else {}),
        }


def measure_beams(task: DecodingTask, beams: Sequence[float], num_rounds: int) -> Table:
    """Return the seconds of one core for a second of speech, at each beam."""
    usual = f"beam {task.options.beam:g}"
    searches = {
        f"beam {beam:g}": Search(task, replace(task.options, beam=beam))
        for beam in sorted({*beams, task.options.beam})
    }
    scale = 1.0 / task.num_seconds

    def score_all() -> None:
        for utterance in task.utterances:
            task.scorer(utterance.features)

    actions: dict[str, Callable[[], None]] = {SCORES: score_all, **searches}
    methods = {
        name: per_call(action, scale=scale, clock=time.process_time)
        for name, action in actions.items()
    }
    values = take_rounds(methods, num_rounds)
    rows = [Row(SCORES, values[SCORES])]
    for name, search in searches.items():
        goal = Goal(MOST_OF_REAL_TIME) if name == usual else None
        rows.append(Row(name, values[name], goal, search.figures(values[name])))
    options = task.options
    title = (
        f"{task.title}, {len(task.utterances)} utterances, {task.num_seconds:.0f} s, max_active "
        f"{options.max_active}, lattice beam {options.lattice_beam:g}"
    )
    return Table(title, "x real time of one core", tuple(rows), references=(usual,))


def measure(options: argparse.Namespace, findings: Findings) -> None:
    torch.set_num_threads(1)
    quick = options.is_quick
    tell("making the graph" if options.run is None else f"reading {options.run}")
    if options.run is None:
        task = draw_task(QUICK if quick else DrawnSize())
    else:
        seconds = options.seconds or (QUICK_NUM_SECONDS if quick else NUM_SECONDS)
        task = task_of_run(options.run, options.system, seconds)
    around = QUICK_AROUND if quick else AROUND
    beams = options.beams or [task.options.beam + difference for difference in around]
    findings.settings |= {
        "options": asdict(task.options),
        "setting": task.setting._asdict(),
        "graph": {"states": task.graph.graph.num_states, "arcs": len(task.graph.graph.label)},
    }
    tell(f"decoding {task.num_seconds:.0f} s of speech")
    findings.add(measure_beams(task, beams, options.num_rounds))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, metavar="DIR", help="of a speech recipe that is done")
    parser.add_argument("--system", choices=SYSTEMS, default="dnn", help="of that run (dnn)")
    parser.add_argument(
        "--seconds", type=above_zero, metavar="N", help=f"of its speech ({NUM_SECONDS:g})"
    )
    parser.add_argument(
        "--beams",
        type=above_zero,
        nargs="+",
        metavar="N",
        help="beside the usual one (4 and 2 below and above it)",
    )


BENCHMARK = Benchmark("decode", __doc__ or "", measure, num_rounds=5, add_options=add_options)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
