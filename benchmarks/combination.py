"""Which data should the last models of a run be combined on (appendix C.4)?

    python -m benchmarks.combination [--utterances 500] [--json FILE]

Trains on speech of the demo's voices, with 4 jobs, for 8 epochs, and combines the last 20 models by
their objective on the training subset, on one half of the validation utterances, and on both. All
of it is judged on the other half.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.spoken_frames import PHONES, sources
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
MINIBATCH = 400
EVALUATIONS = (5, 10, 20)


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


def measure(paths: Sequence[Path], examples: Examples) -> list[dict[str, object]]:
    torch.set_num_threads(1)
    last = read_model(paths[-1])
    models = [read_model(path).tensors for path in paths]
    assert examples.train_subset is not None
    subset = SubsetObjective(last, [examples.train_subset.path])
    training = subset.minibatches
    known, unknown = halves(examples)
    rows: list[dict[str, object]] = []

    def judge(name: str, tensors: dict[str, Tensor]) -> None:
        row: dict[str, object] = {"model": name}
        for what, part in (("train", training), ("known", known), ("unknown", unknown)):
            subset.minibatches = part
            row[what] = subset.value(tensors)
        rows.append(row)
        figures = " ".join(f"{row[what]:9.4f}" for what in ("train", "known", "unknown"))
        print(f"{name:36}{figures}", flush=True)

    print(f"{'':36}{'train':>9} {'known':>9} {'unknown':>9}")
    judge("the last model", models[-1])
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
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--utterances", type=int, default=500)
    parser.add_argument("--epochs", type=float, default=8.0)
    parser.add_argument("--json", help="write the figures there too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        spoken_examples(Path(directory, "examples"), options.utterances)
        examples = open_examples(Path(directory, "examples"))
        paths = trained_models(Path(directory, "run"), examples, options.epochs)
        rows = measure(paths, examples)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
