"""Files of lexicons: Kaldi's, Sphinx's, and the CMU Pronouncing Dictionary."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from natgrad.atomic import write_atomically
from natgrad.speech.lexicon.lexicon import (
    COMMENT,
    NUMBER,
    VARIANT,
    Lexicon,
    LexiconError,
    Pronunciation,
    complain_about,
    complain_about_name,
)

__all__ = ["read_cmudict", "read_lexicon", "write_lexicon"]

STRESSES = "012"


def read_lexicon(
    path: str | Path,
    sounds: Collection[str] | None = None,
    *,
    silence: str = "SIL",
    silence_probability: float = 0.5,
    unknown_word: str | None = None,
) -> Lexicon:
    """Read a lexicon in one of the forms of Kaldi and Sphinx, which it tells apart.

    A line is a word and its sounds (lexicon.txt); or a word, a probability and its sounds
    (lexiconp.txt). Further pronunciations have a line of their own, with the word as it is or as
    WORD(2). Lines without text, or that begin with ;; (comments), mean nothing.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "an.dic"
    >>> _ = path.write_text("AN  AE N\\nAN(2)  AH N\\n")
    >>> [" ".join(way.sounds) for way in read_lexicon(path).of("AN")]
    ['AE N', 'AH N']

    Args:
        path: of the file, in UTF-8.
        sounds: those that are allowed; by default any.
        silence: see Lexicon, also for the rest.
        silence_probability: see there.
        unknown_word: see there; the file must have it.

    Raises:
        LexiconError: it names the file, the line, and what is wrong there.
    """
    path = Path(path)
    allowed = None if sounds is None else frozenset(sounds)
    lines = list(_split_lines(path))
    has_probabilities = bool(lines) and len(lines[0][1]) > 1 and _is_number(lines[0][1][1])
    first_line: dict[tuple[str, tuple[str, ...]], int] = {}
    ways = []
    for number, fields in lines:
        way = _parse(path, number, fields, has_probabilities)
        complaint = complain_about(way) or _complain_about_names(way, allowed)
        before = first_line.setdefault((way.word, way.sounds), number)
        if complaint is None and before != number:
            complaint = (
                f"{way.word} {' '.join(way.sounds)} is there already, on line {before}; "
                "remove one of the two"
            )
        if complaint:
            raise LexiconError(f"{path}, line {number}: {complaint}")
        ways.append(way)
    if not ways:
        raise LexiconError(f"{path} has no words; expected lines of a word and its sounds")
    try:
        return Lexicon(ways, silence, silence_probability, unknown_word)
    except LexiconError as error:
        raise LexiconError(f"{path}: {error}") from error


def write_lexicon(path: str | Path, lexicon: Lexicon) -> None:
    """Write a lexicon, with probabilities (lexiconp.txt) if any is not 1, else without.

    What is said of silence and the unknown word is not in the file; it is given when reading.
    """
    has_probabilities = any(way.probability != 1.0 for way in lexicon.pronunciations)
    lines = [
        " ".join([way.word, *([str(float(way.probability))] * has_probabilities), *way.sounds])
        for way in lexicon.pronunciations
    ]
    write_atomically(Path(path), ["".join(line + "\n" for line in lines).encode()])


def read_cmudict(path: str | Path, stress: bool = False) -> Lexicon:
    """Read the CMU Pronouncing Dictionary, in its own form or that of nltk (WORD 2 SOUNDS).

    What comes after # is a comment, as in its newer versions; and so are lines that begin with ;;.

    Args:
        path: of the file.
        stress: keep the digits of vowels (AH0). Without, pronunciations that differ by nothing
            else are one.

    Raises:
        LexiconError: it names the file and line.
    """
    path = Path(path)
    ways: dict[Pronunciation, None] = {}
    for number, fields in _split_lines(path):
        comment = next((n for n, field in enumerate(fields) if n and field[0] == "#"), None)
        fields = fields[:comment]
        if len(fields) > 1 and fields[1].isdecimal():
            word, sounds = fields[0], fields[2:]
        else:
            word, sounds = _without_variant(fields[0]), fields[1:]
        if not stress:
            sounds = [sound.rstrip(STRESSES) or sound for sound in sounds]
        way = Pronunciation(word, tuple(sounds))
        if complaint := complain_about(way) or _complain_about_names(way, None):
            raise LexiconError(f"{path}, line {number}: {complaint}")
        ways[way] = None
    if not ways:
        raise LexiconError(f"{path} has no words; expected lines such as  NATURAL 1 N AE1 CH ER0")
    return Lexicon(list(ways))


def _split_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The numbers (from 1) and fields of a file's lines that have any and are no comments."""
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except (FileNotFoundError, IsADirectoryError) as error:
        found = "it is a directory" if path.is_dir() else "no such file"
        raise LexiconError(
            f"there is no lexicon {path}: {found}; expected a text file of a word and its sounds "
            "per line: give its path"
        ) from error
    for number, line in enumerate(lines, start=1):
        try:
            fields = line.decode().split()
        except UnicodeDecodeError as error:
            raise LexiconError(
                f"{path}, line {number}: {line[:40]!r} is not in UTF-8; convert the file to it"
            ) from error
        if fields and not fields[0].startswith(COMMENT):
            yield number, fields


def _is_number(field: str) -> bool:
    return NUMBER.fullmatch(field) is not None


def _parse(path: Path, number: int, fields: list[str], has_probabilities: bool) -> Pronunciation:
    word = _without_variant(fields[0])
    if not has_probabilities:
        return Pronunciation(word, tuple(fields[1:]))
    if len(fields) < 2 or not _is_number(fields[1]):
        raise LexiconError(
            f"{path}, line {number}: {word} has no probability, but the first line has one; "
            "expected one after every word, or after none"
        )
    return Pronunciation(word, tuple(fields[2:]), float(fields[1]))


def _without_variant(word: str) -> str:
    variant = VARIANT.fullmatch(word)
    return variant[1] if variant else word


def _complain_about_names(way: Pronunciation, allowed: frozenset[str] | None) -> str | None:
    if complaint := complain_about_name(way.word, "word"):
        return complaint
    for sound in way.sounds:
        if complaint := complain_about_name(sound, "sound"):
            return complaint
        if allowed is not None and sound not in allowed:
            return (
                f"{way.word} has the sound {sound}, which is not among the {len(allowed)} known "
                f"ones ({' '.join(sorted(allowed)[:50])}); correct it, or add it to them"
            )
    return None
