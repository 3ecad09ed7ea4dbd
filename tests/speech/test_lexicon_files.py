from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from natgrad.speech.lexicon.files import read_cmudict, read_lexicon, write_lexicon
from natgrad.speech.lexicon.lexicon import Lexicon, LexiconError, Pronunciation

SHARED = Path(__file__).parents[3] / "shared"


def written(directory: Path, text: str | bytes) -> Path:
    path = directory / "lexicon.txt"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_the_forms_of_kaldi_and_sphinx_mean_the_same(tmp_path: Path) -> None:
    plain = read_lexicon(written(tmp_path, "A AH\nA EY\nYES Y EH S\n"))
    sphinx = read_lexicon(written(tmp_path, "A\tAH\r\nA(2)\tEY\r\n\r\nYES  Y EH S"))
    scored = read_lexicon(written(tmp_path, "A 1.0 AH\nA 1 EY\nYES 1e0 Y EH S\n"))
    assert plain == sphinx == scored
    assert [way.sounds for way in plain.of("A")] == [("AH",), ("EY",)]


def test_probabilities_are_read(tmp_path: Path) -> None:
    lexicon = read_lexicon(written(tmp_path, "A 1.0 AH\nA 0.25 EY\n"))
    assert [way.probability for way in lexicon.of("A")] == [1.0, 0.25]


names = st.text("ABC'-é", min_size=1, max_size=4)
ways = st.builds(
    Pronunciation,
    names,
    st.lists(st.sampled_from(["AH", "B", "K"]), min_size=1, max_size=3).map(tuple),
    st.sampled_from([1.0, 0.1, 1 / 3]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ways, min_size=1, max_size=8, unique_by=lambda way: (way.word, way.sounds)))
def test_what_is_written_reads_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, pronunciations: list[Pronunciation]
) -> None:
    path = tmp_path_factory.mktemp("lexicon") / "lexicon.txt"
    write_lexicon(path, Lexicon(pronunciations))
    assert read_lexicon(path) == Lexicon(pronunciations)


def test_probabilities_of_numpy_are_written_as_numbers(tmp_path: Path) -> None:
    ways = [Pronunciation("A", ("AH",)), Pronunciation("A", ("EY",), np.float64(0.25))]
    write_lexicon(tmp_path / "lexicon.txt", Lexicon(ways))
    assert (tmp_path / "lexicon.txt").read_text() == "A 1.0 AH\nA 0.25 EY\n"


