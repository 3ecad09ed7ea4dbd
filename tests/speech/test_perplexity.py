"""Perplexity against a word-by-word sum; and the text that models are made from and judged by."""

import gzip
import lzma
import math
from pathlib import Path

import pytest

from natgrad.speech.lm.kneser_ney import SMALL_TEXT_DISCOUNTS, estimate
from natgrad.speech.lm.ngram import log_probability
from natgrad.speech.lm.numbered_text import number_text
from natgrad.speech.lm.perplexity import perplexity

TRAINING = ["A B C", "B A", "C C A B", "D A"]
JUDGED = ["A B D A Z A B", "C", "Z", "B A C"]


@pytest.mark.parametrize("unknown", [None, "<unk>"])
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("words_per_chunk", [2, 1000])
def test_perplexity_is_that_of_the_words_one_by_one(
    unknown: str | None, order: int, words_per_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("natgrad.speech.lm.perplexity.WORDS_PER_CHUNK", words_per_chunk)
    model = estimate(TRAINING, ["A", "B", "C"], order, unknown, SMALL_TEXT_DISCOUNTS)
    terms = []
    for sentence in JUDGED:
        words = ["<s>", *sentence.split(), "</s>"]
        terms += [
            log_probability(model, words[:place], words[place])
            for place in range(1, len(words))
            if words[place] in model.vocabulary
        ]
    result = perplexity(model, JUDGED)
    assert (result.num_words, result.num_sentences, result.num_unknown) == (12, 4, 3)
    assert result.log_prob == pytest.approx(sum(terms), rel=1e-12)
    assert result.value == pytest.approx(math.exp(-sum(terms) / len(terms)))
    assert result.unknown_rate == 0.25


def test_files_compressed_or_not_are_the_same_text(tmp_path: Path) -> None:
    data = "\n".join(["", *JUDGED, ""]).encode()
    (tmp_path / "a.txt").write_bytes(data)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(data))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(data))
    expected = number_text(JUDGED)
    for path in tmp_path.iterdir():
        found = number_text(path)
        assert found.words == expected.words
        assert found.numbers.tolist() == expected.numbers.tolist()


def test_truncated_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cut.txt.xz"
    path.write_bytes(lzma.compress(b"A B C\n" * 1000)[:-20])
    with pytest.raises(ValueError, match=r"cut.txt.xz: .*expected a whole .xz file"):
        number_text(path)


def test_damaged_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    packed = gzip.compress(b"A B C\n" * 1000)
    path.write_bytes(packed[:10] + b"\xff" + packed[11:])  # no such kind of block
    with pytest.raises(ValueError, match=r"text.gz: .*expected a whole .gz file"):
        number_text(path)


@pytest.mark.parametrize("line", [2, 30_000])
def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path, line: int) -> None:
    path = tmp_path / "text"
    path.write_bytes("É A\n".encode() * (line - 1) + b"CAF\xc9\n")
    with pytest.raises(ValueError, match=f"text, line {line}: the byte 0xc9; expected UTF-8"):
        number_text(path)


def test_byte_order_mark_and_line_ends_are_no_part_of_words(tmp_path: Path) -> None:
    path = tmp_path / "text"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(("\ufeff" + end.join(["A B", "A"])).encode())
        assert list(number_text(path).words) == ["<s>", "</s>", "A", "B"]
        assert number_text(path).num_sentences == 2


def test_text_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="no words in the text"):
        number_text(["", "  "])


def test_reserved_word_is_refused_and_its_line_named(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("A B\nB </s>\n")
    with pytest.raises(ValueError, match="text, line 2: it holds '</s>'"):
        number_text(path)


def test_one_string_is_no_list_of_sentences() -> None:
    with pytest.raises(TypeError, match="give a Path or a list"):
        number_text("A B")
