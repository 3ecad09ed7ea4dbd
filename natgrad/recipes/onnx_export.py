"""Models as ONNX files."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from natgrad.atomic import write_atomically
from natgrad.nn import Network
from natgrad.recipes.network_job import restore
from natgrad.recipes.plain_network import PlainNetwork
from natgrad.run.model_file import ModelFileError, read_model

__all__ = ["export_onnx", "restore_network"]


def restore_network(path: str | Path) -> Network:
    """Return the network that a model file holds; errors name the file."""
    model = read_model(path)
    if "network" not in model.description:
        raise ModelFileError(
            f"{path} does not say which network its tensors belong to: expected a model that "
            "`natgrad train` has written"
        )
    try:
        return restore(model)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} does not fit its own description: {error}") from error


def export_onnx(path: str | Path, out: str | Path) -> None:
    """Write a model as ONNX: "features" (batch, inputs) -> "log_posteriors" (batch, classes).

    The batch may have any size. The description is kept in ONNX's metadata, under "natgrad".

    Raises:
        ModuleNotFoundError: if the packages for it are not installed; it says how to.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"exporting to ONNX needs the package {error.name!r}: pip install 'natgrad[onnx]'",
            name=error.name,
        ) from error
    network = restore_network(path)
    with _quiet_exporter():
        program = torch.onnx.export(
            PlainNetwork(network).eval(),
            (torch.zeros(2, network.config.num_inputs),),
            input_names=["features"],
            output_names=["log_posteriors"],
            dynamic_shapes={"features": {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # as no file was named
    program.model.metadata_props["natgrad"] = json.dumps(read_model(path).description)
    write_atomically(Path(out), [program.model_proto.SerializeToString()], durable=False)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep to itself what torch's exporter says about its own insides and packages it may use."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
