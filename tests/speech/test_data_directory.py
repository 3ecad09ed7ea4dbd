from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad import atomic
from natgrad.speech.data import directory as data_directory
from natgrad.speech.data.directory import DataDirectory, DataError, Utterance

FILES = {
    "wav.scp": "rec1 /audio/one.wav\nrec2 /audio/with two  spaces.flac\n",
    "segments": "ann-1 rec1 0.5 2.25\nann-2 rec1 2.25 -1\nbob-1 rec2 0 1.5\n",
    "text": "ann-1 GOOD MORNING\nbob-1\n",
    "utt2spk": "ann-1 ann\nann-2 ann\nbob-1 bob\n",
    "spk2gender": "ann f\n",
}


def make(directory: Path, **changes: str | bytes | None) -> Path:
    """Write the files above, but some otherwise (wav.scp as wav_scp), or not at all if None."""
    directory.mkdir(exist_ok=True)
    for name, content in {**FILES, **{k.replace("_", "."): v for k, v in changes.items()}}.items():
        if isinstance(content, str):
            content = content.encode()
        if content is not None:
            (directory / name).write_bytes(content)
    return directory


def error_of(directory: Path) -> str:
    with pytest.raises(DataError) as caught:
        DataDirectory.read(directory)
    for problem in caught.value.problems:
        assert problem.where.startswith(str(directory))
        assert problem.remedy
    return str(caught.value)


def test_kaldi_directory_is_read(tmp_path: Path) -> None:
    data = DataDirectory.read(make(tmp_path))
    one, spaces = Path("/audio/one.wav"), Path("/audio/with two  spaces.flac")
    assert list(data.utterances.values()) == [
        Utterance("ann-1", "ann", one, 0.5, 2.25, ("GOOD", "MORNING"), "rec1"),
        Utterance("ann-2", "ann", one, 2.25, None, None, "rec1"),
        Utterance("bob-1", "bob", spaces, None, 1.5, (), "rec2"),
    ]
    assert data.genders == {"ann": "f"}
    assert data.speakers == {"ann": ["ann-1", "ann-2"], "bob": ["bob-1"]}


def test_recordings_are_utterances_where_there_are_no_segments(tmp_path: Path) -> None:
    utt2spk = "rec2 bob\nrec1 ann\n"
    data = DataDirectory.read(make(tmp_path, segments=None, text="rec2 HELLO\n", utt2spk=utt2spk))
    assert list(data.utterances.values()) == [
        Utterance("rec1", "ann", Path("/audio/one.wav")),
        Utterance("rec2", "bob", Path("/audio/with two  spaces.flac"), text=("HELLO",)),
    ]


def test_relative_path_is_relative_to_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "set", wav_scp="rec1 a b/c.wav\nrec2 ../d.wav\n")
    monkeypatch.chdir(tmp_path)
    data = DataDirectory.read("set")
    monkeypatch.chdir("/")
    assert data.utterances["ann-1"].path == tmp_path / "set/a b/c.wav"
    assert data.utterances["bob-1"].path == tmp_path / "set/../d.wav"


def test_directory_moves_along_with_its_recordings(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    DataDirectory.of([Utterance("u", "s", before / "audio/my u.wav")]).write(before)
    assert (before / "wav.scp").read_text() == "u audio/my u.wav\n"
    before.rename(after)
    assert DataDirectory.read(after).utterances["u"].path == after / "audio/my u.wav"


def test_files_are_written_as_kaldi_sorts_them(tmp_path: Path) -> None:
    keys = ["b-2", "b2-1", "a", "B", "é", "b-10"]
    DataDirectory.of(Utterance(key, key, Path("/x.wav"), text=("Ü",)) for key in keys).write(
        tmp_path
    )
    for name in ("wav.scp", "utt2spk", "spk2utt", "text"):
        lines = (tmp_path / name).read_bytes().splitlines()
        assert lines == sorted(lines)
        assert len(lines) == len(keys)


WORDS = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=5
)
SECONDS = st.floats(0, 1e5, allow_nan=False)


@st.composite
def utterances(draw: st.DrawFn, key: str) -> Utterance:
    times = sorted(draw(st.lists(SECONDS, min_size=2, max_size=2, unique=True)))
    recording = draw(st.sampled_from([None, "tape", key]))
    path = "/tape.wav" if recording == "tape" else f"/{draw(WORDS)} {draw(WORDS)}.wav"
    return Utterance(
        key,
        draw(st.sampled_from(["x", "y", "Ж"])),
        Path(path),
        draw(st.sampled_from([None, times[0]])),
        draw(st.sampled_from([None, times[1]])),
        draw(st.none() | st.lists(WORDS, max_size=3).map(tuple)),
        recording,
    )


