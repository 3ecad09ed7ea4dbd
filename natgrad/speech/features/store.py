"""Features of many utterances on disk, read one utterance at a time.

A store is a directory of shards and `INDEX`, a model file that says where each utterance is, and
has the checksum of its bytes. The index is written last, and shards are named by what is in them:
until then, an earlier store in the same place stays as it was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from natgrad.atomic import leftovers
from natgrad.run.model_file import ModelFileError, read_model, write_model
from natgrad.speech.features.mfcc import FeatureError
from natgrad.speech.features.shard import (
    SHARD_NAME,
    Bytes,
    FeatureStoreError,
    Place,
    Shard,
    map_shard,
    read_utterance,
    write_shard,
)

__all__ = ["FeatureStore", "FeatureStoreError", "open_features", "write_features", "write_index"]

Floats = NDArray[np.float32]

INDEX = "index.safetensors"
FORMAT = "natgrad features 1"
SHARD_BYTES = 2**26


class FeatureStore(Mapping[str, Floats]):
    """The features of utterances by key, (T, D) each: a mapping that reads when it is asked.

    Pickled, it is a path: it is opened again where it is unpickled. Made by `open_features` and
    `write_features`.
    """

    def __init__(
        self,
        path: Path,
        dim: int,
        about: dict[str, Any],
        shards: Sequence[tuple[str, int]],
        places: dict[str, tuple[int, Place]],
    ) -> None:
        self.path = path
        self.dim = dim
        self.about = about  # what the writer had to say of the features
        self._shards = shards  # names and sizes
        self._places = places  # in which shard, and where there
        self._maps: dict[int, Bytes] = {}

    def __getitem__(self, key: str) -> Floats:
        number, place = self._place(key)
        path = self.path / self._shards[number][0]
        if number not in self._maps:
            self._maps[number] = map_shard(path, self._shards[number][1])
        values = read_utterance(self._maps[number], place, self.dim)
        if values is None:
            raise FeatureStoreError(
                f"the features of {key} in {path} are damaged: their bytes do not have the "
                "checksum of those that were written; extract them again"
            )
        return values

    def num_frames(self, key: str) -> int:
        """Return the number of an utterance's frames, without reading them."""
        return self._place(key)[1].num_frames

    @property
    def total_frames(self) -> int:
        """The number of frames of all utterances."""
        return sum(place.num_frames for _, place in self._places.values())

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.path)!r}, {len(self)} utterances of dimension {self.dim})"

    def __reduce__(self) -> tuple[Callable[[Path], FeatureStore], tuple[Path]]:
        return open_features, (self.path,)

    def _place(self, key: str) -> tuple[int, Place]:
        try:
            return self._places[key]
        except KeyError:
            raise KeyError(f"there are no features of {key!r} in {self.path}") from None


def open_features(path: str | Path) -> FeatureStore:
    """Open a store of features.

    Raises:
        FeatureStoreError: there is none, or its index is damaged.
    """
    path = Path(path).absolute()
    try:
        index = read_model(path / INDEX)
    except ModelFileError as error:
        raise FeatureStoreError(
            f"{path} is not a whole store of features: {error}. If their extraction was "
            "interrupted, run it again"
        ) from error
    content = index.description
    if content.get("format") != FORMAT:
        raise FeatureStoreError(
            f"{path / INDEX} is of format {content.get('format')!r}; expected {FORMAT!r}"
        )
    table = index.tensors["places"].numpy()
    if content.pop("checksum") != _index_checksum(table, content):
        raise FeatureStoreError(
            f"{path / INDEX} is damaged: its checksum is not that of what was written; extract the "
            "features again"
        )
    places = ((number, Place(*place)) for number, *place in table.tolist())
    return FeatureStore(
        path,
        content["dim"],
        content["about"],
        [(name, num_bytes) for name, num_bytes in content["shards"]],
        dict(zip(content["keys"], places, strict=True)),
    )


def write_features(
    path: str | Path,
    features: Iterable[tuple[str, Floats]],
    about: Mapping[str, Any] | None = None,
) -> FeatureStore:
    """Write a store of features, in place of any that was there; open it.

    Args:
        path: its directory.
        features: keys and (T, D) features, D the same for all.
        about: anything that JSON can hold; the store has it as `about`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "features"
    >>> store = write_features(path, [("utterance", np.eye(3, dtype=np.float32))])
    >>> store["utterance"].tolist(), store.num_frames("utterance")
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 3)

    Raises:
        FeatureError: features are empty, not finite, of another dimension, or there twice; their
            key is named.
        StorageError: a file cannot be written.
    """
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    remaining = iter(features)
    shards = [write_shard(path, 0, remaining, None, SHARD_BYTES)]
    while shards[-1].places:
        shards.append(write_shard(path, len(shards), remaining, shards[0].dim, SHARD_BYTES))
    if len(shards) == 1:
        raise FeatureError(f"there are no features to write to {path}")
    return write_index(path, shards[:-1], shards[0].dim, about or {})


def write_index(
    path: Path, shards: Sequence[Shard], dim: int, about: Mapping[str, Any]
) -> FeatureStore:
    """Make shards that were written into a store, remove what is left of an earlier; open it."""
    rows: dict[str, tuple[int, ...]] = {}
    for number, shard in enumerate(shards):
        for key, place in shard.places.items():
            if key in rows:
                raise FeatureError(f"{key}: there are features of it twice; keys must differ")
            rows[key] = (number, *place)
    table = np.array(list(rows.values()), dtype=np.int64).reshape(-1, 1 + len(Place._fields))
    content: dict[str, Any] = {
        "format": FORMAT,
        "dim": dim,
        "keys": list(rows),
        "shards": [[shard.name, shard.num_bytes] for shard in shards],
        "about": dict(about),
    }
    checksum = _index_checksum(table, content)
    tensors = {"places": torch.from_numpy(table)}
    write_model(path / INDEX, tensors, {**content, "checksum": checksum})
    _remove_shards(path, {shard.name for shard in shards})
    return open_features(path)


def _remove_shards(path: Path, kept: Collection[str]) -> None:
    """Remove other shards, and what writing them has left; others' files may be there, too."""
    shards = [file for file in path.iterdir() if SHARD_NAME.fullmatch(file.name)]
    halves = [file for file in leftovers(path) if SHARD_NAME.match(file.name)]
    for file in (*shards, *halves):
        if file.name not in kept:
            file.unlink(missing_ok=True)


def _index_checksum(table: NDArray[np.int64], content: Mapping[str, Any]) -> int:
    text = json.dumps(content, sort_keys=True).encode()
    return zlib.crc32(table.astype("<i8").tobytes(), zlib.crc32(text))
