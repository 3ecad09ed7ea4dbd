"""Archives and scripts of Kaldi's: there and back, by kaldiio and by hand; and what is refused."""

from __future__ import annotations

import gzip
import pickle
import re
from pathlib import Path
from typing import Any

import kaldiio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from natgrad.speech.features.kaldi_archive import (
    KaldiArchiveError,
    open_script,
    read_archive,
    write_archive,
)

Array = NDArray[Any]

ARRAYS: dict[str, Array] = {
    "matrix": np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32),
    "double": np.random.default_rng(1).standard_normal((2, 4)),
    "alignment": np.array([0, -1, 2**31 - 1, 7], dtype=np.int32),
    "vector": np.array([1.5, -2.0], dtype=np.float32),
    "nothing": np.zeros(0, dtype=np.int32),
    "no-rows": np.zeros((0, 0), dtype=np.float32),
}


def assert_same(read: dict[str, Array], expected: dict[str, Array]) -> None:
    assert list(read) == list(expected)
    for key, array in expected.items():
        assert read[key].dtype == array.dtype
        assert read[key].shape == array.shape
        assert np.array_equal(read[key], array)


def test_archive_and_script_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items(), tmp_path / "a.scp")
    assert_same(dict(read_archive(tmp_path / "a.ark")), ARRAYS)
    script = open_script(tmp_path / "a.scp")
    assert_same(dict(script), ARRAYS)
    assert_same(dict(pickle.loads(pickle.dumps(script))), ARRAYS)


def test_kaldiio_reads_what_is_written(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items(), tmp_path / "a.scp")
    assert_same(dict(kaldiio.load_scp(str(tmp_path / "a.scp")).items()), ARRAYS)
    assert_same(dict(kaldiio.load_ark(str(tmp_path / "a.ark"))), ARRAYS)


def test_what_kaldiio_writes_is_read(tmp_path: Path) -> None:
    kaldiio.save_ark(str(tmp_path / "a.ark"), ARRAYS, str(tmp_path / "a.scp"))
    assert_same(dict(read_archive(tmp_path / "a.ark")), ARRAYS)
    assert_same(dict(open_script(tmp_path / "a.scp")), ARRAYS)


@settings(max_examples=30, deadline=None)
@given(hnp.arrays(np.int64, st.integers(0, 9), elements=st.integers(-(2**31), 2**31 - 1)))
def test_integers_of_any_width_become_those_of_kaldi(
    tmp_path_factory: pytest.TempPathFactory, integers: NDArray[np.int64]
) -> None:
    path = tmp_path_factory.mktemp("archive") / "a.ark"
    write_archive(path, [("key", integers)])
    ((_, read),) = read_archive(path)
    assert read.dtype == np.int32
    assert np.array_equal(read, integers)


@pytest.mark.parametrize("num_rows", [3, 200])
def test_compressed_matrices_come_back_nearly(tmp_path: Path, num_rows: int) -> None:
    matrix = np.random.default_rng(0).standard_normal((num_rows, 13)).astype(np.float32)
    items = [("a", matrix), ("b", ARRAYS["alignment"]), ("c", ARRAYS["no-rows"])]
    write_archive(tmp_path / "a.ark", items, compress=True)
    read = dict(read_archive(tmp_path / "a.ark"))
    assert (tmp_path / "a.ark").stat().st_size < matrix.nbytes
    assert read["a"].dtype == np.float32
    np.testing.assert_allclose(read["a"], matrix, atol=0.05)
    assert np.array_equal(read["b"], ARRAYS["alignment"])
    assert read["c"].size == 0


@pytest.mark.parametrize("method", range(1, 8))
def test_every_compression_of_kaldi_is_read(tmp_path: Path, method: int) -> None:
    matrix = np.random.default_rng(0).random((50, 4)).astype(np.float32)
    kaldiio.save_ark(str(tmp_path / "a.ark"), {"a": matrix}, compression_method=method)
    ((_, read),) = read_archive(tmp_path / "a.ark")
    np.testing.assert_allclose(read, matrix, atol=1.01 if method in (4, 6) else 0.02)


