"""What is in a model file, or how far a run is, as text to read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from natgrad.recipes.network_job import restore
from natgrad.run.directory import RunDirectory
from natgrad.run.events import read_events
from natgrad.run.model_file import Model, ModelFileError, read_model

__all__ = ["describe", "format_bytes"]

LONGEST_VALUE = 60


def describe(path: str | Path) -> str:
    """Return what a model file holds or, of a run's directory, how far the run is, as text.

    The directory of a recipe or an experiment tells how far its stages are.
    """
    path = Path(path)
    if path.is_dir():
        return _describe_run(path)
    model = read_model(path)
    lines = [
        f"{path}: {_count(sum(t.numel() for t in model.tensors.values()))} values in "
        f"{len(model.tensors)} tensors, {format_bytes(os.path.getsize(path))}",
        *_description_lines(model.description),
        "",
        *_tensor_lines(model),
    ]
    return "\n".join(lines)


def _description_lines(description: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, value in description.items():
        if name == "class_counts" and isinstance(value, list):
            lines.append(_priors_line(value))
        elif isinstance(value, dict):
            items = ", ".join(f"{key} {_value(item)}" for key, item in value.items())
            lines.append(f"{name}: {items}")
        else:
            lines.append(f"{name}: {_value(value)}")
    return lines


def _value(value: Any) -> str:
    """Write a value as JSON; of a long list, how long it is."""
    text = json.dumps(value)
    if len(text) <= LONGEST_VALUE:
        return text
    return f"{len(value)} values" if isinstance(value, list) else f"{text[:LONGEST_VALUE]}..."


def _priors_line(counts: Sequence[float]) -> str:
    total = sum(counts)
    shares = [count / total for count in counts if count > 0] if total else []
    entropy = -sum(share * math.log(share) for share in shares)
    return (
        f"class priors: {len(counts)} classes counted on {_count(round(total))} samples, entropy "
        f"{entropy:.3f} nats, {len(counts) - len(shares)} of them never seen"
    )


def _tensor_lines(model: Model) -> list[str]:
    misfit, parameters = None, None
    try:
        parameters = _parameter_names(model)
    except (RuntimeError, TypeError, ValueError) as error:  # what is there is told all the same
        misfit = f"WARNING: the tensors do not fit the description: {' '.join(str(error).split())}"
    rows = [("tensor", "shape", "values", "norm", "largest", "")]
    for name, tensor in sorted(model.tensors.items(), key=lambda pair: _natural(pair[0])):
        kind = "" if parameters is None or name in parameters else "not trained"
        rows.append((name, *_tensor_facts(tensor), kind))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[2:5], widths[2:5], strict=True))
        + (f"  {row[5]}" if row[5] else "")
        for row in rows
    ]
    if misfit is not None:
        lines.append(misfit)
    bad = {name: _num_non_finite(tensor) for name, tensor in model.tensors.items()}
    for name, num_bad in sorted(bad.items()):
        if num_bad:
            lines.append(f"WARNING: {num_bad} values of {name} are NaN or infinite")
    if not any(bad.values()):
        lines.append("all values are finite")
    if parameters is not None:
        num_trained = sum(t.numel() for name, t in model.tensors.items() if name in parameters)
        lines.append(f"{_count(num_trained)} parameters are trained")
    return lines


def _tensor_facts(tensor: Tensor) -> tuple[str, str, str, str]:
    shape = " x ".join(map(str, tensor.shape)) or "one value"
    if tensor.numel() == 0 or not tensor.is_floating_point():
        return shape, _count(tensor.numel()), "", ""
    wide = tensor.double()
    norm, largest = float(wide.norm()), float(wide.abs().max())
    return shape, _count(tensor.numel()), f"{norm:.4g}", f"{largest:.4g}"


def _num_non_finite(tensor: Tensor) -> int:
    return tensor.numel() - int(tensor.isfinite().sum())


def _parameter_names(model: Model) -> set[str] | None:
    """Return which tensors are trained, or None if the file does not say what network it is."""
    if "network" not in model.description:
        return None
    return {name for name, _ in restore(model).named_parameters()}


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sort the input before hidden layers and those by number, then the output."""
    order = {"input_transform": 0, "hidden": 1, "output": 2}
    first = order.get(name.split(".")[0], 3)
    return [
        (first, int(part) if part.isdigit() else -1, "" if part.isdigit() else part)
        for part in name.split(".")
    ]


