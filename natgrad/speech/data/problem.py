"""What is wrong with data, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

__all__ = ["Problem", "format_problems"]


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong.

    Args:
        kind: a few words, the same for all problems of this sort: "missing audio".
        where: the utterance, the speaker, or the file and its line.
        message: what was found there, and what was expected.
        remedy: what to do.
    """

    kind: str
    where: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}. {self.remedy}"


def format_problems(problems: Sequence[Problem], most_of_a_kind: int = 20) -> str:
    """Return the problems as text, those of a kind together, and each remedy once.

    >>> problems = [Problem("missing audio", f"u{n}", "gone", "Restore it") for n in (1, 2, 3)]
    >>> print(format_problems(problems, most_of_a_kind=2))
    missing audio (3)
      u1: gone
      u2: gone
      ... and 1 more
      -> Restore it
    """
    ranks: dict[tuple[str, str], int] = {}
    for problem in problems:
        ranks.setdefault((problem.kind, problem.remedy), len(ranks))
    ordered = sorted(problems, key=lambda problem: ranks[problem.kind, problem.remedy])
    lines: list[str] = []
    for (kind, remedy), group in groupby(ordered, lambda problem: (problem.kind, problem.remedy)):
        found = list(group)
        lines.append(f"{kind} ({len(found)})")
        lines += [f"  {problem.where}: {problem.message}" for problem in found[:most_of_a_kind]]
        if len(found) > most_of_a_kind:
            lines.append(f"  ... and {len(found) - most_of_a_kind} more")
        lines.append(f"  -> {remedy}")
    return "\n".join(lines)
