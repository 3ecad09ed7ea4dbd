"""The commands `natgrad speech ...`: real files in, real files out, and every fault by its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from natgrad.cli import main
from natgrad.run.lock import hold
from natgrad.speech.data.directory import DataDirectory, Utterance
from natgrad.speech.features.kaldi_archive import open_script
from natgrad.speech.features.store import open_features
from natgrad.speech.lm.arpa import read_arpa
from tests.speech.recordings import babble, write_recording

SHARED = Path(__file__).parents[2] / "shared"
SAID = {"a-1": ("YES", "NO"), "a-2": ("NO",), "b-1": ("YES",)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory: three utterances of two speakers, 0.5 s each."""
    audio = tmp_path / "audio"
    directory = tmp_path / "data"
    DataDirectory.of(
        Utterance(key, key[0], write_recording(audio / f"{key}.flac"), text=text)
        for key, text in SAID.items()
    ).write(directory)
    return directory


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    path = tmp_path / "lexicon.txt"
    path.write_text("NO N OW\nYES Y EH S\n")
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """Run a command; return its exit code, and what it wrote to stdout and to stderr."""
    code = main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# -- prepare -------------------------------------------------------------------------------------


def test_prepare_writes_data_directories_and_says_what_is_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "an4", tmp_path / "out"
    lists = {"train": ("clstk/fash/one", "<s> YES </s> (one)"), "test": ("t/mabc/two", "NO (two)")}
    (source / "etc").mkdir(parents=True)
    for name, (file, text) in lists.items():
        (source / f"etc/an4_{name}.fileids").write_text(f"{file}\n")
        (source / f"etc/an4_{name}.transcription").write_text(f"{text}\n")
        write_recording(source / f"wav/{file}.wav", babble(seconds=36.0))
    code, said, _ = told(capsys, "speech", "prepare", "an4", source, "-o", out)
    assert code == 0
    assert said == "".join(
        f"{out}/{name}: 1 utterance, 1 speaker, 0.60 minutes\n" for name in ("train", "test")
    )
    assert DataDirectory.read(out / "test").utterances["mabc-two"].text == ("NO",)


def test_prepare_names_what_a_corpus_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = told(capsys, "speech", "prepare", "an4", tmp_path, "-o", tmp_path / "out")
    assert code == 2
    assert error.startswith(f"natgrad: {tmp_path} is not a copy of AN4")
    assert "an4_train.fileids: cannot be read" in error
    code, _, error = told(capsys, "speech", "prepare", "an5", tmp_path, "-o", tmp_path / "out")
    assert (code, error) == (
        2,
        "natgrad: there is no corpus 'an5': the corpora are an4, librispeech\n",
    )


# -- check ---------------------------------------------------------------------------------------


