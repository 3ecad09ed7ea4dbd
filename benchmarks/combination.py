"""Which data should the last models of a run be combined on (appendix C.4)?

    python -m benchmarks.combination [--utterances 500] [--epochs 8]

Trains on speech of the demo's voices, with 4 jobs, for 8 epochs, and combines the last 20 models by
their objective on the training subset, on one half of the validation utterances, and on both. All
of it is judged on the other half.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import (
    Benchmark,
    Findings,
    above_zero,
    run_benchmark,
    tell,
    whole_above_zero,
)
from benchmarks.spoken_frames import PHONES, sources
from benchmarks.table import Row, Table
from natgrad.data import Block, Examples, Minibatch, build, open_examples
from natgrad.parallel.average import average
from natgrad.parallel.combine import combine
from natgrad.recipes.combination import SubsetObjective
from natgrad.recipes.train import (
    CombinationConfig,
    DataConfig,
    NetworkShape,
    RunConfig,
    TrainConfig,
    TrainingConfig,
    train,
)
from natgrad.run.model_file import read_model

NUM_MODELS = 20
EVALUATIONS = (5, 10, 20)
NUM_UTTERANCES, NUM_EPOCHS = 500, 8.0
QUICK_NUM_UTTERANCES, QUICK_NUM_EPOCHS = 60, 1.0
LAST = "the last model"


def spoken_examples(directory: Path, num_utterances: int) -> Examples:
    return build(
        directory,
        sources(num_utterances, seed=0),
        num_classes=len(PHONES),
        left_context=5,
        right_context=5,
        num_jobs=4,
        samples_per_job=10_000,
        validation_samples=40 * num_utterances,
        train_subset_samples=20 * num_utterances,
        piece_frames=10,  # so that the subset is of many utterances
        num_workers=2,
    )


def trained_models(directory: Path, examples: Examples, num_epochs: float) -> list[Path]:
    config = TrainConfig(
        run=RunConfig(str(directory), keep_models=True),
        data=DataConfig(str(examples.directory)),
        network=NetworkShape(hidden=((400, 80), (400, 80)), initial_num_hidden=None),
        training=TrainingConfig(num_epochs=num_epochs, num_jobs=4),
        combination=CombinationConfig(method="last"),
    )
    train(config)
    return sorted((directory / "models").glob("*.safetensors"))[1:][-NUM_MODELS:]


def halves(examples: Examples) -> tuple[list[Minibatch], list[Minibatch]]:
    """Cut the validation data in two, between utterances."""
    assert examples.validation is not None
    keys: dict[str, list[Minibatch]] = {}
    for piece in Block.read(examples.validation.path).pieces():
        keys.setdefault(piece.key, []).append(piece.examples)
    utterances = list(keys.values())
    cut = len(utterances) // 2
    return (
        [piece for pieces in utterances[:cut] for piece in pieces],
        [piece for pieces in utterances[cut:] for piece in pieces],
    )


def judge_all(paths: Sequence[Path], examples: Examples) -> Table:
    """Judge the last model, means, and combinations, all by data that none of them has seen."""
    torch.set_num_threads(1)
    last = read_model(paths[-1])
    models = [read_model(path).tensors for path in paths]
    assert examples.train_subset is not None
    subset = SubsetObjective(last, [examples.train_subset.path])
    training = subset.minibatches
    known, unknown = halves(examples)
    rows: list[Row] = []

    def judge(name: str, tensors: dict[str, Tensor]) -> None:
        tell(name)
        values = {}
        for what, part in (("train", training), ("known", known), ("unknown", unknown)):
            subset.minibatches = part
            values[what] = subset.value(tensors)
        unseen = values.pop("unknown")
        rows.append(Row(name, (unseen,), also=values))

    judge(LAST, models[-1])
    for number in sorted({min(n, len(models)) for n in (3, 10, NUM_MODELS)}):
        judge(f"mean of the last {number}", average(models[-number:], [1.0] * number))
    for name, part in (("train", training), ("validation", known), ("both", training + known)):
        for evaluations in EVALUATIONS:
            subset.minibatches = part
            found = combine(
                models,
                subset.objective,
                subset.layers(),
                value=subset.value,
                parts=subset.parts(),
                max_evaluations=evaluations,
            )
            judge(f"combined on {name}, {evaluations} evaluations", found.tensors)
    title = f"the last {len(models)} models, on validation utterances that none has seen"
    return Table(title, "log-probability a sample", tuple(rows), references=(LAST,))


def measure(options: argparse.Namespace, findings: Findings) -> None:
    quick = options.is_quick
    num_utterances = options.utterances or (QUICK_NUM_UTTERANCES if quick else NUM_UTTERANCES)
    num_epochs = options.epochs or (QUICK_NUM_EPOCHS if quick else NUM_EPOCHS)
    findings.settings |= {"num_utterances": num_utterances, "num_epochs": num_epochs}
    with tempfile.TemporaryDirectory() as directory:
        spoken_examples(Path(directory, "examples"), num_utterances)
        examples = open_examples(Path(directory, "examples"))
        paths = trained_models(Path(directory, "run"), examples, num_epochs)
        findings.add(judge_all(paths, examples))


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--utterances", type=whole_above_zero, metavar="N", help=f"({NUM_UTTERANCES})"
    )
    parser.add_argument("--epochs", type=above_zero, metavar="N", help=f"({NUM_EPOCHS:g})")


BENCHMARK = Benchmark("combination", __doc__ or "", measure, add_options=add_options)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(BENCHMARK, arguments)


if __name__ == "__main__":
    sys.exit(main())
