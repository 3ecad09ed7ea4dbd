"""Examples from arrays in files: what `natgrad prepare` does.

A file (.npz, or .safetensors) holds

    features   (rows, D) numbers
    labels     (rows,) integers
    lengths    optional (utterances,) rows of each utterance, in order; without them each row is an
               example of its own
    weights    optional (rows,) numbers
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from natgrad.data import Examples, Segment, build, segments_of_vectors

__all__ = ["prepare"]

ARRAYS = ("features", "labels", "lengths", "weights")


def prepare(
    files: Sequence[str | Path],
    directory: str | Path,
    num_classes: int | None = None,
    **options: Any,
) -> Examples:
    """Build the examples of all files; `options` are those of `natgrad.data.build`."""
    if num_classes is None:
        num_classes = 1 + max(int(_read(Path(file))["labels"].max()) for file in files)
    sources = [partial(segments_of_file, str(file)) for file in files]
    return build(directory, sources, num_classes=num_classes, **options)


def segments_of_file(file: str) -> Iterator[Segment]:
    """Yield the utterances, or vectors, of one file."""
    arrays = _read(Path(file))
    features, labels, weights = arrays["features"], arrays["labels"], arrays.get("weights")
    if "lengths" not in arrays:
        yield from segments_of_vectors(features, labels, weights=weights, key=file)
        return
    ends = np.cumsum(arrays["lengths"])
    if len(ends) == 0 or ends[-1] != len(features):
        raise ValueError(
            f"{file}: its lengths sum to {ends[-1] if len(ends) else 0}, but it has "
            f"{len(features)} rows of features"
        )
    for index, (length, end) in enumerate(zip(arrays["lengths"], ends, strict=True)):
        rows = slice(int(end - length), int(end))
        yield Segment(
            f"{file}[{index}]",
            features[rows],
            labels[rows],
            weights=None if weights is None else weights[rows],
        )


def _read(file: Path) -> dict[str, Any]:
    """Return the arrays of a file; nothing in it can be code."""
    try:
        if file.suffix == ".npz":
            with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                found = {name: _plain(file, name, arrays) for name in arrays.files}
        elif file.suffix == ".safetensors":
            found = dict(safetensors.numpy.load_file(file))
        else:
            raise ValueError(f"{file}: expected a file that ends in .npz or .safetensors")
    except (zipfile.BadZipFile, safetensors.SafetensorError) as error:
        raise ValueError(f"{file}: not a whole {file.suffix} file ({error})") from error
    missing = [name for name in ("features", "labels") if name not in found]
    unknown = [name for name in found if name not in ARRAYS]
    if missing or unknown:
        raise ValueError(
            f"{file}: it has the arrays {', '.join(sorted(found)) or 'none'}; expected features "
            "and labels, and perhaps lengths and weights"
        )
    return found


def _plain(file: Path, name: str, arrays: Any) -> Any:
    try:
        return arrays[name]
    except ValueError as error:
        raise ValueError(
            f"{file}: an array of it holds Python objects, which are not read: {name}"
        ) from error
