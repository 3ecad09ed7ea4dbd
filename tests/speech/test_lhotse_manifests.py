from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from natgrad.speech.data.directory import DataDirectory, DataError, Utterance
from natgrad.speech.data.lhotse_manifests import read_lhotse, write_lhotse
from tests.speech.recordings import babble, write_recording

NAMES = ("recordings.jsonl.gz", "supervisions.jsonl.gz")


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    tape = write_recording(tmp_path / "the tape.flac", babble(2.0))
    whole = write_recording(tmp_path / "whole.wav", babble(0.7, 8000), 8000)
    return DataDirectory.of(
        [
            Utterance("ann-1", "ann", tape, 0.1, 0.3, ("GRÜSS", "GOTT"), "tape"),
            Utterance("ann-2", "ann", tape, 1.3, None, (), "tape"),
            Utterance("bob-1", "bob", whole),
        ],
        {"ann": "f"},
    )


def rewrite(path: Path, **changes: Any) -> None:
    """Change the first item of a manifest."""
    items = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    items[0] |= changes
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, items)).encode()))


def test_manifests_that_were_written_give_the_same_data(
    data: DataDirectory, tmp_path: Path
) -> None:
    write_lhotse(data, tmp_path / "out")
    assert read_lhotse(*(tmp_path / "out" / name for name in NAMES)) == data


def test_lhotse_itself_reads_what_was_written(data: DataDirectory, tmp_path: Path) -> None:
    import lhotse

    write_lhotse(data, tmp_path)
    recordings = lhotse.RecordingSet.from_file(tmp_path / NAMES[0]).to_eager()
    supervisions = lhotse.SupervisionSet.from_file(tmp_path / NAMES[1]).to_eager()
    lhotse.validate_recordings_and_supervisions(recordings, supervisions)
    assert {item.id: item.sampling_rate for item in recordings} == {"tape": 16000, "bob-1": 8000}
    first = next(iter(supervisions))
    assert (first.text, first.speaker, first.gender) == ("GRÜSS GOTT", "ann", "f")
    assert (first.start, first.end) == (0.1, 0.3)
    assert recordings["tape"].load_audio().shape == (1, 32000)


def test_the_same_data_gives_the_same_bytes(data: DataDirectory, tmp_path: Path) -> None:
    write_lhotse(data, tmp_path / "one")
    write_lhotse(data, tmp_path / "two")
    for name in NAMES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("gender", "expected"), [("Female", {"ann": "f"}), ("M", {"ann": "m"}), ("other", {})]
)
def test_genders_are_read_in_lhotses_many_spellings(
    data: DataDirectory, tmp_path: Path, gender: str, expected: dict[str, str]
) -> None:
    write_lhotse(DataDirectory(data.utterances), tmp_path)
    rewrite(tmp_path / NAMES[1], gender=gender)
    assert read_lhotse(*(tmp_path / name for name in NAMES)).genders == expected


@pytest.mark.parametrize(
    ("which", "changes", "message"),
    [
        (1, {"speaker": None}, "ann-1: it has no speaker"),
        (1, {"recording_id": "disc"}, "ann-1: there is no recording 'disc' in"),
        (1, {"gender": "m"}, "speaker 'ann' is both f and m"),
        (0, {"sources": [{"type": "command", "channels": [0], "source": "rm x"}]}, "(command)"),
        (0, {"sources": [{"type": "file", "channels": [0, 1], "source": "x"}]}, "channels [0, 1]"),
        (
            0,
            {"transforms": [{"name": "Speed", "kwargs": {"factor": 1.1}}]},
            "its recording is transformed when it is read",
        ),
    ],
)
def test_what_a_data_directory_cannot_hold_is_refused_by_name(
    data: DataDirectory, tmp_path: Path, which: int, changes: dict[str, Any], message: str
) -> None:
    write_lhotse(data, tmp_path)
    rewrite(tmp_path / NAMES[which], **changes)
    with pytest.raises(DataError) as caught:
        read_lhotse(*(tmp_path / name for name in NAMES))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["pipe:touch {marker}|.jsonl", "gone.jsonl.gz", "a.pkl"])
def test_what_is_not_a_manifest_file_is_refused_and_never_run(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(DataError, match=r"is not a file whose name ends in .jsonl"):
        read_lhotse(name.format(marker=marker), tmp_path / "x.jsonl")
    assert not marker.exists()


def test_manifests_in_the_wrong_order_are_refused(data: DataDirectory, tmp_path: Path) -> None:
    write_lhotse(data, tmp_path)
    with pytest.raises(DataError, match="Lhotse cannot read it as a RecordingSet"):
        read_lhotse(tmp_path / NAMES[1], tmp_path / NAMES[0])


def test_broken_manifest_is_refused_by_name(data: DataDirectory, tmp_path: Path) -> None:
    write_lhotse(data, tmp_path)
    path = tmp_path / NAMES[0]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"recordings\.jsonl\.gz"):
        read_lhotse(path, tmp_path / NAMES[1])


def test_two_files_under_one_recording_are_refused(data: DataDirectory, tmp_path: Path) -> None:
    paths = [utterance.path for utterance in data.utterances.values()][1:]
    said = [Utterance(path.stem[:3], "s", path, recording="r") for path in paths]
    with pytest.raises(DataError, match="the recording 'r' is another file"):
        write_lhotse(DataDirectory.of(said), tmp_path)


def test_without_lhotse_the_error_says_what_to_install(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lhotse", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'natgrad\[lhotse\]'"):
        write_lhotse(data, tmp_path / "out")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'natgrad\[lhotse\]'"):
        read_lhotse("a.jsonl", "b.jsonl")
