"""One run with a change, which may diverge; and what else its models could have become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from natgrad.recipes.combination import combine_job
from natgrad.recipes.reproduce.divergence import found_or_diverged
from natgrad.recipes.reproduce.experiment import Bench, Found
from natgrad.recipes.reproduce.training_run import reached, run_directory
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events

__all__ = ["combine_again", "train_baseline", "train_variant"]

KEPT = ("diverged", "num_iterations", "num_left_out", "last", "final")


def train_baseline(bench: Bench, train: Callable[[Bench], Found]) -> Found:
    """Train without a change, and keep the models; that it diverges is an error."""
    return _kept({"diverged": None, **train(bench)})


def train_variant(bench: Bench, train: Callable[[Bench], Found]) -> Found:
    """Train with a change; that it diverges is what was found. Of models, only the final is kept.

    `train` is as by `measure_run`.
    """
    found = found_or_diverged(bench, train)
    if found["diverged"] is None:
        run_directory(bench.directory).prune_models(set())
    return _kept(found)


def _kept(found: Found) -> Found:
    return {name: found[name] for name in KEPT if name in found}


def combine_again(bench: Bench, examples: Path, baseline: Path, num_models: int) -> Found:
    """Make of a run's models what other ways of combining them would have made.

    mean: of the last n of what was combined, n by the training objective
    each: what was done, of the last iterations' models rather than of means of several
    """
    run = run_directory(baseline)
    combined = [event for event in read_events(run.events) if event["event"] == "combine"]
    groups: list[list[int]] = combined[-1]["inputs"]
    last = sorted(chain.from_iterable(groups))[-num_models:]
    found = {
        "mean": _combine(bench, examples, run, groups, "mean"),
        "each": _combine(bench, examples, run, [[number] for number in last], "generalised"),
    }
    return {**found, "inputs": groups, "last_inputs": last}


def _combine(
    bench: Bench, examples: Path, run: RunDirectory, groups: Sequence[Sequence[int]], method: str
) -> Found:
    paths = [[str(run.model(number)) for number in group] for group in groups]
    out = bench.directory / "combined.safetensors"
    facts = combine_job(paths, str(out), str(examples), method, "train")
    out.unlink()
    return {**reached(facts), "num_models": facts.get("num_models", len(groups))}
