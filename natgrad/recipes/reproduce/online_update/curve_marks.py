"""At which updates of many a curve has its points."""

from __future__ import annotations

__all__ = ["curve_marks"]

NUM_POINTS = 60


def curve_marks(num_updates: int) -> list[int]:
    """Return update numbers from 0 to the last, evenly by their logarithms.

    >>> marks = curve_marks(1000)
    >>> marks[:5], marks[-1], len(marks) <= 61
    ([0, 1, 2, 3, 4], 1000, True)
    """
    steps = (1.0 + num_updates) ** (1.0 / NUM_POINTS)
    return sorted({round(steps**i) - 1 for i in range(NUM_POINTS + 1)})
