"""ARPA files: what is read, what is written, and what is refused."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from natgrad.speech.lm.arpa import ArpaError, read_arpa, write_arpa
from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import LN10, log_probability

SHARED = Path(__file__).parents[3] / "shared"
AN4 = SHARED / "data" / "an4" / "etc" / "an4.ug.lm"

GOOD = """\
A note that says \\data\\ and ngram 1=7 in passing.

\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-0.5 YES -0.25
-99 <s> -0.125
-0.5\tNO
-0.75 </s>

\\2-grams:
-0.3 <s> YES
-0.2 YES </s>

-0.1 <s> NO
\\end\\
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "words.arpa"
    path.write_text(text)
    return path


def test_probabilities_and_weights_are_those_of_the_file(tmp_path: Path) -> None:
    model = read_arpa(write(tmp_path, GOOD))
    assert list(model.vocabulary) == ["YES", "<s>", "NO", "</s>"]
    assert [len(table) for table in model.orders] == [4, 3]
    expected = {
        ("<s>", "YES"): -0.3,
        ("<s>", "</s>"): -0.125 - 0.75,  # backs off
        ("YES", "NO"): -0.25 - 0.5,
        ("NO", "YES"): -0.5,  # has no weight
        ("YES", "</s>"): -0.2,
    }
    for (history, word), log10 in expected.items():
        assert log_probability(model, [history], word) == pytest.approx(log10 * LN10, rel=1e-6)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz", "model.arpa.xz"])
def test_what_is_written_is_read_again(tmp_path: Path, name: str) -> None:
    text = ["A B C A", "B B A", "C A B"]
    model = estimate(text, order=3, discounts=SMALL_TEXT_DISCOUNTS)
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.vocabulary == model.vocabulary
    for table, expected in zip(again.orders, model.orders, strict=True):
        np.testing.assert_array_equal(table.ngrams, expected.ngrams)
        np.testing.assert_allclose(table.log_prob, expected.log_prob, rtol=3e-7)
        np.testing.assert_allclose(table.backoff, expected.backoff, rtol=3e-7)


def test_model_of_more_lines_than_a_chunk_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natgrad.speech.lm.arpa.LINES_PER_CHUNK", 2)
    model = estimate(["A B C A", "B B A"], order=2, discounts=SMALL_TEXT_DISCOUNTS)
    write_arpa(model, tmp_path / "model.arpa")
    again = read_arpa(tmp_path / "model.arpa")
    np.testing.assert_array_equal(again.orders[1].ngrams, model.orders[1].ngrams)
    np.testing.assert_allclose(again.orders[1].log_prob, model.orders[1].log_prob, rtol=3e-7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\\nngram", "ngram", r"without the line \\data\\"),
        ("ngram 1=4\nngram 2=3\n", "", r"line 5: .*expected a line like 'ngram 1="),
        ("ngram 1=4\n", "", "line 4: .*expected the count of 1-grams"),
        ("ngram 2=3", "ngram 2=4", r"lines 13 to 17: 3 2-grams; expected the 4"),
        ("-0.5 YES -0.25\n", "", r"3 1-grams; expected the 4"),
        ("\\2-grams:", "\\3-grams:", r"line 13: .*expected the line \\2-grams:"),
        ("\\end\\\n", "", r"ends after 17 lines without the line \\end\\"),
        ("-0.1 <s> NO\n\\end\\", "-0.1 <s", r"found 2"),
        ("-0.1 <s> NO", "-0.1 <s> NO -0.3", "line 17: .*found 4"),
        ("-0.5\tNO", "-0.5x NO", "line 10: .*'-0.5x' is not a finite number"),
        ("-0.5\tNO", "nan NO", "line 10: .*'nan' is not a finite number; write -99"),
        ("<s> -0.125", "<s> -inf", "line 9: .*'-inf' is not a finite number"),
        ("-0.2 YES </s>", "0.2 YES </s>", "line 15: .*the log-probability is above 0"),
        ("-0.1 <s> NO", "-0.1 <s> NONE", "line 17: .*'NONE' is not one of the 1-grams"),
        ("-0.1 <s> NO", "-0.1 <s> YES", "line 17: .*is in line 14 already"),
        ("-0.5\tNO", "-0.5 YES", "line 10: .*'YES' is there twice"),
        ("-0.5\tNO", "-0.5 <eps>", "line 10: .*'<eps>' stands for no word"),
        ("-99 <s> -0.125", "-99 BEGIN -0.125", "line 14: .*'<s>' is not one of the 1-grams"),
    ],
)
def test_damaged_file_is_refused_and_its_line_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ArpaError, match=message) as caught:
        read_arpa(path)
    assert str(path) in str(caught.value)


def test_ngram_without_its_history_is_refused(tmp_path: Path) -> None:
    longer = GOOD.replace("ngram 2=3", "ngram 2=3\nngram 3=1")
    longer = longer.replace("\\end\\", "\\3-grams:\n-0.1 NO YES NO\n\\end\\")
    with pytest.raises(
        ArpaError, match=r"line 20: '-0.1 NO YES NO': its first 2 word\(s\) are not"
    ):
        read_arpa(write(tmp_path, longer))


def test_model_without_end_of_sentence_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArpaError, match="</s> is not one of its 4 1-grams"):
        read_arpa(write(tmp_path, GOOD.replace("</s>", "END")))


def cut(data: bytes) -> bytes:
    return gzip.compress(data)[:-12]


def scratch(data: bytes) -> bytes:
    packed = gzip.compress(data)
    return packed[:10] + b"\xff" + packed[11:]  # no such kind of block


def spoil(data: bytes) -> bytes:
    return data.replace(b"YES", b"Y\xffS")


@pytest.mark.parametrize(
    ("suffix", "damage", "message"),
    [
        (".gz", cut, "model.gz: .*expected a whole .gz file"),
        (".gz", scratch, "model.gz: .*expected a whole .gz file"),
        (".gz", bytes, "model.gz: .*expected a whole .gz file"),
        (".xz", bytes, "model.xz: .*expected a whole .xz file"),
        (".arpa", spoil, "model.arpa, line 8: the byte 0xff; expected UTF-8 text"),
    ],
)
def test_file_that_cannot_be_decoded_is_refused_by_name(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = (tmp_path / "model").with_suffix(suffix)
    path.write_bytes(damage(GOOD.encode()))
    with pytest.raises(ArpaError, match=message):
        read_arpa(path)


def test_byte_order_mark_and_line_ends_of_any_system_change_nothing(tmp_path: Path) -> None:
    text = GOOD[GOOD.index("\\data\\\nngram") :]
    expected = read_arpa(write(tmp_path, text))
    for end in ("\n", "\r\n", "\r"):
        path = tmp_path / "other.arpa"
        path.write_bytes(("\ufeff" + text.replace("\n", end)).encode())
        found = read_arpa(path)
        assert found.vocabulary == expected.vocabulary
        np.testing.assert_array_equal(found.orders[1].log_prob, expected.orders[1].log_prob)


@pytest.mark.skipif(not AN4.exists(), reason="needs ../shared/data/an4")
def test_an4_model_is_read() -> None:
    model = read_arpa(AN4)
    assert [len(table) for table in model.orders] == [107, 1]
    assert model.vocabulary.name(model.unknown) == "<UNK>"
    assert log_probability(model, ["<s>"], "</s>") == 0.0
    assert log_probability(model, ["<s>", "YES"], "ZERO") == pytest.approx(-2.0253 * LN10)