def format_bytes(size: int) -> str:
    """Write the size of a file in a unit that suits it.

    >>> format_bytes(512), format_bytes(4704), format_bytes(12_300_000)
    ('512 bytes', '4.7 kB', '12.3 MB')
    """
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e3:.1f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def _number(value: float | None) -> str:
    return "not finite" if value is None or not math.isfinite(value) else f"{value:.4f}"


def _percent(share: float | None) -> str:
    return "not finite" if share is None else f"{100 * share:.2f}%"


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _describe_run(path: Path) -> str:
    run = RunDirectory(path)
    if not run.events.exists():
        raise FileNotFoundError(
            f"{path} has no events.jsonl: it is not the directory of a run. Give one that "
            "`natgrad train` has made, or a model file"
        )
    last: dict[str, dict[str, Any]] = {}
    for event in read_events(run.events):
        last[event["event"]] = event
    try:
        lines = [f"{path}: {_run_state(last)}", *_progress_lines(last)]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{run.events} has an event that is not whole, or of a wrong type ({error}): expected "
            "those that `natgrad train` writes. Take the file from a copy of the run"
        ) from error
    iteration = run.last_iteration()
    if run.final.exists():
        lines.append(_model_line("final", run.final))
    elif iteration is not None:
        lines.append(_model_line("last", run.model(iteration)))
    return "\n".join(lines)


def _model_line(kind: str, path: Path) -> str:
    """Name a run's model, once it has been read: a copied run may hold a part of it."""
    try:
        read_model(path)
    except ModelFileError as error:
        return f"WARNING: the {kind} model cannot be used: {error}"
    return f"{kind} model: {path}"


def _run_state(last: Mapping[str, dict[str, Any]]) -> str:
    end, start = last.get("end"), last.get("start")
    if (stage := last.get("stage")) is not None:
        done = last.get("stage_done")
        place = "after" if done is not None and done["time"] >= stage["time"] else "in"
        return f"stages, {place} number {stage['number']} of {stage['num_stages']}, {stage['name']}"
    if end is None or (start is not None and start["time"] > end["time"]):
        return "a run without an end so far (it goes on, or was stopped)"
    if end.get("message") == "KeyboardInterrupt":  # Ctrl-C: nothing has failed
        return "a run, interrupted by hand; the same command resumes it"
    message = f": {end['message']}" if end.get("message") else ""
    return f"a run, {end['status']}{message}"


def _progress_lines(last: Mapping[str, dict[str, Any]]) -> list[str]:
    lines = []
    if (event := last.get("iteration")) is not None:
        lines.append(
            f"iteration {event['iteration']} of {event['num_iterations']}, epoch "
            f"{event['epoch']:.2f} of {event['num_epochs']:g}, {event['num_jobs']} jobs, "
            f"objective of jobs {_number(event['objective'])}"
        )
    elif "stage" not in last:
        lines.append("no iteration is complete yet")
    if (event := last.get("diagnostics")) is not None:
        parts = [
            f"{kind} objective {_number(event[kind].get('objective'))}, accuracy "
            f"{_percent(event[kind].get('accuracy'))}"
            for kind in ("train", "valid")
            if event.get(kind)
        ]
        lines.append(f"after iteration {event['iteration']}: {'; '.join(parts)}")
    if (event := last.get("combine", {})).get("objective") is not None:
        lines.append(
            f"combined from {len(event['inputs'])} models: objective {_number(event['objective'])}"
        )
    return lines