@settings(max_examples=25, deadline=None)
@given(st.sets(WORDS.filter(lambda word: word != "tape"), min_size=1, max_size=5), st.data())
def test_what_was_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], drawn: st.DataObject
) -> None:
    said = [drawn.draw(utterances(key)) for key in keys]
    genders = {said[0].speaker: "m"}
    data = DataDirectory.of(said, genders)
    directory = tmp_path_factory.mktemp("data")
    data.write(directory)
    assert DataDirectory.read(directory) == data


def test_directory_written_over_another_has_nothing_left_of_it(tmp_path: Path) -> None:
    DataDirectory.read(make(tmp_path)).write(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    data = DataDirectory.of([Utterance("u", "s", Path("/u.wav"))])
    data.write(tmp_path)
    assert DataDirectory.read(tmp_path) == data
    names = {"notes.txt", "wav.scp", "utt2spk", "spk2utt"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_interrupted_write_leaves_a_directory_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDirectory.read(make(tmp_path)).write(tmp_path)
    num_written = 0

    def write_one(path: Path, chunks: list[bytes]) -> None:
        nonlocal num_written
        num_written += 1
        if num_written == 2:
            raise KeyboardInterrupt
        atomic.write_atomically(path, chunks)

    monkeypatch.setattr(data_directory, "write_atomically", write_one)
    with pytest.raises(KeyboardInterrupt):
        DataDirectory.of([Utterance("u", "s", Path("/u.wav"), text=("A",))]).write(tmp_path)
    assert "wav.scp: there is no such file, or it was not written to the end" in error_of(tmp_path)


def test_writing_the_same_again_touches_nothing(tmp_path: Path) -> None:
    data = DataDirectory.read(make(tmp_path))
    data.write(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    data.write(tmp_path)
    assert {path.stat().st_mtime for path in tmp_path.iterdir()} == {1}


@pytest.mark.parametrize("command", ["sph2pipe -f wav a.sph |", "sox a.wav -t wav -|"])
def test_shell_pipe_is_refused_with_its_command(tmp_path: Path, command: str) -> None:
    text = error_of(make(tmp_path, wav_scp=f"rec1 /a.wav\nrec2 {command}\n"))
    assert f"wav.scp:2: a shell command, which is not run: {command}" in text
    assert "into WAV or FLAC files" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wav_scp": None}, "wav.scp: there is no such file"),
        ({"wav_scp": ""}, "wav.scp: is empty"),
        ({"wav_scp": "rec1 /a\nrec2 /b\nrec1 /c\n"}, "wav.scp:3: 'rec1' is in line 1 already"),
        ({"wav_scp": "rec1 /a\nrec2\n"}, "wav.scp:2: nothing follows 'rec2'"),
        ({"wav_scp": "rec1 /a\n\nrec2 /b\n"}, "wav.scp:2: an empty line"),
        ({"wav_scp": "rec1 /a\n"}, "segments:3: there is no recording 'rec2' in wav.scp"),
        ({"segments": ""}, "segments: is empty"),
        ({"segments": "ann-1 rec1 1\n"}, "segments:1: expected UTTERANCE RECORDING BEGIN END"),
        ({"segments": "ann-1 rec1 1 2 3\n"}, "segments:1: expected UTTERANCE RECORDING BEGIN END"),
        ({"segments": "ann-1 rec1 1 two\n"}, "found ann-1 rec1 1 two"),
        ({"segments": "ann-1 rec1 2 1\n"}, "segments:1: from 2 to 1 s is no part of a recording"),
        ({"segments": "ann-1 rec1 -2 1\n"}, "segments:1: from -2 to 1 s"),
        ({"segments": "ann-1 rec1 0 nan\n"}, "segments:1: from 0 to nan s"),
        ({"segments": "ann-1 rec1 0 inf\n"}, "segments:1: from 0 to inf s"),
        ({"utt2spk": None}, "utt2spk: there is no such file"),
        ({"utt2spk": "ann-1 ann\nann-2 ann\n"}, "utt2spk: utterance 'bob-1' has no speaker"),
        ({"utt2spk": FILES["utt2spk"] + "x y\n"}, "utt2spk:4: there is no utterance 'x'"),
        ({"utt2spk": "ann-1 ann b\n"}, "utt2spk:1: expected one speaker, found 'ann b'"),
        ({"text": "ann-1 HI\nann-3 HO\n"}, "text:2: there is no utterance 'ann-3'"),
        ({"text": b"ann-1 HI\nann-2 \xff\n"}, "text:2: is not in UTF-8 (byte 0xff)"),
        ({"spk2gender": "ann female\n"}, "spk2gender:1: expected f or m, found 'female'"),
        ({"spk2gender": "eve f\n"}, "spk2gender:1: there is no speaker 'eve'"),
    ],
)
def test_each_wrong_line_is_named(
    tmp_path: Path, changes: dict[str, str | bytes | None], message: str
) -> None:
    assert message in error_of(make(tmp_path, **changes))


def test_all_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    text = error_of(make(tmp_path, text="x A\n", spk2gender="ann ?\n", segments="ann-1 rec9 0 1\n"))
    assert all(line in text for line in ("text:1:", "spk2gender:1:", "segments:1:"))


def test_lines_of_other_systems_are_read(tmp_path: Path) -> None:
    files = {name: content.replace("\n", "\r\n") for name, content in FILES.items()}
    windows = make(tmp_path / "windows", **{k.replace(".", "_"): v for k, v in files.items()})
    (windows / "text").write_bytes(b"\xef\xbb\xbf" + (windows / "text").read_bytes())
    tabs = make(tmp_path / "tabs", wav_scp=FILES["wav.scp"].replace(" /", "\t/"))
    plain = make(tmp_path / "plain")
    expected = DataDirectory.read(plain)
    assert DataDirectory.read(windows) == expected
    assert DataDirectory.read(tabs) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": "a b"}, "empty or has a space"),
        ({"speaker": ""}, "empty or has a space"),
        ({"text": ("A", "B C")}, "empty or has a space"),
        ({"recording": "r\t1"}, "empty or has a space"),
        ({"path": Path("/a.wav ")}, "wav.scp cannot hold the path"),
        ({"path": Path("/a\n.wav")}, "wav.scp cannot hold the path"),
        ({"path": Path("/a.wav|")}, "wav.scp cannot hold the path"),
        ({"begin_seconds": 2.0, "end_seconds": 1.0}, "is from 2.0 to 1.0 s of its recording"),
        ({"begin_seconds": float("nan")}, "is from nan to None s of its recording"),
    ],
)
def test_what_the_files_cannot_hold_is_refused(changes: dict[str, object], message: str) -> None:
    utterance = dataclasses.replace(
        Utterance("u", "s", Path("/a.wav")),
        **changes,  # type: ignore[arg-type]
    )
    with pytest.raises(DataError, match=message):
        DataDirectory.of([utterance])


