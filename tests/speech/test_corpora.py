from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.data.audio import read_audio_format
from natgrad.speech.data.corpora import PREPARERS, CorpusError, prepare_an4, prepare_librispeech
from natgrad.speech.data.corpora.speaker_split import halve_by_speaker, sample_evenly
from natgrad.speech.data.directory import DataDirectory, Utterance
from tests.speech.recordings import babble, write_recording

SHARED = Path(__file__).parents[3] / "shared"


@pytest.fixture
def an4(tmp_path: Path) -> Path:
    """A corpus in AN4's layout, with three utterances."""
    source = tmp_path / "an 4"
    lists = {
        "train.fileids": "an4_clstk/fash/an251-fash-b\nan4_clstk/mabc/cen1-mabc-b\n",
        "train.transcription": "<s> YES </s> (an251-fash-b)\n<s> G O </s> (cen1-mabc-b)\n",
        "test.fileids": "an4test_clstk/fcaw/an406-fcaw-b\n",
        "test.transcription": "RUBOUT G M (an406-fcaw-b)\n",
    }
    for name, content in lists.items():
        (source / "etc").mkdir(parents=True, exist_ok=True)
        (source / f"etc/an4_{name}").write_text(content)
    write_recording(source / "wav/an4_clstk/fash/an251-fash-b.flac")
    write_recording(source / "wav/an4_clstk/mabc/cen1-mabc-b.wav")
    write_recording(source / "wav/an4test_clstk/fcaw/an406-fcaw-b.flac")
    return source


def test_an4_becomes_two_data_directories(an4: Path, tmp_path: Path) -> None:
    prepared = prepare_an4(an4, tmp_path / "out")
    wav = an4 / "wav"
    assert list(prepared["train"].utterances.values()) == [
        Utterance(
            "fash-an251-fash-b",
            "fash",
            wav / "an4_clstk/fash/an251-fash-b.flac",
            text=("YES",),
        ),
        Utterance(
            "mabc-cen1-mabc-b",
            "mabc",
            wav / "an4_clstk/mabc/cen1-mabc-b.wav",
            text=("G", "O"),
        ),
    ]
    assert prepared["train"].genders == {"fash": "f", "mabc": "m"}
    assert prepared["test"].utterances["fcaw-an406-fcaw-b"].text == ("RUBOUT", "G", "M")
    for name, data in prepared.items():
        assert DataDirectory.read(tmp_path / "out" / name) == data


def error_of(corpus: str, source: Path, out: Path) -> str:
    with pytest.raises(CorpusError) as caught:
        PREPARERS[corpus](source, out)
    assert not out.exists()
    assert all(problem.remedy for problem in caught.value.problems)
    return str(caught.value)


def test_an4_with_missing_recordings_names_them_all(an4: Path, tmp_path: Path) -> None:
    shutil.rmtree(an4 / "wav/an4_clstk")
    text = error_of("an4", an4, tmp_path / "out")
    assert "missing audio (2)" in text
    assert "an4_clstk/fash/an251-fash-b: there is no recording of this name" in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("A (an406-fcaw-b)\nB (x)\n", "an4_test.transcription: has 2 lines"),
        ("A (an407-fcaw-b)\n", "an4_test.transcription:1: expected the words and then (an406"),
        ("RUBOUT G M\n", "an4_test.transcription:1: expected the words and then (an406"),
    ],
)
def test_an4_lists_that_do_not_fit_are_refused(
    an4: Path, tmp_path: Path, content: str, message: str
) -> None:
    (an4 / "etc/an4_test.transcription").write_text(content)
    assert message in error_of("an4", an4, tmp_path / "out")


@pytest.mark.parametrize("corpus", ["an4", "librispeech"])
def test_directory_of_something_else_is_refused(tmp_path: Path, corpus: str) -> None:
    assert "No such file" in error_of(corpus, tmp_path, tmp_path / "out")


