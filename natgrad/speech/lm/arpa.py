"""ARPA files, the common text form of back-off language models: read and written."""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from natgrad.atomic import write_atomically
from natgrad.speech.lm.ngram import BEGIN, END, LN10, Ints, NgramModel, NgramTable
from natgrad.speech.lm.numbered_text import read_lines
from natgrad.speech.symbols import EPSILON, Symbols

__all__ = ["ArpaError", "read_arpa", "write_arpa"]

COUNT = re.compile(r"ngram\s+(\d+)\s*=\s*(\d+)")
LINES_PER_CHUNK = 50_000
GZIP_FORMAT = 31  # zlib's window bits for a .gz file


class ArpaError(ValueError):
    """A file is not a sound ARPA language model; the message names the file and the line."""


def read_arpa(path: Path | str) -> NgramModel:
    r"""Read a back-off language model in ARPA form: plain text, or compressed (.gz, .xz).

    Words are numbered in the order of the file's 1-grams. What is before the line \data\ is not
    looked at.

    Raises:
        ArpaError: the file is not a whole and sound model; it names the file and the line.
        OSError: it cannot be read.
    """
    path = Path(path)
    try:
        lines = _Lines(path, list(read_lines(path)))
    except ValueError as error:
        raise ArpaError(*error.args) from error
    counts = lines.read_counts()
    sections = [
        lines.read_section(order, count, is_last=order == len(counts))
        for order, count in enumerate(counts, start=1)
    ]
    lines.expect("\\end\\")
    vocabulary = _vocabulary(lines)
    tables: list[NgramTable] = []
    for section in sections:
        table, order_in_file = _sort(lines, section)
        if tables:
            prefixes = NgramModel(vocabulary, tuple(tables)).places(table.ngrams[:, :-1])
            if len(prefixes) and prefixes.min() < 0:
                raise lines.error(
                    section.line_numbers[order_in_file[prefixes.argmin()]],
                    f"its first {len(tables)} word(s) are not a {len(tables)}-gram of this file; "
                    "an n-gram's history must be there, to have a back-off weight",
                )
        tables.append(table)
    return NgramModel(vocabulary, tuple(tables))


@dataclass(frozen=True)
class _Section:
    """The n-grams of one order, as they are in the file."""

    ngrams: Ints  # (n, k)
    log_prob: NDArray[np.float64]  # base 10
    backoff: NDArray[np.float64]  # base 10
    line_numbers: NDArray[np.int64]


