from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from natgrad.run.model_file import ModelFileError, write_model
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.mixtures import GmmSet
from natgrad.speech.hmm import HmmStates, MonophoneTree
from natgrad.speech.trained import Trained, read_alignments, read_transforms, write_transforms
from tests.speech.contexts import PHONES, TOPOLOGY


@pytest.fixture
def trained() -> Trained:
    tree = MonophoneTree(PHONES, TOPOLOGY)
    gmms = GmmSet.flat(np.zeros(2), np.ones(2), tree.num_pdfs)
    model = AcousticModel(FrontEnd(), tree, HmmStates.of(PHONES, TOPOLOGY, tree), gmms)
    alignments = {
        "b": np.array([0, 1, 2], dtype=np.int32),
        "a": np.array([5], dtype=np.int32),
        "ä": np.array([7, 8], dtype=np.int32),
    }
    # Not in the order of memory, as transforms that were cut from a larger matrix can be.
    transforms = {"anna": np.arange(12.0).reshape(4, 3)[:2], "bert": np.arange(6.0).reshape(3, 2).T}
    return Trained(model, alignments, transforms, {"c": "too short"})


def test_all_of_it_survives_its_directory(trained: Trained, tmp_path: Path) -> None:
    trained.write(tmp_path / "new" / "one")
    again = Trained.read(tmp_path / "new" / "one")
    assert again.alignments.keys() == trained.alignments.keys()
    for key, states in trained.alignments.items():
        np.testing.assert_array_equal(again.alignments[key], states)
        assert again.alignments[key].dtype == np.int32
    assert again.failures == {"c": "too short"}
    assert again.transforms is not None
    assert trained.transforms is not None
    assert again.transforms.keys() == trained.transforms.keys()
    for speaker, transform in trained.transforms.items():
        np.testing.assert_array_equal(again.transforms[speaker], transform)
        assert again.transforms[speaker].dtype == np.float64
    again.write(tmp_path / "two")
    for file in (tmp_path / "new" / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()


def test_no_transforms_are_not_those_of_an_earlier_model(trained: Trained, tmp_path: Path) -> None:
    trained.write(tmp_path)
    replace(trained, transforms=None).write(tmp_path)
    assert Trained.read(tmp_path).transforms is None


def test_transforms_of_no_speaker_are_not_none(trained: Trained, tmp_path: Path) -> None:
    replace(trained, transforms={}).write(tmp_path)
    assert Trained.read(tmp_path).transforms == {}


def test_transforms_survive_names_that_are_not_plain(tmp_path: Path) -> None:
    names = ["f/1", "speaker with spaces", "jürgen", "__metadata", ""]
    write_transforms(tmp_path / "t", {name: np.ones((1, 2)) * i for i, name in enumerate(names)})
    assert {name: m[0, 0] for name, m in read_transforms(tmp_path / "t").items()} == {
        name: i for i, name in enumerate(names)
    }


def test_no_alignments_survive_their_file(trained: Trained, tmp_path: Path) -> None:
    replace(trained, alignments={}).write(tmp_path)
    again = Trained.read(tmp_path)
    assert (again.alignments, again.failures) == ({}, {"c": "too short"})


def test_files_of_another_kind_are_refused_by_name(trained: Trained, tmp_path: Path) -> None:
    trained.write(tmp_path)
    with pytest.raises(ModelFileError, match=r"model.safetensors has 'acoustic model' in it; exp"):
        read_alignments(tmp_path / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"alignments.safetensors has 'alignments' in it; exp"):
        read_transforms(tmp_path / "alignments.safetensors")


def test_alignments_that_lack_frames_are_refused_by_name(tmp_path: Path) -> None:
    about = {"kind": "alignments", "keys": ["a", "b"], "num_frames": [3, 2], "failures": {}}
    write_model(tmp_path / "few", {"states": torch.zeros(4, dtype=torch.int32)}, about)
    with pytest.raises(ModelFileError, match=r"few is not a whole .* 5 frames, and 4 states"):
        read_alignments(tmp_path / "few")
    write_model(tmp_path / "none", {}, about)
    with pytest.raises(ModelFileError, match=r"none is not a whole .*there is no 'states'"):
        read_alignments(tmp_path / "none")
