from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from natgrad.data import Block
from natgrad.recipes.prepare import prepare


def arrays(num_rows: int = 60) -> dict[str, Any]:
    random = np.random.default_rng(1)
    return {
        "features": random.normal(size=(num_rows, 5)).astype(np.float32),
        "labels": np.arange(num_rows) % 4,
    }


def test_vectors_of_several_files_become_examples(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    safetensors.numpy.save_file(arrays(20), tmp_path / "b.safetensors")
    examples = prepare([tmp_path / "a.npz", tmp_path / "b.safetensors"], tmp_path / "examples")
    assert (examples.num_samples, examples.num_classes, examples.input_dim) == (80, 4, 5)
    assert examples.class_counts.tolist() == [20, 20, 20, 20]


def test_utterances_have_their_context(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(), lengths=np.array([10, 50]), weights=np.ones(60))
    examples = prepare(
        [tmp_path / "a.npz"], tmp_path / "examples", num_classes=9, left_context=2, right_context=1
    )
    assert (examples.input_dim, examples.num_classes) == (20, 9)
    pieces = list(Block.read(examples.block_paths[0]).pieces())
    assert {piece.key for piece in pieces} == {f"{tmp_path}/a.npz[{i}]" for i in range(2)}
    first = next(p for p in pieces if p.key.endswith("[1]") and p.start == 0)
    expected = np.concatenate([arrays()["features"][i] for i in (10, 10, 10, 11)])
    assert first.examples.features[0].numpy() == pytest.approx(expected, abs=0.1)


def test_bad_files_are_refused_by_name(tmp_path: Path) -> None:
    def refuse(name: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"{name}: {message}"):
            prepare([tmp_path / name], tmp_path / "examples")

    (tmp_path / "a.csv").write_text("1,2")
    refuse("a.csv", "expected a file that ends in .npz or .safetensors")
    np.savez(tmp_path / "b.npz", x=np.ones(3))
    refuse("b.npz", "it has the arrays x; expected features and labels")
    (tmp_path / "c.npz").write_bytes((tmp_path / "b.npz").read_bytes()[:50])
    refuse("c.npz", "not a whole .npz file")
    (tmp_path / "d.safetensors").write_bytes(b"no")
    refuse("d.safetensors", "not a whole .safetensors file")
    np.savez(tmp_path / "e.npz", **arrays(), lengths=np.array([10, 40]))
    refuse("e.npz", "its lengths sum to 50, but it has 60 rows")
    np.savez(tmp_path / "f.npz", features=np.array([{}]), labels=np.ones(1))
    refuse("f.npz", "an array of it holds Python objects")
    assert not (tmp_path / "examples" / "examples.json").exists()