@pytest.fixture
def librispeech(tmp_path: Path) -> Path:
    """A corpus in LibriSpeech's layout: two readers to train on, four to develop."""
    source = tmp_path / "LibriSpeech"
    readers = {
        "train-clean-5": {"19": "F", "103": "M"},
        "dev-clean": {"84": "F", "174": "M", "251": "M", "1272": "F"},
    }
    lines = ["; comments come first", ";ID  |SEX| SUBSET"]
    for name, sexes in readers.items():
        for reader, sex in sexes.items():
            lines.append(f"{reader:5}| {sex} | {name} | 8.0 | A | B")
            chapter = source / name / reader / "7"
            for number in range(2):
                write_recording(chapter / f"{reader}-7-000{number}.opus", babble(0.2, 8000), 8000)
            texts = [f"{reader}-7-0000 IT'S TRUE", f"{reader}-7-0001 SO"]
            (chapter / f"{reader}-7.trans.txt").write_text("\n".join(texts) + "\n")
    (source / "SPEAKERS.TXT").write_text("\n".join(lines) + "\n")
    return source


def test_librispeech_becomes_five_data_directories(librispeech: Path, tmp_path: Path) -> None:
    prepared = prepare_librispeech(librispeech, tmp_path / "out")
    train = prepared["train"]
    assert list(train.utterances) == ["103-7-0000", "103-7-0001", "19-7-0000", "19-7-0001"]
    assert train.utterances["19-7-0000"] == Utterance(
        "19-7-0000",
        "19",
        librispeech / "train-clean-5/19/7/19-7-0000.opus",
        text=("IT'S", "TRUE"),
    )
    assert train.genders == {"103": "m", "19": "f"}
    tune, report = prepared["tune_all"], prepared["report_all"]
    assert set(tune.speakers) | set(report.speakers) == {"84", "174", "251", "1272"}
    assert Counter(tune.genders.values()) == Counter(report.genders.values()) == {"f": 1, "m": 1}
    assert prepared["tune"] == tune  # there are less than 45 minutes of it
    for name, data in prepared.items():
        assert DataDirectory.read(tmp_path / "out" / name) == data


def test_all_training_sets_are_taken(librispeech: Path, tmp_path: Path) -> None:
    (librispeech / "train-clean-100").mkdir()
    (librispeech / "train-clean-5/19").rename(librispeech / "train-clean-100/19")
    assert len(prepare_librispeech(librispeech, tmp_path / "out")["train"]) == 4


def test_librispeech_that_is_not_whole_names_all_that_is_missing(
    librispeech: Path, tmp_path: Path
) -> None:
    (librispeech / "dev-clean/84/7/84-7-0001.opus").unlink()
    transcript = librispeech / "dev-clean/251/7/251-7.trans.txt"
    transcript.write_text("251-7-0000 IT'S TRUE\n")
    other = librispeech / "dev-clean/174/7/174-7.trans.txt"
    other.write_text(other.read_text().replace("174-7-0001", "175-7-0001"))
    speakers = librispeech / "SPEAKERS.TXT"
    speakers.write_text(re.sub("1272.*\n", "", speakers.read_text()))
    text = error_of("librispeech", librispeech, tmp_path / "out")
    assert "84-7.trans.txt:2: there is no recording 84-7-0001" in text
    assert "251-7-0001.opus: is not in 251-7.trans.txt" in text
    assert "174-7.trans.txt:2: expected 174-7-NUMBER and words, found '175-7-0001 SO'" in text
    assert "SPEAKERS.TXT: does not list reader 1272" in text


@pytest.mark.parametrize("name", ["train-clean-5", "dev-clean"])
def test_librispeech_without_one_of_its_sets_is_refused(
    librispeech: Path, tmp_path: Path, name: str
) -> None:
    shutil.rmtree(librispeech / name)
    assert "missing set (1)" in error_of("librispeech", librispeech, tmp_path / "out")


def test_speaker_list_without_sexes_is_refused(librispeech: Path, tmp_path: Path) -> None:
    (librispeech / "SPEAKERS.TXT").write_text("19 | X | train\n103\n")
    text = error_of("librispeech", librispeech, tmp_path / "out")
    assert "SPEAKERS.TXT:1: expected READER | F or M | ..., found 19 | X | train" in text
    assert "SPEAKERS.TXT:2:" in text


LENGTHS = st.lists(st.lists(st.floats(1.0, 20.0), min_size=1, max_size=12), min_size=2, max_size=9)


