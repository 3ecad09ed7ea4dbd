"""A run's events as TensorBoard scalars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from natgrad.report.history import RunHistory, read_runs
from natgrad.report.layers import limited_shares, relative_changes, spectra

__all__ = ["scalars", "write_tensorboard"]

Scalar = tuple[str, float, int, float]  # tag, value, iteration, unix time
ITERATION_FIELDS = {
    "objective": "objective/jobs",
    "learning_rate": "learning_rate/job",
    "effective_learning_rate": "learning_rate/effective",
    "samples_per_second": "time/samples_per_second",
    "seconds": "time/iteration_seconds",
    "average_seconds": "time/average_seconds",
    "epoch": "progress/epoch",
    "num_jobs": "progress/num_jobs",
}


def write_tensorboard(paths: Sequence[str | Path], directory: str | Path) -> list[Path]:
    """Write the scalars of each run into a directory of its own, and return those directories.

    Raises:
        ModuleNotFoundError: if TensorBoard is not installed; it says how to install it.
        FileExistsError: if a run's directory has TensorBoard's files already: theirs would be
            mixed with the new ones.
    """
    try:
        import torch.utils.tensorboard as torch_tensorboard
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "TensorBoard is not installed: pip install 'natgrad[tensorboard]'", name=error.name
        ) from error
    written = []
    for run in read_runs(paths):
        own = Path(directory) / run.name
        if own.is_dir() and any(own.glob("events.out.tfevents.*")):
            raise FileExistsError(
                f"{own} has TensorBoard's files already, with which these would be mixed; remove it"
                " or choose another directory"
            )
        with torch_tensorboard.SummaryWriter(str(own)) as writer:
            for tag, value, iteration, time in scalars(run):
                writer.add_scalar(tag, value, iteration, walltime=time)
        written.append(own)
    return written


def scalars(run: RunHistory) -> Iterator[Scalar]:
    """Yield everything about a run that is a number per iteration."""
    for iteration, event in run.iterations.items():
        for field, tag in ITERATION_FIELDS.items():
            if event.get(field) is not None:
                yield tag, event[field], iteration, event["time"]
    for iteration, event in run.diagnostics.items():
        for kind in ("train", "valid"):
            for what in ("objective", "accuracy"):
                value = (event.get(kind) or {}).get(what)
                if value is not None:
                    yield f"{what}/{kind}", value, iteration, event["time"]
    yield from _layer_scalars(run)


def _layer_scalars(run: RunHistory) -> Iterator[Scalar]:
    for group, by_layer in (
        ("limited_by_max_change", limited_shares(run)),
        ("relative_change", relative_changes(run)),
    ):
        for name, values in by_layer.items():
            for iteration, value in sorted(values.items()):
                yield f"{group}/{name}", value, iteration, _time(run, iteration)
    for side in ("removed_in", "removed_out"):
        for name, by_iteration in spectra(run, side).items():
            for iteration, spectrum in sorted(by_iteration.items()):
                time = _time(run, iteration)
                yield f"{side}_greatest/{name}", spectrum[0], iteration, time
                yield f"{side}_least/{name}", spectrum[-1], iteration, time


def _time(run: RunHistory, iteration: int) -> float:
    event = run.iterations.get(iteration) or run.jobs[iteration][-1]
    return float(event["time"])
