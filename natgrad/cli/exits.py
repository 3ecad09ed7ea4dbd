"""How a command ends: its exit code, and the error that says that it failed halfway."""

from __future__ import annotations

__all__ = ["FAILED", "INTERRUPTED", "USAGE", "RunFailedError"]

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class RunFailedError(Exception):
    """Something went wrong after a run had begun: not a mistake in the command.

    The cause is what went wrong; the message, if there is one, is where.
    """
