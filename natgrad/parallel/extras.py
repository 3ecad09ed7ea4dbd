"""Libraries that a plain install does not have."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def needed_by(engine: str, extra: str) -> Iterator[None]:
    """Turn a failed import in the `with` block into an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the engine {engine} needs the module {error.name}, which is not installed: "
            f"pip install 'natgrad[{extra}]'",
            name=error.name,
        ) from error


@contextmanager
def signals_unchanged() -> Iterator[None]:
    """Keep the modules that are imported in the `with` block from installing signal handlers.

    dask_jobqueue makes Ctrl-C end the process, without a KeyboardInterrupt, by being imported; and
    so it cannot be imported by any thread but the main one.
    """
    with mock.patch.object(signal, "signal"):
        yield