def make_data(lengths: list[list[float]]) -> tuple[DataDirectory, dict[str, float]]:
    seconds = {
        f"s{speaker}-{number:02}": length
        for speaker, row in enumerate(lengths)
        for number, length in enumerate(row)
    }
    genders = {f"s{speaker}": "fm"[speaker % 2] for speaker in range(len(lengths))}
    said = (Utterance(key, key.partition("-")[0], Path("/a.wav")) for key in seconds)
    return DataDirectory.of(said, genders), seconds


@settings(max_examples=50, deadline=None)
@given(LENGTHS)
def test_halves_share_no_speaker_and_are_alike(lengths: list[list[float]]) -> None:
    data, seconds = make_data(lengths)
    one, two = halve_by_speaker(data, seconds)
    assert not set(one.speakers) & set(two.speakers)
    assert set(one.utterances) | set(two.utterances) == set(data.utterances)
    for gender in "fm":
        counts = [list(half.genders.values()).count(gender) for half in (one, two)]
        assert abs(counts[0] - counts[1]) <= 1
    totals = [sum(seconds[key] for key in half.utterances) for half in (one, two)]
    assert abs(totals[0] - totals[1]) <= 2 * max(sum(row) for row in lengths)


@settings(max_examples=50, deadline=None)
@given(LENGTHS, st.floats(0.05, 1.5))
def test_sample_has_the_same_share_of_every_speaker(
    lengths: list[list[float]], share: float
) -> None:
    data, seconds = make_data(lengths)
    total = sum(seconds.values())
    sample = sample_evenly(data, seconds, share * total)
    for speaker, keys in data.speakers.items():
        of_speaker = sum(seconds[key] for key in keys)
        taken = sum(seconds[key] for key in sample.speakers.get(speaker, []))
        longest = max(seconds[key] for key in keys)
        assert abs(taken - min(share, 1.0) * of_speaker) <= longest / 2 + 1e-9
    if share >= 1:
        assert sample == data


def test_real_an4_has_the_counts_of_its_readme(tmp_path: Path) -> None:
    source = SHARED / "data/an4"
    if not source.exists():
        pytest.skip("needs ../shared/data/an4")
    train, test = prepare_an4(source, tmp_path).values()
    for data, num_utterances, num_speakers, num_words in (
        (train, 948, 74, 5442),
        (test, 130, 10, 773),
    ):
        assert (len(data), len(data.speakers)) == (num_utterances, num_speakers)
        texts = [utterance.text or () for utterance in data.utterances.values()]
        assert sum(map(len, texts)) == num_words
        assert not {word for text in texts for word in text if re.search("[^A-Z']", word)}
        assert list(data.utterances) == [key for keys in data.speakers.values() for key in keys]
    assert not set(train.speakers) & set(test.speakers)


def test_real_librispeech_has_the_counts_of_its_readme_and_fair_halves(tmp_path: Path) -> None:
    source = SHARED / "data/librispeech"
    if not source.exists():
        pytest.skip("needs ../shared/data/librispeech")
    prepared = prepare_librispeech(source, tmp_path)
    train, tune, report = (prepared[name] for name in ("train", "tune_all", "report_all"))
    assert (len(train), len(train.speakers)) == (1519, 28)
    assert Counter(train.genders.values()) == {"f": 16, "m": 12}
    assert (len(tune) + len(report), len(tune.speakers), len(report.speakers)) == (1263, 10, 10)
    assert Counter(tune.genders.values()) == Counter(report.genders.values()) == {"f": 5, "m": 5}
    for data in (train, tune, report):
        assert list(data.utterances) == [key for keys in data.speakers.values() for key in keys]
    for name in ("tune", "report"):
        minutes = {
            speaker: sum(
                read_audio_format(prepared[name].utterances[key].path).duration_seconds / 60
                for key in keys
            )
            for speaker, keys in prepared[name].speakers.items()
        }
        assert set(minutes) == set(prepared[f"{name}_all"].speakers)
        assert sum(minutes.values()) == pytest.approx(45, abs=1)
        assert set(prepared[name].utterances) < set(prepared[f"{name}_all"].utterances)
