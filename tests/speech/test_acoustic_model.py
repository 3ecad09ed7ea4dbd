from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from natgrad.run.model_file import ModelFileError, read_model, write_model
from natgrad.speech.acoustic_model import AcousticModel
from natgrad.speech.features.front_end import FrontEnd
from natgrad.speech.gmm.questions import derive_questions
from natgrad.speech.gmm.tree import build_tree
from natgrad.speech.hmm import ContextTree, HmmStates, MonophoneTree
from tests.speech.contexts import PHONES, TOPOLOGY, draw_frames
from tests.speech.mixtures import draw_mixtures


def decision_tree() -> ContextTree:
    statistics = draw_frames(1).statistics()
    questions = derive_questions(statistics, PHONES)
    return build_tree(statistics, PHONES, TOPOLOGY, questions, 20, 5.0, 10.0)


def model_of(tree: ContextTree, has_unadapted: bool) -> AcousticModel:
    random = np.random.default_rng(0)
    states = HmmStates.of(PHONES, TOPOLOGY, tree)
    staying = random.uniform(0.1, 0.9, len(states))
    front_end = FrontEnd(1, 2, 3, random.normal(size=(4, 12)).astype(np.float32))
    sizes = random.integers(1, 4, tree.num_pdfs).tolist()
    return AcousticModel(
        front_end,
        tree,
        HmmStates.of(PHONES, TOPOLOGY, tree, staying),
        draw_mixtures(sizes, 4, seed=1),
        draw_mixtures(sizes, 4, seed=2) if has_unadapted else None,
    )


@pytest.mark.parametrize("has_tree", [False, True])
@pytest.mark.parametrize("has_unadapted", [False, True])
def test_model_survives_its_file(tmp_path: Path, has_tree: bool, has_unadapted: bool) -> None:
    tree = decision_tree() if has_tree else MonophoneTree(PHONES, TOPOLOGY)
    model = model_of(tree, has_unadapted)
    model.write(tmp_path / "model")
    again = AcousticModel.read(tmp_path / "model")
    assert (again.states.phones, again.states.topology) == (PHONES, TOPOLOGY)
    assert again.tree.context_width == tree.context_width
    for name in ("phone", "position", "pdf", "self_loop"):
        np.testing.assert_array_equal(getattr(again.states, name), getattr(model.states, name))
    left, phone, right = np.random.default_rng(3).integers(1, len(PHONES), (3, 500), np.int32)
    np.testing.assert_array_equal(
        again.tree.pdf(left, phone, right, 1), tree.pdf(left, phone, right, 1)
    )
    cepstra = np.random.default_rng(4).normal(size=(9, 1)).astype(np.float32)
    features = model.front_end(cepstra)
    np.testing.assert_array_equal(again.front_end(cepstra), features)
    np.testing.assert_array_equal(
        again.gmms.log_likelihoods(features), model.gmms.log_likelihoods(features)
    )
    assert (again.unadapted is None) == (not has_unadapted)
    if model.unadapted is not None and again.unadapted is not None:
        np.testing.assert_array_equal(again.unadapted.means, model.unadapted.means)
    again.write(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_other_model_files_are_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "other", {"x": torch.ones(1)}, {"kind": "network"})
    with pytest.raises(ModelFileError, match="other has 'network' in it; expected 'acoustic model"):
        AcousticModel.read(tmp_path / "other")


@pytest.mark.parametrize("lost", ["self_loop", "gmms.means", "tree.leaf_pdf", "front_end.context"])
def test_model_file_that_lacks_something_is_refused_by_name(tmp_path: Path, lost: str) -> None:
    model_of(decision_tree(), has_unadapted=False).write(tmp_path / "model")
    whole = read_model(tmp_path / "model")
    del whole.tensors[lost]
    write_model(tmp_path / "damaged", whole.tensors, whole.description)
    with pytest.raises(ModelFileError, match=r"damaged is not a whole file .*make it again"):
        AcousticModel.read(tmp_path / "damaged")


@pytest.mark.parametrize("name", ["self_loop", "gmms.first"])
def test_model_file_whose_parts_do_not_fit_is_refused_by_name(tmp_path: Path, name: str) -> None:
    model = model_of(MonophoneTree(PHONES, TOPOLOGY), has_unadapted=False)
    other = draw_mixtures([1] * (model.gmms.num_pdfs - 1), 4, seed=3)
    model.write(tmp_path / "model")
    whole = read_model(tmp_path / "model")
    if name == "self_loop":
        whole.tensors[name] = whole.tensors[name][1:]
    else:
        whole.tensors.update(
            {f"gmms.{part}": torch.from_numpy(a) for part, a in other.to_arrays().items()}
        )
    write_model(tmp_path / "damaged", whole.tensors, whole.description)
    with pytest.raises(ModelFileError, match=r"damaged is not a whole file .*its tree has"):
        AcousticModel.read(tmp_path / "damaged")
