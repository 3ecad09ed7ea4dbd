"""What can be done with model files: tell what is in them, average them, export them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from natgrad.parallel.average import average_files
from natgrad.recipes.describe import describe
from natgrad.recipes.onnx_export import export_onnx, restore_network
from natgrad.run.model_file import ModelFileError, read_model, write_model

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
    descriptions = [read_model(path).description for path in paths]
    for path, description in zip(paths, descriptions, strict=True):
        if description.get("network") != descriptions[0].get("network"):
            raise ModelFileError(
                f"{path} is of another network than {paths[0]}: {description.get('network')}, "
                f"expected {descriptions[0].get('network')}. Average models of one network"
            )
    if len(weights) != len(paths):
        raise ValueError(f"there are {len(weights)} weights for {len(paths)} models: give one each")
    mean = average_files(paths, weights)
    sources = {"models": [str(path) for path in paths], "weights": weights}
    write_model(out, mean, {**descriptions[0], "averaged_from": sources})