def test_check_of_a_good_directory_sums_it_up(
    data: Path, lexicon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said, error = told(capsys, "speech", "check", data, "--lexicon", lexicon)
    assert (code, error) == (0, "")
    assert said == f"{data}: 3 utterances, 2 speakers, 0.03 minutes; nothing is wrong\n"


def nan(data: Path) -> None:
    samples = babble()
    samples[100] = np.nan
    soundfile.write(data.parent / "audio/a-2.wav", samples, 16000, subtype="FLOAT")
    scp = data / "wav.scp"
    scp.write_text(scp.read_text().replace("a-2.flac", "a-2.wav"))


def rewrite(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(data: Path) -> None:
        path = data / name
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def rerecord(samples: NDArray[np.float32], rate: int = 16000) -> Callable[[Path], object]:
    return lambda data: write_recording(data.parent / "audio/a-2.flac", samples, rate)


FAULTS: dict[str, Callable[[Path], object]] = {
    "empty text (1)\n  a-2: its line": rewrite("text", "a-2 NO", "a-2"),
    "untranscribed utterance (1)\n  a-2: ": rewrite("text", "a-2 NO\n", ""),
    "word not in the lexicon (1)\n  a-2: 'MAYBE'": rewrite("text", "a-2 NO", "a-2 MAYBE"),
    "silence only (1)\n  a-2: ": rerecord(np.zeros(8000, np.float32)),
    "shorter than a frame (1)\n  a-2: ": rerecord(babble(0.02)),
    "other sample rate (1)\n  a-2: is at 8000": rerecord(babble(sample_rate=8000), 8000),
    "clipped audio (1)\n  a-2: ": rerecord((100 * babble()).clip(-1, 1)),
    "samples not finite (1)\n  a-2: ": nan,
    "missing audio (1)\n  a-2: ": lambda data: (data.parent / "audio/a-2.flac").unlink(),
    "unreadable audio (1)\n  a-2: ": lambda data: (data.parent / "audio/a-2.flac").write_text("no"),
    "bad data directory (1)\n  ": rewrite("utt2spk", "a-2 a\n", ""),
}


@pytest.mark.parametrize("message", FAULTS)
def test_check_names_each_fault_with_its_remedy(
    message: str, data: Path, lexicon: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FAULTS[message](data)
    code, said, _ = told(capsys, "speech", "check", data, "--lexicon", lexicon)
    assert code == 1
    assert message in said
    assert said.count("  -> ") == 1
    assert "a-1" not in said
    assert "b-1" not in said


def test_check_finds_speakers_in_both_sets(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = told(capsys, "speech", "check", data, "--other", data)
    assert code == 1
    assert "speaker in both sets (2)" in said
    assert "recording in both sets (3)" in said


def test_check_shows_all_problems_however_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    utterances = (
        Utterance(f"{n:02}", "s", tmp_path / f"{n}.wav", text=("YES",)) for n in range(50)
    )
    DataDirectory.of(utterances).write(tmp_path / "data")
    code, said, _ = told(capsys, "speech", "check", tmp_path / "data")
    assert code == 1
    assert all(f"\n  {n:02}: " in said for n in range(50))


def test_check_refuses_what_it_cannot_judge_by(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    code, _, error = told(capsys, "speech", "check", missing)
    expected = f"natgrad: there is no data directory {missing}: expected a directory\n"
    assert (code, error) == (2, expected)
    assert "Traceback" in told(capsys, "speech", "check", "--debug", missing)[2]
    bad = tmp_path / "bad.txt"
    bad.write_text("YES Y EH S\nNO\n")
    code, _, error = told(capsys, "speech", "check", data, "--lexicon", bad)
    assert code == 2
    assert error.startswith(f"natgrad: {bad}, line 2: ")
    assert error.count("\n") == 1


# -- features ------------------------------------------------------------------------------------


def test_features_are_stored_and_written_for_kaldi(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, ark = tmp_path / "features", tmp_path / "features.ark"
    code, said, error = told(capsys, "speech", "features", data, "-o", out, "--kaldi", ark)
    assert (code, error) == (0, "")
    assert said == (
        f"{out}: 3 of 3 utterances, 0.02 minutes, 13 values a frame, of recordings at 16000 Hz\n"
    )
    store, script = open_features(out), open_script(ark.with_suffix(".scp"))
    assert list(store) == list(script) == list(SAID)
    assert store["a-2"].shape == (48, 13)
    for key in SAID:
        np.testing.assert_array_equal(store[key], script[key])


def test_features_of_high_resolution_at_another_rate_by_two_workers(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features"
    choices = ["--high-resolution", "--sample-rate", "8000", "--workers", "2"]
    code, said, _ = told(capsys, "speech", "features", data, "-o", out, *choices)
    assert code == 0
    assert said.endswith("40 values a frame, of recordings at 8000 Hz\n")
    assert open_features(out)["b-1"].shape == (48, 40)


def test_utterance_without_features_is_named_and_the_others_have_theirs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(tmp_path / "audio/a-2.flac", babble(0.01))
    out = tmp_path / "features"
    code, said, error = told(capsys, "speech", "features", data, "-o", out)
    assert code == 1
    assert error.startswith("failed: a-2: the recording has 160 samples")
    assert error.count("\n") == 1
    assert "2 of 3 utterances" in said
    assert list(open_features(out)) == ["a-1", "b-1"]


def test_features_of_mixed_rates_need_a_choice(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_recording(tmp_path / "audio/a-2.flac", sample_rate=8000)
    out = tmp_path / "features"
    code, _, error = told(capsys, "speech", "features", data, "-o", out)
    assert code == 2
    assert "1 at 8000 Hz, 2 at 16000 Hz" in error
    assert "--sample-rate" in error
    assert told(capsys, "speech", "features", data, "-o", out, "--sample-rate", "8000")[0] == 0
    code, _, error = told(capsys, "speech", "features", data, "-o", out, "--kaldi", "x.scp")
    assert (code, error) == (2, "natgrad: --kaldi is x.scp; expected a name that ends on .ark\n")


def test_features_that_another_process_writes_are_left_to_it(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "features"
    with hold(out):
        code, _, error = told(capsys, "speech", "features", data, "-o", out)
    assert code != 0
    assert f"{out} is in use by process" in error
    assert not list(out.glob("*.shard"))
    assert told(capsys, "speech", "features", data, "-o", out)[0] == 0


def test_features_of_no_readable_recording_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (tmp_path / "audio").iterdir():
        file.write_text("no sound")
    code, _, error = told(capsys, "speech", "features", data, "-o", tmp_path / "features")
    assert code == 2
    assert f"no recording of {data} can be read: natgrad speech check" in error


# -- language models -----------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("YES NO\nNO NO MAYBE\nYES\nNO YES NO\n")
    return path


def test_language_model_is_written_and_judged(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, held_out = tmp_path / "lm.arpa.gz", tmp_path / "held"
    held_out.write_text("NO PERHAPS\n")
    choices: list[str | Path] = ["--order", "2", "--small-text-discounts", "--held-out", held_out]
    code, said, _ = told(capsys, "speech", "lm", text, "-o", out, *choices)
    assert code == 0
    first, second = said.splitlines()
    model = read_arpa(out)
    assert first == f"{out}: 3 words, {model.num_ngrams} n-grams up to order 2"
    assert set(model.vocabulary.names) >= {"<unk>", "YES", "NO", "MAYBE"}
    assert second.startswith(f"{held_out}: perplexity ")
    assert second.endswith(", 1 of 2 words (50.00 %) unknown")


def test_language_model_of_a_lexicon_has_its_words_only(
    text: Path, lexicon: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lm.arpa"
    choices: list[str | Path] = ["--order", "2", "--small-text-discounts", "--words-in", lexicon]
    assert told(capsys, "speech", "lm", text, "-o", out, *choices)[0] == 0
    whole = read_arpa(out)
    assert sorted(whole.vocabulary) == ["</s>", "<s>", "NO", "YES"]
    assert told(capsys, "speech", "lm", text, "-o", out, *choices, "--prune", "6")[0] == 0
    assert read_arpa(out).num_ngrams == 6 < whole.num_ngrams
    assert told(capsys, "speech", "lm", text, "-o", out, *choices, "--prune", "0.9")[0] == 0
    assert read_arpa(out).num_ngrams < whole.num_ngrams
    assert told(capsys, "speech", "lm", text, "-o", out, *choices, "--vocabulary", "1")[0] == 0
    assert sorted(read_arpa(out).vocabulary) == ["</s>", "<s>", "NO"]


def test_language_model_says_what_is_wrong_with_a_text(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, other = tmp_path / "lm.arpa", tmp_path / "other"
    command = ("speech", "lm", text, "-o", out)
    code, _, error = told(capsys, *command)
    assert code == 2
    assert "give more text, or" in error
    other.write_text("maybe M EY B IY\n")
    code, _, error = told(capsys, *command, "--words-in", other)
    assert (code, "are both in one case?" in error) == (2, True)
    other.write_text("\n")
    assert told(capsys, "speech", "lm", other, "-o", out)[::2] == (
        2,
        f"natgrad: no words in {other}\n",
    )
    assert told(capsys, "speech", "lm", tmp_path / "none", "-o", out)[::2] == (
        2,
        f"natgrad: {tmp_path / 'none'}: No such file or directory: check the name\n",
    )
    assert not out.exists()


# -- scores --------------------------------------------------------------------------------------


def test_score_tells_errors_interval_and_speakers(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard = tmp_path / "heard"
    heard.write_text("a-1 YES YES\na-2\nb-1 YES\n")
    command = ("speech", "score", data / "text", heard)
    code, said, _ = told(capsys, *command)
    assert code == 0
    assert said.startswith("WER 50.00 % [2 of 4; 1 sub, 0 ins, 1 del], 95 % interval ")
    assert said.count("\n") == 1
    code, said, _ = told(capsys, *command, "--speakers", data / "utt2spk")
    assert code == 0
    assert [line.split() for line in said.splitlines()[3:]] == [
        ["a", "3", "66.67", "1", "0", "1"],
        ["b", "1", "0.00", "0", "0", "0"],
        ["all", "4", "50.00", "1", "0", "1"],
    ]


def test_score_of_few_words_tells_their_rate_and_why_there_is_no_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "said").write_text("a YES NO\nb\n")
    (tmp_path / "heard").write_text("a YES\nb\n")
    code, said, _ = told(capsys, "speech", "score", tmp_path / "said", tmp_path / "heard")
    assert code == 0
    assert said.startswith("WER 50.00 % [1 of 2; 0 sub, 0 ins, 1 del], there is no confidence ")


def test_score_refuses_files_that_do_not_belong_together(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard, speakers = tmp_path / "heard", tmp_path / "speakers"
    heard.write_text("a-1 YES\n")
    code, _, error = told(capsys, "speech", "score", data / "text", heard)
    assert code == 2
    assert "nothing was recognised for a-2, b-1" in error
    speakers.write_text("a-1 anna bert\n")
    code, _, error = told(
        capsys, "speech", "score", data / "text", data / "text", "--speakers", speakers
    )
    expected = f"natgrad: {speakers}: expected one speaker of 'a-1', found 'anna bert'\n"
    assert (code, error) == (2, expected)


# -- usage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sing"],
        ["check"],
        ["check", "d", "--workers", "0"],
        ["features", "d"],
        ["features", "d", "-o", "f", "--sample-rate", "-8000"],
        ["lm", "t", "-o", "lm", "--order", "two"],
        ["lm", "t", "-o", "lm", "--prune", "nan"],
        ["score", "r"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["speech", *arguments])
    assert exit_.value.code == 2
    assert "usage: natgrad speech" in capsys.readouterr().err


def test_missing_extra_names_the_command_that_installs_it() -> None:
    script = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'kaldifst' else find(name)\n"
        "from natgrad.cli import main\n"
        "sys.exit(main(['speech', 'score', 'a', 'b']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "natgrad: natgrad.speech needs kaldifst, not installed here: "
        "run  pip install 'natgrad[speech]'\n"
    )


@pytest.mark.parametrize("arguments", [["speech", "--help"], ["recipe", "--help"]])
def test_help_does_not_wait_for_torch(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "natgrad", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert done.returncode == 0
    assert not {"torch", "numpy", "tqdm", "natgrad.recipes", "natgrad.speech"} & imported


# -- real data -----------------------------------------------------------------------------------


@pytest.mark.skipif(not (SHARED / "data/an4").exists(), reason="no AN4 beside the project")
def test_an4_is_prepared_and_its_test_set_has_nothing_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    an4 = SHARED / "data/an4"
    assert told(capsys, "speech", "prepare", "an4", an4, "-o", tmp_path)[0] == 0
    test, train = tmp_path / "test", tmp_path / "train"
    choices: list[str | Path] = [
        "--lexicon",
        an4 / "etc/an4.dic",
        "--other",
        train,
        "--workers",
        "1",
    ]
    code, said, _ = told(capsys, "speech", "check", test, *choices)
    assert (code, said) == (
        0,
        f"{test}: 130 utterances, 10 speakers, 0.10 hours; nothing is wrong\n",
    )
