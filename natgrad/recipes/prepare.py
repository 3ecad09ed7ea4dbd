"""Examples from arrays in files: what `natgrad prepare` does.

A file (.npz, or .safetensors) holds

    features   (rows, D) numbers
    labels     (rows,) integers
    lengths    optional (utterances,) rows of each utterance, in order; without them each row is an
               example of its own
    weights    optional (rows,) numbers

Whatever else a file holds is refused when it is read, by a ValueError that begins with its name.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import safetensors
from numpy.typing import NDArray

from natgrad.data import Examples, Segment, build, segments_of_vectors

__all__ = ["prepare"]

Arrays = dict[str, NDArray[Any]]
Opened = TypeVar("Opened")

NUMBERS, INTEGERS = "biuf", "iu"  # kinds of NumPy's dtypes; complex numbers are not among them
KINDS = {"features": NUMBERS, "labels": INTEGERS, "lengths": INTEGERS + "f", "weights": NUMBERS}
NUMPY_HAS = re.compile("BOOL|[IU](8|16|32|64)|F(16|32|64)|C64")  # of the types of safetensors
WRITERS = {".npz": "numpy.savez", ".safetensors": "safetensors.numpy.save_file"}
# The examples of each class are counted, in memory and in the index: 80 MB for as many classes.
LARGEST_NUM_CLASSES = 10_000_000


def prepare(
    files: Sequence[str | Path],
    directory: str | Path,
    num_classes: int | None = None,
    **options: Any,
) -> Examples:
    """Build the examples of all files; `options` are those of `natgrad.data.build`."""
    if num_classes is None:
        num_classes = 1 + max(int(_read(Path(file))["labels"].max()) for file in files)
    elif num_classes > LARGEST_NUM_CLASSES:
        raise ValueError(
            f"num_classes is {num_classes}; expected at most {LARGEST_NUM_CLASSES}. Give 1 + the "
            "largest label, or leave it out."
        )
    sources = [partial(segments_of_file, str(file)) for file in files]
    return build(directory, sources, num_classes=num_classes, **options)


def segments_of_file(file: str) -> Iterator[Segment]:
    """Yield the utterances, or vectors, of one file."""
    arrays = _read(Path(file))
    features, labels, weights = arrays["features"], arrays["labels"], arrays.get("weights")
    if "lengths" not in arrays:
        yield from segments_of_vectors(features, labels, weights=weights, key=file)
        return
    lengths = arrays["lengths"].tolist()
    for index, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True)):
        rows = slice(end - length, end)
        yield Segment(
            f"{file}[{index}]",
            features[rows],
            labels[rows],
            weights=None if weights is None else weights[rows],
        )


# -- file -> arrays ----------------------------------------------------------------------------


def _read(file: Path) -> Arrays:
    """Return the arrays of a file, known to fit one another; nothing in it can be code."""
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    if file.suffix not in readers:
        raise ValueError(f"{file}: expected a file that ends in .npz or .safetensors")
    with open(file, "rb"):  # for an error that names the file: that of safetensors may not
        arrays = readers[file.suffix](file)
    _check_kinds(file, arrays)
    _check_shapes(file, arrays)
    _check_labels(file, arrays["labels"])
    if "lengths" in arrays:
        arrays["lengths"] = _whole_lengths(file, arrays["lengths"], len(arrays["features"]))
    return arrays


def _read_npz(file: Path) -> Arrays:
    # Not by numpy.load, which takes a file that is no archive for an array, or for a pickle.
    with _open_whole(file, zipfile.ZipFile) as archive:
        members = {member.removesuffix(".npy"): member for member in archive.namelist()}
        _check_names(file, members)
        return {name: _array_of(file, archive, member) for name, member in members.items()}


def _array_of(file: Path, archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    try:
        with archive.open(member) as opened:
            array: NDArray[Any] = np.lib.format.read_array(opened, allow_pickle=False)
            if opened.read(1):  # which also lets zipfile compare the checksum
                raise ValueError("the array ends before the member does")
    except MemoryError as error:
        raise ValueError(
            f"{file}: {member} of it does not fit in memory; split the file into smaller ones"
        ) from error
    except Exception as error:  # damage may show anywhere in zipfile, zlib and NumPy
        if str(error).startswith("Object arrays"):
            raise ValueError(
                f"{file}: an array of it holds Python objects, which are not read: {member}"
            ) from error
        # What NumPy says is left out: it may advise to trust the file and allow pickles.
        raise ValueError(
            f"{file}: {member} of it is damaged, or no array of NumPy; write the file again, with "
            f"{WRITERS['.npz']}"
        ) from error
    return array


def _read_safetensors(file: Path) -> Arrays:
    with _open_whole(file, partial(safetensors.safe_open, framework="numpy")) as tensors:
        names = list(tensors.keys())
        _check_names(file, names)
        return {name: _tensor_of(file, tensors, name) for name in names}


def _tensor_of(file: Path, tensors: Any, name: str) -> NDArray[Any]:
    # Asked first, as bfloat16 and the like are errors of several kinds in NumPy; and no error if
    # some other package has taught NumPy these types.
    dtype = tensors.get_slice(name).get_dtype()
    if not NUMPY_HAS.fullmatch(dtype):
        raise ValueError(
            f"{file}: its {name} are {dtype}, which NumPy does not have; write them as float32 or "
            "int64"
        )
    array: NDArray[Any] = tensors.get_tensor(name)
    return array


def _open_whole(file: Path, open_file: Callable[[Path], Opened]) -> Opened:
    try:
        return open_file(file)
    except OSError:
        raise
    except Exception as error:  # damage shows as one of several errors of zipfile
        raise ValueError(
            f"{file}: not a whole {file.suffix} file ({error}); write it with "
            f"{WRITERS[file.suffix]}"
        ) from error


# -- what is expected of the arrays ------------------------------------------------------------


def _check_names(file: Path, names: Iterable[str]) -> None:
    found = sorted(names)
    if not {"features", "labels"} <= set(found) <= set(KINDS):
        raise ValueError(
            f"{file}: it has the arrays {', '.join(found) or 'none'}; expected features "
            "and labels, and perhaps lengths and weights"
        )


def _check_kinds(file: Path, arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS[name]:
            expected = "real numbers" if KINDS[name] == NUMBERS else "integers"
            raise ValueError(
                f"{file}: its {name} are {array.dtype}; expected {expected}. Convert them, and "
                "write the file again"
            )


def _check_shapes(file: Path, arrays: Arrays) -> None:
    shape = arrays["features"].shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"{file}: its features have shape {shape}; expected (rows, dimensions), both at least "
            "1. Leave out files without rows"
        )
    for name in ("labels", "weights"):
        if name in arrays and arrays[name].shape != shape[:1]:
            raise ValueError(
                f"{file}: it has {shape[0]} rows of features, but {name} of shape "
                f"{arrays[name].shape}; expected one per row, shape {shape[:1]}"
            )


def _check_labels(file: Path, labels: NDArray[Any]) -> None:
    smallest, largest = int(labels.min()), int(labels.max())
    if smallest < 0 or largest >= LARGEST_NUM_CLASSES:
        raise ValueError(
            f"{file}: its labels go from {smallest} to {largest}; expected classes, counted from "
            f"0, up to {LARGEST_NUM_CLASSES - 1}. Number the classes anew"
        )


def _whole_lengths(file: Path, lengths: NDArray[Any], num_rows: int) -> NDArray[np.int64]:
    """Return the lengths, which may be floats such as 10.0, as integers that sum to the rows."""
    if lengths.ndim != 1:
        raise ValueError(
            f"{file}: its lengths have shape {lengths.shape}; expected one axis, (utterances,)"
        )
    values = lengths.tolist()  # Python's numbers, whose sum does not overflow
    for index, value in enumerate(values):
        if not (value >= 1 and float(value).is_integer()):
            raise ValueError(
                f"{file}: its lengths have {value} at [{index}]; expected whole numbers of rows, "
                "at least 1. Leave out utterances without rows"
            )
    if sum(values) != num_rows:
        raise ValueError(
            f"{file}: its lengths sum to {sum(values)}, but it has {num_rows} rows of features; "
            "expected each row to be in one utterance"
        )
    return lengths.astype(np.int64)
