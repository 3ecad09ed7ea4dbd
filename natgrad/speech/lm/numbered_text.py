"""Text for language models: sentences as arrays of their words' numbers."""

from __future__ import annotations

import gzip
import lzma
import re
import zlib
from array import array
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from natgrad.speech.lm.ngram import BEGIN, END, Ints
from natgrad.speech.symbols import EPSILON, Symbols

__all__ = ["NumberedText", "number_text", "read_lines"]

RESERVED = {BEGIN, END, EPSILON}
OPENERS: dict[str, Callable[..., TextIO]] = {".gz": gzip.open, ".xz": lzma.open}
ESCAPED = re.compile("[\udc80-\udcff]")  # how Python's "surrogateescape" hands on a byte


@dataclass(frozen=True, eq=False)
class NumberedText:
    """Sentences one after the other, each between <s> and </s>, as the numbers of their words."""

    words: Symbols
    numbers: Ints  # 0 where a word is not one of `words`

    @property
    def begin(self) -> int:
        """The number of <s>."""
        return self.words.number(BEGIN)

    @property
    def num_sentences(self) -> int:
        """The number of sentences."""
        return int(np.count_nonzero(self.numbers == self.begin))

    def counts(self) -> NDArray[np.int64]:
        """Return how often each number is there."""
        return np.bincount(self.numbers, minlength=len(self.words))

    def renumbered(self, words: Symbols, unknown: int = 0) -> NumberedText:
        """Return the same sentences in the numbers of other words, `unknown` if not among them.

        >>> text = number_text(["YES NO"])
        >>> text.numbers.tolist(), text.renumbered(Symbols([END, BEGIN, "NO"])).numbers.tolist()
        ([1, 3, 4, 2], [2, 0, 3, 1])
        """
        known = [words.number(word) if word in words else unknown for word in self.words]
        table = np.array([unknown, *known], np.int32)
        return NumberedText(words, table[self.numbers])

    def most_frequent(
        self, num_words: int | None, among: Container[str] | None = None
    ) -> list[str]:
        """Return its most frequent words (of those in `among`), the most frequent first.

        >>> number_text(["C B A", "B C"]).most_frequent(2)
        ['B', 'C']
        """
        if num_words is not None and num_words < 0:
            raise ValueError(f"num_words is {num_words}; expected at least 0")
        counts = self.counts()
        candidates = [
            (-int(counts[number]), word)
            for number, word in enumerate(self.words.names)
            if word not in RESERVED and (among is None or word in among)
        ]
        return [word for _, word in sorted(candidates)[:num_words]]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a text file: UTF-8, plain or compressed (.gz, .xz).

    Raises:
        ValueError: it is not such a file, or not whole; the message names it.
        OSError: it cannot be read.
    """
    open_ = OPENERS.get(path.suffix, open)
    try:
        # A decoder that stops at a wrong byte cannot tell the line, as it reads many at once.
        with open_(path, "rt", encoding="utf-8-sig", errors="surrogateescape") as file:
            for number, line in enumerate(file, start=1):
                if not line.isascii() and (wrong := ESCAPED.search(line)):
                    raise ValueError(
                        f"{path}, line {number}: the byte {ord(wrong[0]) - 0xDC00:#04x}; expected "
                        "UTF-8 text, compressed if it is named .gz or .xz: convert the file, or "
                        "fetch it again if it is damaged"
                    )
                yield line
    except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
        raise ValueError(
            f"{path}: {error}; expected a whole {path.suffix} file: fetch or write it again, or "
            "name it otherwise if it is not compressed"
        ) from error


def number_text(sentences: Iterable[str] | Path | NumberedText) -> NumberedText:
    """Number the words of sentences, as they come.

    Args:
        sentences: one each, words apart by spaces; or a file with one per line. Empty ones do not
            count. What has been numbered comes back as it is.

    Raises:
        ValueError: there are no words, or one that means something else, such as <s>.
    """
    if isinstance(sentences, NumberedText):
        return sentences
    if isinstance(sentences, str):
        raise TypeError(f"sentences are one string, {sentences[:40]!r}; give a Path or a list")
    where = f"{sentences}, line " if isinstance(sentences, Path) else "sentence "
    lines = read_lines(sentences) if isinstance(sentences, Path) else sentences
    known = {BEGIN: 1, END: 2}
    numbers = array("i")
    for line_number, line in enumerate(lines, start=1):
        words = line.split()
        if not RESERVED.isdisjoint(words):
            word = next(word for word in words if word in RESERVED)
            raise ValueError(f"{where}{line_number}: it holds {word!r}; leave such words out")
        if words:
            numbers.append(1)
            numbers.extend([known.setdefault(word, len(known) + 1) for word in words])
            numbers.append(2)
    if not numbers:
        raise ValueError(f"no words in {sentences if isinstance(sentences, Path) else 'the text'}")
    return NumberedText(Symbols(known), np.array(numbers, np.int32))
