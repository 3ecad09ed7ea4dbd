from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from natgrad.run.model_file import ModelFileError, read_model, write_model


def test_model_comes_back_bit_by_bit(tmp_path: Path) -> None:
    tensors = {
        "a.weight": torch.randn(3, 4).t(),
        "b": torch.tensor([1, 2]),
        "c": torch.randn(2, dtype=torch.float64),
        "empty": torch.zeros(0),
        "flag": torch.tensor(True),
    }
    write_model(tmp_path / "m", tensors, {"network": {"hidden": [1, 2]}, "text": "ü"})
    model = read_model(tmp_path / "m")
    assert model.description == {"network": {"hidden": [1, 2]}, "text": "ü"}
    assert model.tensors.keys() == tensors.keys()
    assert all(torch.equal(model.tensors[name], tensors[name]) for name in tensors)


def test_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    tensors = {name: torch.full((3,), float(i)) for i, name in enumerate("abcdefg")}
    write_model(tmp_path / "1", tensors, {"x": 1, "y": 2})
    write_model(tmp_path / "2", dict(reversed(tensors.items())), {"y": 2, "x": 1})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("num_bytes", [0, 5, 50, -1])
def test_file_that_is_cut_short_is_refused_by_name(tmp_path: Path, num_bytes: int) -> None:
    write_model(tmp_path / "model", {"w": torch.randn(100)}, {})
    content = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(content[:num_bytes])
    with pytest.raises(ModelFileError, match=r"model is not a whole model file"):
        read_model(tmp_path / "model")


def test_absent_and_foreign_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"there is no model file .*absent"):
        read_model(tmp_path / "absent")
    safetensors.torch.save_file({"w": torch.ones(1)}, tmp_path / "other")
    with pytest.raises(ModelFileError, match=r"other is in the safetensors format, but was not"):
        read_model(tmp_path / "other")
    with pytest.raises(ModelFileError, match="is a directory; expected a model file"):
        read_model(tmp_path)
