from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from natgrad.cli import main
from natgrad.data import Block
from natgrad.recipes.prepare import LARGEST_NUM_CLASSES, prepare
from tests.test_atomic import largest_file


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


@pytest.mark.parametrize("num_classes", [None, 4])
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": np.arange(80) % 4}, r"60 rows of features, but labels of shape \(80,\)"),
        ({"labels": np.array(3)}, r"60 rows of features, but labels of shape \(\)"),
        ({"labels": np.array(["a"] * 60)}, "its labels are <U1; expected integers"),
        ({"labels": np.array([b"a"] * 60)}, r"its labels are \|S1; expected integers"),
        ({"labels": np.zeros(60, "datetime64[s]")}, r"its labels are datetime64\[s\]; expected"),
        ({"labels": np.full(60, np.nan)}, "its labels are float64; expected integers"),
        ({"labels": np.full(60, np.inf)}, "its labels are float64; expected integers"),
        ({"labels": np.arange(60) - 90}, "its labels go from -90 to -31; expected classes"),
        ({"labels": np.arange(60) << 40}, f"expected .* up to {LARGEST_NUM_CLASSES - 1}"),
        ({"weights": np.ones(61)}, r"60 rows of features, but weights of shape \(61,\)"),
        ({"weights": np.array(["a"] * 60)}, "its weights are <U1; expected real numbers"),
        ({"weights": np.ones(60) * 1j}, "its weights are complex128; expected real numbers"),
        ({"features": np.ones((60, 5)) * 1j}, "its features are complex128; expected real numbers"),
        ({"features": np.array([["1"]] * 60)}, "its features are <U1; expected real numbers"),
        (
            {"features": np.ones((0, 5)), "labels": np.arange(0)},
            r"its features have shape \(0, 5\)",
        ),
        ({"features": np.array(1.0)}, r"its features have shape \(\); expected \(rows, dim"),
        ({"lengths": np.array([10.5, 49.5])}, r"its lengths have 10.5 at \[0\]; expected whole"),
        ({"lengths": np.array([70, -10])}, r"its lengths have -10 at \[1\]; expected whole"),
        ({"lengths": np.array([60.0, np.nan])}, r"its lengths have nan at \[1\]; expected whole"),
        ({"lengths": np.array([2**63 - 1, 2**63 - 1, 62])}, "its lengths sum to 18446744073709"),
        ({"lengths": np.array([[10, 50]])}, r"its lengths have shape \(1, 2\); expected one axis"),
        ({"lengths": np.array(60)}, r"its lengths have shape \(\); expected one axis"),
        ({"lengths": np.array(["10", "50"])}, "its lengths are <U2; expected integers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_and_none_is_cut_short(
    tmp_path: Path, changed: dict[str, Any], message: str, num_classes: int | None
) -> None:
    file = tmp_path / "a.npz"
    np.savez(file, **{**arrays(), "lengths": np.array([10, 50]), **changed})
    with pytest.raises(ValueError, match=f"^{file}: .*{message}"):
        prepare([file], tmp_path / "examples", num_classes=num_classes)


def test_lengths_may_be_whole_floats(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(), lengths=np.array([10.0, 50.0]))
    assert prepare([tmp_path / "a.npz"], tmp_path / "examples").num_samples == 60


def npy(array: Any) -> bytes:
    opened = io.BytesIO()
    np.save(opened, array)
    return opened.getvalue()


def archive(**members: bytes) -> bytes:
    opened = io.BytesIO()
    with zipfile.ZipFile(opened, "w") as written:
        for name, content in members.items():
            written.writestr(name, content)
    return opened.getvalue()


def archive_with_shape(shape: bytes) -> bytes:
    """Return an archive that says of its features, of shape (60, 5), that they have another."""
    members = {f"{name}.npy": npy(array) for name, array in arrays().items()}
    before = b"(60, 5), }" + 20 * b" "
    after = (shape + b", }").ljust(len(before))
    assert before in members["features.npy"]
    members["features.npy"] = members["features.npy"].replace(before, after)
    return archive(**members)


def compressed_with_damage(place: int) -> bytes:
    opened = io.BytesIO()
    np.savez_compressed(opened, **arrays())
    content = bytearray(opened.getvalue())
    content[place : place + 4] = b"\xff\xff\xff\xff"
    return bytes(content)


NOT_WHOLE = r"not a whole .npz file \(.*\); write it with numpy.savez"
NO_ARRAY = r"features(\.npy)? of it is damaged, or no array of NumPy; write the file again"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", NOT_WHOLE, id="empty"),
        pytest.param(b"features,labels\n1,2\n", NOT_WHOLE, id="text"),
        pytest.param(npy(np.ones(3)), NOT_WHOLE, id="npy"),
        pytest.param(archive(), "it has the arrays none", id="empty_archive"),
        pytest.param(archive(features=b"1 2", labels=b"1 2"), NO_ARRAY, id="archive_of_texts"),
        pytest.param(compressed_with_damage(80), NO_ARRAY, id="damaged_stream"),
        pytest.param(compressed_with_damage(600), NO_ARRAY, id="damaged_values"),
        pytest.param(archive_with_shape(b"(50, 5)"), NO_ARRAY, id="fewer_rows"),
        pytest.param(
            archive_with_shape(b"(9000000000000000, 5)"),
            "features.npy of it does not fit in memory",
            id="huge",
        ),
    ],
)
def test_damaged_archive_is_one_line_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    file = tmp_path / "a.npz"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{file}: {message}") as refused:
        prepare([file], tmp_path / "examples")
    assert "pickle" not in str(refused.value)
    assert main(["prepare", str(file), "-o", str(tmp_path / "examples")]) == 2
    assert capsys.readouterr().err == f"natgrad: {refused.value}\n"


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.bfloat16, "BF16"), (torch.float8_e4m3fn, "F8_E4M3")]
)
def test_types_that_numpy_lacks_are_named(tmp_path: Path, dtype: torch.dtype, name: str) -> None:
    file = tmp_path / "a.safetensors"
    tensors = {"features": torch.ones(3, 2).to(dtype), "labels": torch.zeros(3, dtype=torch.int64)}
    safetensors.torch.save_file(tensors, file)
    with pytest.raises(ValueError, match=f"^{file}: its features are {name}, which NumPy does not"):
        prepare([file], tmp_path / "examples")


def test_more_classes_than_can_be_counted_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())
    with pytest.raises(ValueError, match=f"num_classes is {2**40}; expected at most {10**7}"):
        prepare([tmp_path / "a.npz"], tmp_path / "examples", num_classes=2**40)


def test_full_disk_names_the_file_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "a.npz", **arrays(3000))
    command = ["prepare", str(tmp_path / "a.npz"), "-o", str(tmp_path / "examples")]
    with largest_file(1000):
        assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"natgrad: cannot write {tmp_path / 'examples' / 'spill'}")
    assert "table.npy: File too large." in said
    assert main(command) == 0


@pytest.mark.parametrize(
    "dtype", ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]
)
def test_features_may_be_of_every_real_type(tmp_path: Path, dtype: str) -> None:
    file = tmp_path / "a.safetensors"
    safetensors.numpy.save_file({**arrays(), "features": np.ones((60, 5), dtype)}, file)
    assert prepare([file], tmp_path / "examples").num_samples == 60