class _Lines:
    """The lines of a file, and how far they have been read; lines are numbered from 1."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self.path = path
        self.lines = lines
        self.position = 0  # how many lines have been read
        self.word_numbers: dict[str, int] = {}

    def error(self, line_number: int, problem: str) -> ArpaError:
        line = self.lines[line_number - 1].strip()
        return ArpaError(f"{self.path}, line {line_number}: {line!r}: {problem}")

    def next(self, wanted: str) -> str:
        """Go on to the next line that is not empty."""
        while self.position < len(self.lines):
            self.position += 1
            if line := self.lines[self.position - 1].strip():
                return line
        raise ArpaError(
            f"{self.path}: it ends after {len(self.lines)} lines without {wanted}; it is not an "
            "ARPA file or a part of it is missing: write or fetch it again"
        )

    def expect(self, heading: str) -> None:
        if self.next(f"the line {heading}") != heading:
            raise self.error(self.position, f"expected the line {heading}")

    def read_counts(self) -> list[int]:
        while self.next("the line \\data\\") != "\\data\\":
            pass
        counts: list[int] = []
        while match := COUNT.fullmatch(self.next("the line \\1-grams:")):
            if int(match[1]) != len(counts) + 1:
                raise self.error(self.position, f"expected the count of {len(counts) + 1}-grams")
            counts.append(int(match[2]))
        if not counts:
            raise self.error(self.position, "expected a line like 'ngram 1=100'")
        self.position -= 1
        return counts

    def read_section(self, order: int, count: int, is_last: bool) -> _Section:
        self.expect(f"\\{order}-grams:")
        begin = self.position
        headings = (n for n in range(begin, len(self.lines)) if self.lines[n].startswith("\\"))
        self.position = next(headings, len(self.lines))
        where = [n for n in range(begin + 1, self.position + 1) if self.lines[n - 1].strip()]
        if len(where) != count:
            raise ArpaError(
                f"{self.path}, lines {begin} to {self.position}: {len(where)} {order}-grams; "
                f"expected the {count} that 'ngram {order}={count}' promises: a part of the file "
                "is missing or that line is wrong"
            )
        chunks = [
            self._read_chunk(where[first : first + LINES_PER_CHUNK], order, is_last)
            for first in range(0, max(count, 1), LINES_PER_CHUNK)
        ]
        ngrams, log_prob, backoff = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
        return _Section(ngrams, log_prob, backoff, np.array(where, np.int64))

    def _read_chunk(
        self, where: Sequence[int], order: int, is_last: bool
    ) -> tuple[Ints, NDArray[np.float64], NDArray[np.float64]]:
        rows = [self.lines[number - 1].split() for number in where]
        most = order + 1 if is_last else order + 2
        for number, row in zip(where, rows, strict=True):
            if not order < len(row) <= most:
                weight = "" if is_last else ", perhaps a back-off weight"
                raise self.error(
                    number, f"expected a log-probability, {order} word(s){weight}; found {len(row)}"
                )
        log_prob = self._floats([row[0] for row in rows], where)
        if len(rows) and log_prob.max() > 0:
            raise self.error(where[int(log_prob.argmax())], "the log-probability is above 0")
        weights = [row[order + 1] if len(row) > order + 1 else "0" for row in rows]
        words = [row[1 : order + 1] for row in rows]
        if order == 1:
            self._number([word for (word,) in words], where)
        return self._ngrams(words, where, order), log_prob, self._floats(weights, where)

    def _floats(self, texts: list[str], where: Sequence[int]) -> NDArray[np.float64]:
        try:
            values = np.fromiter(map(float, texts), np.float64, len(texts))
        except ValueError:
            values = np.array([float(text) if _is_number(text) else np.nan for text in texts])
        if not np.isfinite(values).all():
            bad = int(np.isfinite(values).argmin())
            raise self.error(
                where[bad], f"{texts[bad]!r} is not a finite number; write -99 for one of zero"
            )
        return values

    def _number(self, words: list[str], where: Sequence[int]) -> None:
        for word, number in zip(words, where, strict=True):
            if word in self.word_numbers or word == EPSILON:
                problem = "stands for no word" if word == EPSILON else "is there twice"
                raise self.error(number, f"the word {word!r} {problem}; leave it out")
            self.word_numbers[word] = len(self.word_numbers) + 1

    def _ngrams(self, words: list[list[str]], where: Sequence[int], order: int) -> Ints:
        try:
            ngrams = [[self.word_numbers[word] for word in ngram] for ngram in words]
        except KeyError:
            number, ngram = next(
                (number, ngram)
                for number, ngram in zip(where, words, strict=True)
                if not self.word_numbers.keys() >= set(ngram)
            )
            lost = next(word for word in ngram if word not in self.word_numbers)
            raise self.error(number, f"the word {lost!r} is not one of the 1-grams") from None
        return np.array(ngrams, np.int32).reshape(len(words), order)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _vocabulary(lines: _Lines) -> Symbols:
    for name in (BEGIN, END):
        if name not in lines.word_numbers:
            raise ArpaError(
                f"{lines.path}: {name} is not one of its {len(lines.word_numbers)} 1-grams; a "
                f"model of sentences needs {BEGIN} and {END}: estimate it again, from sentences"
            )
    return Symbols(lines.word_numbers)


def _sort(lines: _Lines, section: _Section) -> tuple[NgramTable, NDArray[np.int64]]:
    """Return the n-grams sorted, and where in the section each was."""
    places = np.lexsort(section.ngrams.T[::-1])
    ngrams = section.ngrams[places]
    same = np.flatnonzero((ngrams[1:] == ngrams[:-1]).all(axis=1))
    if len(same):
        # lexsort is stable: of two equal rows, the second comes later in the file too
        first, second = section.line_numbers[places[same[0] : same[0] + 2]]
        raise lines.error(int(second), f"this n-gram is in line {first} already; leave one out")
    log_prob, backoff = section.log_prob[places] * LN10, section.backoff[places] * LN10
    return NgramTable(ngrams, log_prob.astype(np.float32), backoff.astype(np.float32)), places


def write_arpa(model: NgramModel, path: Path | str) -> None:
    """Write a model in ARPA form, whole or not at all; compressed if it is named .gz or .xz.

    >>> import tempfile
    >>> from natgrad.speech.lm.kneser_ney import estimate
    >>> model = estimate(["YES NO", "NO NO"], order=2, discounts=(0.5, 0.5, 0.5))
    >>> path = Path(tempfile.mkdtemp()) / "words.arpa"
    >>> write_arpa(model, path)
    >>> read_arpa(path).vocabulary == model.vocabulary
    True
    """
    path = Path(path)
    text: Iterable[bytes] = (line.encode() for line in _format(model))
    if path.suffix == ".gz":
        text = _compress(text, zlib.compressobj(wbits=GZIP_FORMAT))
    elif path.suffix == ".xz":
        text = _compress(text, lzma.LZMACompressor())
    write_atomically(path, text)


def _compress(
    chunks: Iterable[bytes], compressor: zlib._Compress | lzma.LZMACompressor
) -> Iterator[bytes]:
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _format(model: NgramModel) -> Iterator[str]:
    counts = [f"ngram {order}={len(table)}\n" for order, table in enumerate(model.orders, start=1)]
    yield "\\data\\\n" + "".join(counts)
    names = np.array(model.vocabulary.names, object)
    for order, table in enumerate(model.orders, start=1):
        yield f"\n\\{order}-grams:\n"
        for first in range(0, len(table), LINES_PER_CHUNK):
            chunk = slice(first, first + LINES_PER_CHUNK)
            words = names[table.ngrams[chunk]].tolist()
            log_prob = (table.log_prob[chunk].astype(np.float64) / LN10).tolist()
            backoff = (table.backoff[chunk].astype(np.float64) / LN10).tolist()
            yield "".join(
                f"{probability:.7g}\t{' '.join(ngram)}" + (f"\t{weight:.7g}\n" if weight else "\n")
                for probability, ngram, weight in zip(log_prob, words, backoff, strict=True)
            )
    yield "\n\\end\\\n"