def test_two_utterances_of_a_key_are_refused() -> None:
    said = [Utterance("u", "s", Path("/a.wav")), Utterance("u", "s", Path("/b.wav"))]
    with pytest.raises(DataError, match=r"u: /a.wav and /b.wav have the same key"):
        DataDirectory.of(said)


def test_utterance_under_another_key_is_refused() -> None:
    with pytest.raises(DataError, match="v: its utterance has the key 'u'"):
        DataDirectory({"v": Utterance("u", "s", Path("/a.wav"))})


@pytest.mark.parametrize("genders", [{"s": "F"}, {"t": "f"}])
def test_gender_that_spk2gender_cannot_hold_is_refused(genders: dict[str, str]) -> None:
    with pytest.raises(DataError, match="only for speakers of these utterances"):
        DataDirectory.of([Utterance("u", "s", Path("/a.wav"))], genders)


def test_two_files_under_one_recording_are_refused(tmp_path: Path) -> None:
    said = [Utterance(key, "s", Path(f"/{key}.wav"), recording="tape") for key in "ab"]
    with pytest.raises(DataError, match=r"'tape' is both /a.wav and /b.wav"):
        DataDirectory.of(said).write(tmp_path)
    assert not (tmp_path / "wav.scp").exists()


def test_subset_has_its_own_speakers_and_genders(tmp_path: Path) -> None:
    data = DataDirectory.read(make(tmp_path, spk2gender="ann f\nbob m\n"))
    subset = data.subset(["bob-1"])
    assert list(subset.utterances) == ["bob-1"]
    assert (subset.speakers, subset.genders) == ({"bob": ["bob-1"]}, {"bob": "m"})
    assert data.subset(reversed(data.utterances)) == data
    with pytest.raises(KeyError, match=r"1 of 2 keys are not in this data directory .*'eve-1'"):
        data.subset(["eve-1", "ann-1"])


def test_error_survives_its_way_from_another_process(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        DataDirectory.read(tmp_path)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.problems, str(again)) == (caught.value.problems, str(caught.value))
