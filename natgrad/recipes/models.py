"""What can be done with model files: tell what is in them, average them, export them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from natgrad.parallel.average import average_files
from natgrad.recipes.combination import common_description
from natgrad.recipes.describe import describe
from natgrad.recipes.onnx_export import export_onnx, restore_network
from natgrad.run.model_file import write_model

__all__ = ["average_models", "describe", "export_onnx", "restore_network"]


def average_models(
    paths: Sequence[str | Path], out: str | Path, weights: Sequence[float] | None = None
) -> None:
    """Write the (weighted) mean of models of one network; it says what it is the mean of.

    Raises:
        ModelFileError: if a file is no model, or the models are of different networks.
        ValueError: if there are no models, or weights that do not fit.
    """
    if not paths:
        raise ValueError("there is nothing to average: give one model file or more")
    weights = [1.0] * len(paths) if weights is None else list(weights)
    description = common_description(paths)
    if len(weights) != len(paths):
        raise ValueError(f"there are {len(weights)} weights for {len(paths)} models: give one each")
    mean = average_files(paths, weights)
    sources = {"models": [str(path) for path in paths], "weights": weights}
    write_model(out, mean, {**description, "averaged_from": sources})