def test_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.ark"
    path.write_text("m  [\n  0 0.5\n  1 2e-3 ]\nv  [ 0 1.5 ]\nali 1 2 3 \nempty \none 4\n")
    expected = {
        "m": np.array([[0, 0.5], [1, 0.002]], dtype=np.float32),
        "v": np.array([0, 1.5], dtype=np.float32),
        "ali": np.array([1, 2, 3], dtype=np.int32),
        "empty": np.zeros(0, dtype=np.int32),
        "one": np.array([4], dtype=np.int32),
    }
    assert_same(dict(read_archive(path)), expected)


def test_rows_of_a_text_matrix_may_begin_behind_the_bracket(tmp_path: Path) -> None:
    path = tmp_path / "a.ark"
    path.write_text("m [ 0 0.5\n  1 2\n  3 4 ]\nrow  [\n  5 6 ]\n")
    expected = {
        "m": np.array([[0, 0.5], [1, 2], [3, 4]], dtype=np.float32),
        "row": np.array([[5, 6]], dtype=np.float32),
    }
    assert_same(dict(read_archive(path)), expected)


def test_packed_archives_are_read(tmp_path: Path) -> None:
    write_archive(tmp_path / "ali.1", ARRAYS.items())
    packed = tmp_path / "ali.1.gz"
    packed.write_bytes(gzip.compress((tmp_path / "ali.1").read_bytes()))
    assert_same(dict(read_archive(packed)), ARRAYS)


def test_script_gives_the_rows_that_it_names(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items(), tmp_path / "a.scp")
    line = (tmp_path / "a.scp").read_text().splitlines()[0]
    (tmp_path / "a.scp").write_text(f"{line}[2:4]\n")
    part = open_script(tmp_path / "a.scp")["matrix"]
    assert np.array_equal(part, ARRAYS["matrix"][2:5])


def named_rows(directory: Path, rows: str) -> Array:
    write_archive(directory / "a.ark", ARRAYS.items(), directory / "a.scp")
    line = (directory / "a.scp").read_text().splitlines()[0]
    (directory / "a.scp").write_text(f"{line}{rows}\n")
    return open_script(directory / "a.scp")["matrix"]


@pytest.mark.parametrize("last", [19, 20, 22])
def test_rows_up_to_three_beyond_the_end_are_those_to_the_end(tmp_path: Path, last: int) -> None:
    assert np.array_equal(named_rows(tmp_path, f"[15:{last}]"), ARRAYS["matrix"][15:])


@pytest.mark.parametrize("rows", ["[15:23]", "[5:4]", "[20:20]"])
def test_rows_that_an_array_does_not_have_are_refused(tmp_path: Path, rows: str) -> None:
    with pytest.raises(KaldiArchiveError, match=r"a\.scp: matrix: rows \d+ to \d+ .* has 20, "):
        named_rows(tmp_path, rows)


@pytest.mark.parametrize("columns", ["[2:4,0:1]", "[:,0:1]", "[,0:1]"])
def test_columns_are_refused_in_the_script_and_not_taken_for_a_file(
    tmp_path: Path, columns: str
) -> None:
    with pytest.raises(KaldiArchiveError, match=r"a\.scp, line 1: .* and no columns"):
        named_rows(tmp_path, columns)


def test_script_that_points_beyond_the_end_of_its_archive_is_refused(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items())
    (tmp_path / "a.scp").write_text(f"matrix {tmp_path}/a.ark:99999\n")
    with pytest.raises(KaldiArchiveError, match=r"array of matrix, named in .*the file ends"):
        open_script(tmp_path / "a.scp")["matrix"]


def test_script_with_tabs_and_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items(), tmp_path / "a.scp")
    content = (tmp_path / "a.scp").read_text().replace(" ", "\t")
    (tmp_path / "a.scp").write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert_same(dict(open_script(tmp_path / "a.scp")), ARRAYS)


def test_arrays_read_may_be_written_to(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items())
    assert all(array.flags.writeable for _, array in read_archive(tmp_path / "a.ark"))


@pytest.mark.parametrize("key", ["matrix", "double", "alignment", "vector"])
@pytest.mark.parametrize("lost", [1, 4, 8])
def test_truncated_archive_is_refused_by_name(tmp_path: Path, key: str, lost: int) -> None:
    path = tmp_path / "a.ark"
    write_archive(path, [("before", ARRAYS["matrix"]), (key, ARRAYS[key])])
    path.write_bytes(path.read_bytes()[:-lost])
    archive = read_archive(path)
    assert next(archive)[0] == "before"
    with pytest.raises(KaldiArchiveError, match=f"{path}.*array of {key} cannot be read"):
        next(archive)