def test_lines_may_end_as_on_any_system_and_be_comments(tmp_path: Path) -> None:
    expected = read_lexicon(written(tmp_path, "A AH\nYES Y EH S\n"))
    assert read_lexicon(written(tmp_path, "A AH\rYES Y EH S\r")) == expected
    text = ";; of two\r\n;;; words\r\nA AH\r\n;; more\r\nYES Y EH S"
    assert read_lexicon(written(tmp_path, "\ufeff" + text)) == expected


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("YES Y EH S\nNO\n", 2, "NO has no sounds"),
        ("YES Y EH S\n\nYES Y EH S\n", 3, "YES Y EH S is there already, on line 1"),
        ("YES Y EH S\nYES(2) Y EH S\n", 2, "YES Y EH S is there already, on line 1"),
        ("YES Y EH S\nNO N QQ\n", 2, "NO has the sound QQ, which is not among the 5 known"),
        ("YES 1.0 Y EH S\nNO N OW\n", 2, "NO has no probability, but the first line has one"),
        ("YES 1.0 Y EH S\nNO 0.5\n", 2, "NO has no sounds"),
        ("YES Y EH S\nNO 0.5 N OW\n", 2, "0.5 cannot be a sound"),
        ("YES 1.0 Y EH S\nNO 1.5 N OW\n", 2, "NO N OW has probability 1.5"),
        ("YES Y EH S\n<s> N OW\n", 2, "<s> cannot be a word"),
        ("YES Y EH S\n# N OW\n", 2, "# cannot be a word, as it begins a comment"),
        ("YES Y EH S\nNO N OW # from N OW\n", 2, "# cannot be a sound, as it begins a comment"),
        ("YES Y EH S\nNO(2)(3) N OW\n", 2, "NO(2) cannot be a word: in files, that is"),
        (b"YES Y EH S\nN\xff N OW\n", 2, "is not in UTF-8"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(
    tmp_path: Path, text: str | bytes, line: int, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(LexiconError) as refusal:
        read_lexicon(path, sounds=["Y", "EH", "S", "N", "OW"])
    assert f"{path}, line {line}: " in str(refusal.value)
    assert message in str(refusal.value)


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        LexiconError, match=r"there is no lexicon .*nowhere: no such file; expected"
    ):
        read_lexicon(tmp_path / "nowhere")
    for read in (read_lexicon, read_cmudict):
        with pytest.raises(LexiconError, match=r"no lexicon .*: it is a directory; expected"):
            read(tmp_path)
    with pytest.raises(LexiconError, match=r"lexicon.txt has no words"):
        read_lexicon(written(tmp_path, "\n \n"))
    with pytest.raises(LexiconError, match=r"lexicon.txt has no words"):
        read_cmudict(written(tmp_path, ";;; a comment\n"))
    with pytest.raises(LexiconError, match=r"lexicon.txt: the unknown word <UNK> is pronounced"):
        read_lexicon(written(tmp_path, "YES Y EH S\n"), unknown_word="<UNK>")


def test_both_forms_of_the_cmu_dictionary_read_the_same(tmp_path: Path) -> None:
    nltk = read_cmudict(written(tmp_path, "A 1 AH0\nA 2 EY1\nWINDS 1 W IH1 N D Z\n"))
    own = read_cmudict(written(tmp_path, ";;; # v0.7\nA  AH0\nA(1)  EY1\nWINDS  W IH1 N D Z\n"))
    assert nltk == own
    assert nltk.of("WINDS")[0].sounds == ("W", "IH", "N", "D", "Z")


def test_comments_of_the_newer_cmu_dictionary_are_no_sounds(tmp_path: Path) -> None:
    text = "aalborg AO1 L B # place, danish\naalborg(2) AA1 L B #danish\n#hash HH AE1 SH\n"
    lexicon = read_cmudict(written(tmp_path, text))
    assert [way.sounds for way in lexicon.of("aalborg")] == [("AA", "L", "B"), ("AO", "L", "B")]
    assert lexicon.of("#hash") == [Pronunciation("#hash", ("HH", "AE", "SH"))]


def test_pronunciations_that_differ_by_stress_alone_are_one_without_it(tmp_path: Path) -> None:
    path = written(tmp_path, "PERMIT 1 P ER0 M IH1 T\nPERMIT 2 P ER1 M IH2 T\n")
    assert len(read_cmudict(path).of("PERMIT")) == 1
    assert len(read_cmudict(path, stress=True).of("PERMIT")) == 2


def test_an_entry_of_the_cmu_dictionary_without_sounds_is_named(tmp_path: Path) -> None:
    with pytest.raises(LexiconError, match=r"line 2: B has no sounds"):
        read_cmudict(written(tmp_path, "A 1 AH0\nB 1\n"))


@pytest.mark.skipif(not (SHARED / "data/an4").exists(), reason="needs ../shared/data/an4")
def test_the_dictionary_of_an4_has_101_words_of_its_34_phones() -> None:
    directory = SHARED / "data/an4/etc"
    phones = (directory / "an4.phone").read_text().split()
    lexicon = read_lexicon(directory / "an4.dic", sounds=phones)
    assert (len(lexicon.words), len(lexicon)) == (101, 130)
    assert {*lexicon.sounds, "SIL"} == set(phones)


@pytest.mark.skipif(not (SHARED / "data/cmudict").exists(), reason="needs ../shared/data/cmudict")
def test_the_cmu_dictionary_has_39_sounds() -> None:
    lexicon = read_cmudict(SHARED / "data/cmudict/cmudict.txt")
    assert (len(lexicon.words), len(lexicon.sounds)) == (123455, 39)
