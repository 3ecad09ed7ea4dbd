"""Names and their numbers: words and phones, as graphs know them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["EPSILON", "Symbols"]

EPSILON = "<eps>"  # the name of number 0, which stands for "nothing" in every graph


class Symbols:
    """Different names, numbered from 1 in the order given.

    >>> words = Symbols(["YES", "NO"])
    >>> words.number("NO"), words.name(1), "MAYBE" in words
    (2, 'YES', False)

    `len` counts epsilon, so that an array of that length can be indexed by number.

    >>> len(words), list(words)
    (3, ['YES', 'NO'])
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = (EPSILON, *names)
        self._numbers = {name: number for number, name in enumerate(self.names)}
        if len(self._numbers) < len(self.names):
            twice = next(
                name for number, name in enumerate(self.names) if self._numbers[name] != number
            )
            raise ValueError(f"{twice!r} is there twice; symbols must differ from one another")

    def number(self, name: str) -> int:
        """Return the number of a name, or raise KeyError."""
        return self._numbers[name]

    def name(self, number: int) -> str:
        """Return the name of a number."""
        return self.names[number]

    def __contains__(self, name: str) -> bool:
        return name in self._numbers

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names[1:])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbols) and self.names == other.names

    def __hash__(self) -> int:
        return hash(self.names)