def test_truncated_packed_archive_is_refused_by_name(tmp_path: Path) -> None:
    write_archive(tmp_path / "a.ark", ARRAYS.items())
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.ark").read_bytes())[:-30])
    with pytest.raises(KaldiArchiveError, match=str(packed)):
        list(read_archive(packed))


@pytest.mark.parametrize(
    "content",
    [
        b"key",  # no space, no array
        b"key \0BXX \4\1\0\0\0",  # no such kind
        b"key \0BFM \4\xff\xff\xff\xff\4\2\0\0\0",  # less than no rows
        b"key \0B\4\1\0\0\0\2\0\0\0\0",  # an integer of two bytes
        b"key  [\n 1 2\n 3 ]\n",  # rows of different lengths
        b"key  [ 1 2\n",  # no end
        b"key one two\n",
        b"key ",  # cut short between a key and its array
        b"key 99999999999\n",  # more than 32 bits
        b"key \0BFM \4\xff\xff\xff\x7f\4\xff\xff\xff\x7f",  # more than any memory holds
        b"key \0BFM \4\xff\xff\0\0\4\xff\xff\xff\0",
        b"\xff\xfe \0BFV ",
        b"RIFF1234WAVE",
        b"x" * 10_000,
    ],
)
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.ark"
    path.write_bytes(content)
    with pytest.raises(KaldiArchiveError, match=re.escape(str(path))):
        list(read_archive(path))


class Trap:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_pickled_objects_are_refused_and_not_unpickled(tmp_path: Path) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / "a.ark").write_bytes(b"key PKL" + pickle.dumps(Trap(sprung)))
    with pytest.raises(KaldiArchiveError, match="array of key cannot be read"):
        list(read_archive(tmp_path / "a.ark"))
    assert not sprung.exists()


@pytest.mark.parametrize("command", ["touch {} |", "| touch {}"])
def test_commands_are_refused_and_not_run(tmp_path: Path, command: str) -> None:
    sprung = tmp_path / "sprung"
    (tmp_path / "a.scp").write_text(f"key {command.format(sprung)}\n")
    with pytest.raises(KaldiArchiveError, match=r"a\.scp, line 1: .* is a command"):
        open_script(tmp_path / "a.scp")
    assert not sprung.exists()


@pytest.mark.parametrize("content", ["key\n", "a f.ark:1\n\nb f.ark:2\n", "a f:1\na f:2\n"])
def test_lines_of_a_script_that_are_no_good_are_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.scp").write_text(content)
    with pytest.raises(KaldiArchiveError, match=r"a\.scp, line [12]: "):
        open_script(tmp_path / "a.scp")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(KaldiArchiveError, match=re.escape(f"cannot read {tmp_path / 'a.ark'}")):
        list(read_archive(tmp_path / "a.ark"))
    (tmp_path / "a.scp").write_text("key gone.ark:5\n")
    with pytest.raises(KaldiArchiveError, match=r"cannot read gone\.ark"):
        open_script(tmp_path / "a.scp")["key"]
    with pytest.raises(KeyError, match="there is no 'other' in"):
        open_script(tmp_path / "a.scp")["other"]


@pytest.mark.parametrize(
    ("key", "array", "message"),
    [
        ("a b", np.zeros(3, np.float32), "cannot write the key 'a b'"),
        ("", np.zeros(3, np.float32), "cannot write the key ''"),
        ("a", np.zeros((2, 2), np.int32), "a: its array is int32 of shape"),
        ("a", np.zeros(3, np.float16), "a: its array is float16 of shape"),
        ("a", np.array([2**31]), "a: its integers do not fit into 32 bits"),
    ],
)
def test_what_kaldi_cannot_hold_is_refused_and_leaves_no_file(
    tmp_path: Path, key: str, array: Array, message: str
) -> None:
    with pytest.raises(KaldiArchiveError, match=message):
        write_archive(tmp_path / "a.ark", [(key, array)])
    assert list(tmp_path.iterdir()) == []


def test_the_same_key_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KaldiArchiveError, match="cannot write the key 'a': expected keys that"):
        write_archive(tmp_path / "a.ark", [("a", ARRAYS["vector"])] * 2)
